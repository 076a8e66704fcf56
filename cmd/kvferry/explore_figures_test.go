package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/sim"
	"github.com/kvferry/kvferry/sim/figures"
)

// figuresFile has the expected figures of each scope.
const figuresFile = "testdata/scopes.txt"

// TestFiguresOfScopes compares the figures of each scope with the file. It explores the scopes with at most
// KVFERRY_SCOPES transitions, or 2,000 by default; make scopes sets the variable. With KVFERRY_SCOPES_WRITE, it writes
// the figures into the file, ordered by size.
func TestFiguresOfScopes(t *testing.T) {
	if testing.Short() {
		t.Skip("it walks scopes in one goroutine: the race detector has nothing to find")
	}
	most := 2_000
	if text := os.Getenv("KVFERRY_SCOPES"); text != "" {
		var err error
		if most, err = strconv.Atoi(text); err != nil {
			t.Fatalf("KVFERRY_SCOPES is %q, want a number of transitions", text)
		}
	}
	text, err := os.ReadFile(figuresFile)
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
		want, err := figures.ParseRow(line)
		if err != nil {
			t.Fatalf("%s: %v", figuresFile, err)
		}
		if !left[want.Scope] {
			t.Errorf("%s has a second row of %s, or there is no such scope", figuresFile, want.Scope)
		}
		delete(left, want.Scope)
		got := want
		if want.Transitions <= most {
			rows++
			t.Run(want.Scope, func(t *testing.T) {
				counted, broken, err := want.ExploreAgain()
				if err != nil || broken != nil {
					t.Fatalf("%s: %v, %v", want.Scope, broken, err)
				}
				if got = counted; got != want && !write {
					t.Errorf("%s says %q, counted is %q", figuresFile, want, got)
				}
			})
		}
		fmt.Fprintln(&now, got)
	}
	for name := range left {
		t.Errorf("%s has no row of scope %s", figuresFile, name)
	}
	if rows < 15 {
		t.Errorf("%s has %d scopes of at most %d transitions, want 15 or more", figuresFile, rows, most)
	}
	if write {
		if err := os.WriteFile(figuresFile, []byte(now.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
