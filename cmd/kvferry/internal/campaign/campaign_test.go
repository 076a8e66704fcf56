package campaign

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/sim"
)

func open(t *testing.T, path string) *File {
	t.Helper()
	b, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

func TestBookGoesOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "campaign.json")
	b := open(t, path)
	p := b.ProfileRecord("full", 1000)
	for range 2 {
		s, err := sim.Campaign(t.Context(), sim.CampaignOptions{FirstSeed: p.Next, Seeds: 3, Profile: "full"})
		if err != nil {
			t.Fatal(err)
		}
		p.AddSummary(&s, []Finding{{Seed: p.Next + 2, Property: "S1"}, {Seed: p.Next, Property: "S2"}})
		if err := b.Save(); err != nil {
			t.Fatal(err)
		}
	}
	if p.Next != 1006 || p.Seeds != 6 || p.Steps == 0 || len(p.Findings) != 4 || p.Findings[0].Seed != 1000 {
		t.Errorf("after two campaigns of three: %+v", p)
	}
	if _, err := Open(path); err == nil || !strings.Contains(err.Error(), "in use by another campaign") {
		t.Errorf("opened twice: %v", err)
	}
	b.Close()
	again := open(t, path)
	if got := again.ProfileRecord("full", 7); !reflect.DeepEqual(got, p) {
		t.Errorf("read back %+v, want %+v", got, p)
	}
	if got := again.ProfileRecord("pull", 7); got.Next != 7 {
		t.Errorf("a profile that was not run begins at %d", got.Next)
	}
	if entries, _ := os.ReadDir(filepath.Dir(path)); len(entries) != 2 {
		t.Errorf("left behind: %v", entries)
	}
}

func TestFindingsAreBounded(t *testing.T) {
	p := (&File{Profiles: map[string]*Profile{}}).ProfileRecord("full", 0)
	for range findingsMax/100 + 1 {
		p.AddSummary(&sim.Summary{Seeds: 100, Failed: 100}, make([]Finding, 100))
	}
	if len(p.Findings) != findingsMax || p.FindingsOmitted != 100 || p.Failed != findingsMax+100 {
		t.Errorf("%d findings kept, %d left out of %d", len(p.Findings), p.FindingsOmitted, p.Failed)
	}
}

func TestInvalidCampaignFiles(t *testing.T) {
	for text, want := range map[string]string{
		"":                                       "it cannot be parsed",
		"{":                                      "it cannot be parsed",
		`{"version": 1}`:                         "profiles is missing",
		`{"version": 2, "profiles": {}}`:         "version is 2, but this program supports version 1",
		`{"version": 1, "profiles": {}} {}`:      "there is data after the end of the JSON object",
		`{"version": 1, "profiles": {}, "x": 1}`: `unknown field "x"`,
		`{"version": 1, "profiles": {"sunny": {"next_seed": 1}}}`:                `profile "sunny" is unknown`,
		`{"version": 1, "profiles": {"full": null}}`:                             "profile full is empty",
		`{"version": 1, "profiles": {"full": {"next_seed": 1, "seeds": 2}}}`:     "next_seed is 1 although 2 seeds were run",
		`{"version": 1, "profiles": {"full": {"next_seed": "1", "seeds": "2"}}}`: "it cannot be parsed",
	} {
		path := filepath.Join(t.TempDir(), "campaign.json")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		b, err := Open(path)
		if err == nil {
			b.Close()
			t.Errorf("%s was accepted", text)
			continue
		}
		if !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	if _, err := Open(filepath.Join(t.TempDir(), "nowhere", "campaign.json")); err == nil {
		t.Error("a folder that does not exist was accepted")
	}
}

// A file is replaced as a whole. If the path is a symbolic link, the link stays.
func TestReplaceKeepsLinks(t *testing.T) {
	dir := t.TempDir()
	file, link, dangling := filepath.Join(dir, "file"), filepath.Join(dir, "link"), filepath.Join(dir, "dangling")
	if err := errors.Join(os.WriteFile(file, []byte("before"), 0o600), os.Symlink(file, link),
		os.Symlink(filepath.Join(dir, "nowhere"), dangling)); err != nil {
		t.Fatal(err)
	}
	if err := ReplaceFile(link, []byte("now")); err != nil {
		t.Fatal(err)
	}
	if err := ReplaceFile(dangling, []byte("now")); err == nil {
		t.Error("a link to nothing was replaced")
	}
	for _, l := range []string{link, dangling} {
		if info, err := os.Lstat(l); err != nil || info.Mode().Type() != os.ModeSymlink {
			t.Errorf("%s: %v, %v", l, info, err)
		}
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "now" {
		t.Errorf("%q, %v", text, err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*.new-*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}
