package operator

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/runtime/recording"
)

// POST /recording saves the recording of the node, but not for a page of another site; GET /recording says what there is.
func TestRecordingOnRequest(t *testing.T) {
	s := serve(t, Config{Sources: []Source{Node(openNode(t, "sender", NewTimer()), nil)}})
	post := func(site string) (*http.Response, savedAnswer) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.Addr().String()+"/recording", nil)
		if err != nil {
			t.Fatal(err)
		}
		if site != "" {
			r.Header.Set("Sec-Fetch-Site", site)
		}
		got, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer got.Body.Close()
		var answer savedAnswer
		if got.StatusCode == http.StatusOK {
			if err := json.NewDecoder(got.Body).Decode(&answer); err != nil {
				t.Fatal(err)
			}
		}
		return got, answer
	}
	if got, _ := post("cross-site"); got.StatusCode != http.StatusForbidden {
		t.Errorf("a request of another site: %s", got.Status)
	}
	got, saved := post("")
	if got.StatusCode != http.StatusOK || !strings.Contains(saved.File, "-request-") {
		t.Fatalf("%s, %+v", got.Status, saved)
	}
	if r, err := recording.Replay(saved.File, recording.ReplayOptions{}); err != nil || r.Diverged != nil {
		t.Errorf("%+v, %v", r, err)
	}
	var now recordingAnswer
	if getJSON(t, s, "/recording", &now); now.Files != 1 || !slices.Equal(now.Saved, []string{saved.File}) || now.Ended != "" {
		t.Errorf("%+v", now)
	}
}
