//go:build cgo && linux

package acl

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func loadAttempts(t *testing.T, err error) []Attempt {
	t.Helper()
	var missed *LoadError
	if !errors.As(err, &missed) {
		t.Fatalf("got %T %v, want a *LoadError", err, err)
	}
	return missed.Attempts
}

func TestOpenRefusesWhatIsNoLibrary(t *testing.T) {
	file := filepath.Join(t.TempDir(), "libtext.so")
	if err := os.WriteFile(file, []byte("a text, and no library"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := Open(Options{Library: file})
	attempts := loadAttempts(t, err)
	if len(attempts) != 1 || !strings.Contains(attempts[0].Reason, "libtext.so") || attempts[0].Missing != nil {
		t.Errorf("tried %+v", attempts)
	}
}

// The C library is not AscendCL: the error names all required symbols and no optional symbol.
func TestOpenNamesEveryRequiredSymbol(t *testing.T) {
	_, err := Open(Options{Library: "libc.so.6"})
	attempts := loadAttempts(t, err)
	if len(attempts) != 1 || attempts[0].Library != "libc.so.6" {
		t.Fatalf("tried %+v", attempts)
	}
	for _, s := range listSymbols() {
		if named := slices.Contains(attempts[0].Missing, s.Name); named != s.Required {
			t.Errorf("%s: required %v, named as missing %v", s.Name, s.Required, named)
		}
	}
}

// aclFinalize would end AscendCL for the engine in the same process, so the binding does not look up this function.
func TestFinalizeIsNotBound(t *testing.T) {
	for _, s := range listSymbols() {
		if s.Name == "aclFinalize" {
			t.Error("aclFinalize is bound")
		}
	}
}
