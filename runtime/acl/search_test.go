package acl

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// quiet takes away what the machine says about libraries.
func quiet(t *testing.T) {
	for _, name := range []string{LibraryVariable, "ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"} {
		t.Setenv(name, "")
	}
}

func TestCandidates(t *testing.T) {
	for _, c := range []struct {
		name     string
		option   string
		variable string
		home     string
		older    string
		want     []string
	}{
		{name: "nothing set: the loader's search", want: []string{"libascendcl.so", "libacl_rt.so"}},
		{name: "a named library is the only one", option: "/a.so", variable: "/b.so", home: "/cann", want: []string{"/a.so"}},
		{name: "then the variable's", variable: "/b.so", home: "/cann", want: []string{"/b.so"}},
		{name: "then the loader's, then the toolkit's", home: "/cann", older: "/old", want: []string{
			"libascendcl.so", "libacl_rt.so", "/cann/lib64/libascendcl.so", "/cann/lib64/libacl_rt.so",
			"/cann/" + machine() + "-linux/lib64/libascendcl.so", "/cann/" + machine() + "-linux/lib64/libacl_rt.so",
		}},
		{name: "the toolkit by its older variable", older: "/old", want: []string{
			"libascendcl.so", "libacl_rt.so", "/old/lib64/libascendcl.so", "/old/lib64/libacl_rt.so",
			"/old/" + machine() + "-linux/lib64/libascendcl.so", "/old/" + machine() + "-linux/lib64/libacl_rt.so",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			quiet(t)
			t.Setenv(LibraryVariable, c.variable)
			t.Setenv("ASCEND_HOME_PATH", c.home)
			t.Setenv("ASCEND_TOOLKIT_HOME", c.older)
			if got := (Options{Library: c.option}).candidates(); !slices.Equal(got, c.want) {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}

func TestToolkitVersion(t *testing.T) {
	quiet(t)
	if got := toolkitVersion("runtime"); got != "" {
		t.Errorf("got %q without a toolkit", got)
	}
	home := t.TempDir()
	t.Setenv("ASCEND_HOME_PATH", home)
	if got := toolkitVersion("runtime"); got != "" {
		t.Errorf("got %q of a toolkit without records", got)
	}
	folder := filepath.Join(home, "share", "info", "runtime")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "version.info"), []byte("# comment\nVersion=8.5.0\ntimestamp=1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := toolkitVersion("runtime"); got != "8.5.0" {
		t.Errorf("got %q, want 8.5.0", got)
	}
}

// A machine without CANN: every place that was tried is named, with the remedy, and without cgo the
// reason is that.
func TestOpenFindsNothing(t *testing.T) {
	quiet(t)
	absent := filepath.Join(t.TempDir(), "libabsent.so")
	t.Setenv(LibraryVariable, absent)
	l, err := Open(Options{})
	if l != nil || err == nil {
		t.Fatalf("opened %v from nowhere", l)
	}
	var missed *LoadError
	if !errors.As(err, &missed) || !errors.Is(err, Config) || errors.Is(err, Bug) {
		t.Fatalf("got %T %v, want a *LoadError of class Config", err, err)
	}
	if len(missed.Tried) != 1 || missed.Tried[0].Library != absent || missed.Tried[0].Reason == "" {
		t.Errorf("tried %+v", missed.Tried)
	}
	for _, want := range []string{absent, LibraryVariable, "install CANN"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the text lacks %q: %v", want, err)
		}
	}
}
