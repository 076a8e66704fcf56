package sim

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/sim/systems"
	"github.com/kvferry/kvferry/sim/systems/pd"
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
		for _, profile := range pd.ConjunctionForms[c].Profiles {
			if err := systems.CheckProfile(profile); err != nil {
				t.Errorf("%s: %v", c, err)
			}
		}
	}
	if !slices.Equal(rows, want) {
		t.Errorf("docs/simulator.md has\n%s\nwant\n%s", strings.Join(rows, "\n"), strings.Join(want, "\n"))
	}
}
