package acl

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// quiet clears the environment variables that name libraries.
func quiet(t *testing.T) {
	for _, name := range []string{LibraryVariable, "ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"} {
		t.Setenv(name, "")
	}
}

func TestCandidates(t *testing.T) {
	quiet(t)
	if got, want := (Options{}).candidates(), []string{"libascendcl.so", "libacl_rt.so"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	t.Setenv(LibraryVariable, "/b.so")
	if got, want := (Options{}).candidates(), []string{"/b.so"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := (Options{Library: "/a.so"}).candidates(), []string{"/a.so"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
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
