package acl

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// clearEnv clears the environment variables that name libraries.
func clearEnv(t *testing.T) {
	for _, name := range []string{LibraryVariable, "ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"} {
		t.Setenv(name, "")
	}
}

func TestCandidates(t *testing.T) {
	clearEnv(t)
	if got, want := (Options{}).candidateLibraries(), []string{"libascendcl.so", "libacl_rt.so"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	t.Setenv(LibraryVariable, "/b.so")
	if got, want := (Options{}).candidateLibraries(), []string{"/b.so"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := (Options{Library: "/a.so"}).candidateLibraries(), []string{"/a.so"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A machine without CANN: every place that was tried is named, with the remedy, and without cgo the
// reason is that.
func TestOpenFindsNothing(t *testing.T) {
	clearEnv(t)
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
	if len(missed.Attempts) != 1 || missed.Attempts[0].Library != absent || missed.Attempts[0].Reason == "" {
		t.Errorf("tried %+v", missed.Attempts)
	}
	for _, want := range []string{absent, LibraryVariable, "install CANN"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the text lacks %q: %v", want, err)
		}
	}
}
