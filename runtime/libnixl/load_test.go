//go:build cgo && linux

package libnixl

import (
	"errors"
	"os"
	"slices"
	"testing"
)

// The C library is a library, and no libnixl: all symbols are named.
func TestOpenNamesEverySymbol(t *testing.T) {
	_, err := Open(Options{Library: "libc.so.6"})
	missed := (*LoadError)(nil)
	if !errors.As(err, &missed) || len(missed.Attempts) != 1 {
		t.Fatalf("got %T %v", err, err)
	}
	for _, s := range listSymbols() {
		if !slices.Contains(missed.Attempts[0].Missing, s.Name) {
			t.Errorf("%s is not named as missing", s.Name)
		}
	}
}

// The environment variables for UCX are set before UCX is loaded, and variables that were set already stay.
func TestOpenPreparesTheEnvironment(t *testing.T) {
	for _, s := range envSettings {
		t.Setenv(s.name, "") // Restored at the end.
		if err := os.Unsetenv(s.name); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv(envSettings[0].name, "said")
	if _, err := Open(Options{Library: "libc.so.6"}); err == nil {
		t.Fatal("the C library is libnixl")
	}
	for i, s := range envSettings {
		want := s.value
		if i == 0 {
			want = "said"
		}
		if got := os.Getenv(s.name); got != want {
			t.Errorf("%s is %q, want %q", s.name, got, want)
		}
	}
}
