package comm

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/runtime/acl"
)

func TestCandidates(t *testing.T) {
	for _, name := range []string{LibraryVariable, "ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"} {
		t.Setenv(name, "")
	}
	if got, want := (Options{}).candidateLibraries(), []string{"libhcomm.so", "libhccl.so"}; !slices.Equal(got, want) {
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

func TestOptionsAreBounded(t *testing.T) {
	for field, o := range map[string]Options{
		"RDMATimeout is 4":  {RDMATimeout: 4},
		"RDMATimeout is 21": {RDMATimeout: 21},
		"RDMARetries is -1": {RDMARetries: -1},
		"RDMARetries is 8":  {RDMARetries: 8},
		"DescMax is 257":    {DescMax: 257},
		"DescMax is -1":     {DescMax: -1},
		"Sequence is":       {Sequence: 3},
	} {
		if _, err := Open(o); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// A machine without CANN, or a program without cgo: every place that was tried is named, with the remedy.
func TestOpenFindsNothing(t *testing.T) {
	absent := filepath.Join(t.TempDir(), "libabsent.so")
	t.Setenv(LibraryVariable, absent)
	l, err := Open(Options{})
	if l != nil || err == nil {
		t.Fatalf("opened %v from nowhere", l)
	}
	var missed *LoadError
	if !errors.As(err, &missed) || !errors.Is(err, acl.Config) {
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
