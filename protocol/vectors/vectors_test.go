package vectors

import (
	"strings"
	"testing"
)

func TestAll(t *testing.T) {
	seen := map[string]bool{}
	for _, v := range All() {
		if seen[v.Name] || len(v.Payload) == 0 {
			t.Errorf("vector %q appears twice or is empty", v.Name)
		}
		seen[v.Name] = true
	}
	if want := strings.Count(file, "\n----\n"); want < 100 || len(seen) != want {
		t.Errorf("got %d vectors of %d", len(seen), want)
	}
}
