package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The generated file is up to date.
func TestCodecsAreCurrent(t *testing.T) {
	folder := filepath.Join("..", "..", "protocol")
	s, err := readSpec(folder)
	if err != nil {
		t.Fatal(err)
	}
	want, err := generateFile(s)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(folder, output))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("protocol/%s is not what the structs say: run go generate ./protocol", output)
	}
}

// A struct that cannot be encoded is refused with its name and the field's name.
func TestMistakesAreNamed(t *testing.T) {
	for _, test := range []struct{ name, source, want string }{
		{"no tag", "//wire:message\ntype M struct { A uint32 }", "M.A has no wire tag"},
		{"no kind", "//wire:message\ntype M struct { A complex64 `wire:\"a\"` }", "no kind for complex64"},
		{"no option", "//wire:message\ntype M struct { A uint32 `wire:\"a,omitempty\"` }", `no option "omitempty"`},
		{"no directive", "//wire:mesage\ntype M struct{}", `no directive "mesage"`},
		{"no struct", "//wire:message\ntype M uint32", "uint32 is no struct"},
		{"no zero", "//wire:message\ntype M struct { A Format `wire:\"a,omitzero\"` }", "a cannot be left out"},
		{"no such list", "//wire:message\ntype M struct { A []uint64 `wire:\"a,len=b\"` }",
			"a is as long as b, which is no field"},
		{"no such flag", "//wire:message\ntype M struct { A uint32 `wire:\"a,with=HasB\"` }", "M has no flag HasB"},
		{"two of a name", "//wire:message\ntype M struct { A, B uint32 `wire:\"a a\"` }", "M has two fields a"},
	} {
		folder := t.TempDir()
		if err := os.WriteFile(filepath.Join(folder, "m.go"), []byte("package p\n\n"+test.source+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		s, err := readSpec(folder)
		if err == nil {
			_, err = generateFile(s)
		}
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", test.name, err, test.want)
		}
	}
}
