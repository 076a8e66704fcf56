package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestReduced(t *testing.T) {
	folder := t.TempDir()
	for name, text := range map[string]string{
		"a_test.go": "package a\nfunc TestBySelf(t *testing.T) { if testing.Short() { return } }\n" +
			"func TestThrough(t *testing.T) { t.Run(``, func(t *testing.T) { play(t) }) }\nfunc TestWhole(t *testing.T) { " +
			"t.Log() }\n",
		"b_test.go": "package a\nfunc play(t *testing.T) { helper{}.step(t) }\n" +
			"func (helper) step(t *testing.T) { if testing.Short() { t.Skip() } }\ntype helper struct{}\n",
		"c.go": "package a\nfunc TestOfNoTest() { Short() }\n",
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := reduced(folder)
	if err != nil {
		t.Fatal(err)
	}
	if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, []string{"TestBySelf", "TestThrough"}) {
		t.Errorf("found %v", names)
	}
}
