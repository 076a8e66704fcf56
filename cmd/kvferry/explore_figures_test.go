package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/sim"
)

// figures is the file of what is counted in each small world.
const figures = "testdata/scopes.txt"

// A row of it. One of an exploration that is cut has the number of states after which it is.
type row struct {
	name                             string
	states, transitions, ends, depth int
	cut                              bool
}

func (r row) String() string {
	s := fmt.Sprint(r.name, " ", r.states, r.transitions, r.ends, r.depth)
	if r.cut {
		s += " cut"
	}
	return s
}

func parseRow(line string) (r row, err error) {
	cells := strings.Fields(line)
	if r.cut = len(cells) == 6 && cells[5] == "cut"; r.cut {
		cells = cells[:5]
	}
	if len(cells) != 5 {
		return r, fmt.Errorf("%q has %d cells, want scope, states, transitions, ends, depth", line, len(cells))
	}
	r.name = cells[0]
	for i, n := range []*int{&r.states, &r.transitions, &r.ends, &r.depth} {
		if *n, err = strconv.Atoi(cells[i+1]); err != nil {
			return r, err
		}
	}
	return r, nil
}

// TestFiguresOfScopes: each scope has its row, with the figures of this tree. Those of at most as many transitions as
// KVFERRY_SCOPES says (make scopes) are counted; 2,000 if it says nothing. With KVFERRY_SCOPES_WRITE what is counted is
// written, in the order of size.
func TestFiguresOfScopes(t *testing.T) {
	most := 2_000
	if text := os.Getenv("KVFERRY_SCOPES"); text != "" {
		var err error
		if most, err = strconv.Atoi(text); err != nil {
			t.Fatalf("KVFERRY_SCOPES is %q, want a number of transitions", text)
		}
	}
	text, err := os.ReadFile(figures)
	if err != nil {
		t.Fatal(err)
	}
	write := os.Getenv("KVFERRY_SCOPES_WRITE") != ""
	var now strings.Builder
	rows, left := 0, map[string]bool{}
	for _, s := range sim.Scopes() {
		left[s.Name] = true
	}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			fmt.Fprintln(&now, line)
			continue
		}
		want, err := parseRow(line)
		if err != nil {
			t.Fatalf("%s: %v", figures, err)
		}
		if !left[want.name] {
			t.Errorf("%s has a second row of %s, or there is no such scope", figures, want.name)
		}
		delete(left, want.name)
		got := want
		if want.transitions <= most {
			rows++
			t.Run(want.name, func(t *testing.T) {
				if got = counted(t, want); got != want && !write {
					t.Errorf("%s says %q, counted is %q", figures, want, got)
				}
			})
		}
		fmt.Fprintln(&now, got)
	}
	for name := range left {
		t.Errorf("%s has no row of scope %s", figures, name)
	}
	if rows < 15 {
		t.Errorf("%s has %d scopes of at most %d transitions, want 15 or more", figures, rows, most)
	}
	if write {
		if err := os.WriteFile(figures, []byte(now.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func counted(t *testing.T, want row) row {
	t.Helper()
	scope, err := sim.ScopeNamed(want.name)
	if err != nil {
		t.Fatal(err)
	}
	options := sim.ExploreOptions{Scope: scope}
	if want.cut {
		options.States = want.states
	}
	e, err := sim.Explore(options)
	if err != nil {
		t.Fatal(err)
	}
	if e.Violation != nil {
		t.Fatalf("%s breaks a promise: %+v", want.name, e.Violation)
	}
	return row{want.name, e.States, e.Transitions, e.Ends, e.Depth, !e.Complete}
}
