package sim

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/sim/plan"
)

// TestConjunctionsAreThoseOfTheDocs: the table of docs/simulator.md is of all of them, in their words.
func TestConjunctionsAreThoseOfTheDocs(t *testing.T) {
	text, err := os.ReadFile("../docs/simulator.md")
	if err != nil {
		t.Fatal(err)
	}
	var rows, want []string
	_, section, _ := strings.Cut(string(text), "| conjunction | what happens |\n|---|---|\n")
	for line := range strings.Lines(section) {
		if !strings.HasPrefix(line, "|") {
			break
		}
		rows = append(rows, strings.TrimSpace(line))
	}
	for _, c := range Conjunctions() {
		want = append(want, fmt.Sprintf("| `%s` | %s |", c, c.About()))
		for _, profile := range conjunctionForms[c].profiles {
			if err := CheckProfile(profile); err != nil {
				t.Errorf("%s: %v", c, err)
			}
		}
	}
	if !slices.Equal(rows, want) {
		t.Errorf("docs/simulator.md has\n%s\nwant\n%s", strings.Join(rows, "\n"), strings.Join(want, "\n"))
	}
}

// TestRareStories: some seeds of full are about a conjunction, and most are what they would be without.
func TestRareStories(t *testing.T) {
	rare := 0
	const seeds = 300
	for seed := range uint64(seeds) {
		p := plan.Plan{Version: plan.Version, Seed: seed, Profile: "full", Rates: map[plan.Fault]int{}}
		s := drawWorld(&p, "full")
		drawJobs(&p, &s)
		drawReaders(&p)
		p.DrawFaults(&s.scheduled)
		drawBounds(&p, "full")
		whole, err := Expand(seed, "full")
		if err != nil {
			t.Fatal(err)
		}
		if err := whole.Check(); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		if !reflect.DeepEqual(whole, p) {
			rare++
		}
	}
	if rare < seeds/20 || rare > seeds*rarely/1000*3/2 {
		t.Errorf("%d of %d seeds are about something rare, %d in a thousand are drawn", rare, seeds, rarely)
	}
}
