package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/sim"
)

// TestFiguresOfScopes: testdata/scopes.txt has the figures of this tree. With KVFERRY_SCOPES=1 (make scopes) all of
// them are counted, otherwise those that take no time.
func TestFiguresOfScopes(t *testing.T) {
	most := 2_000 // transitions
	if os.Getenv("KVFERRY_SCOPES") != "" {
		most = 1 << 30
	}
	text, err := os.ReadFile("testdata/scopes.txt")
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		var name string
		var states, transitions, ends, depth int
		if _, err := fmt.Sscan(line, &name, &states, &transitions, &ends, &depth); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if transitions > most {
			continue
		}
		rows++
		t.Run(name, func(t *testing.T) {
			scope, err := sim.ScopeNamed(name)
			if err != nil {
				t.Fatal(err)
			}
			e, err := sim.Explore(sim.ExploreOptions{Scope: scope})
			if err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(name, " ", e.States, e.Transitions, e.Ends, e.Depth); got != line || !e.Complete {
				t.Errorf("testdata/scopes.txt says %q, counted is %q; complete: %v", line, got, e.Complete)
			}
		})
	}
	if rows < 25 {
		t.Errorf("testdata/scopes.txt has %d scopes of at most %d transitions, want 25 or more", rows, most)
	}
}
