// Package figures reads and writes the table of explorations in cmd/kvferry/testdata/scopes.txt. The table has a row
// for each scope with the numbers of states, transitions and final states. If an exploration counts other numbers than
// the row, the machines behave differently than when the row was written.
package figures

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/kvferry/kvferry/sim"
)

// A Row holds the counts of the exploration of a scope. An incomplete exploration stops after States states.
type Row struct {
	Scope                                   string
	States, Transitions, FinalStates, Depth int
	Incomplete                              bool
}

func (r Row) String() string {
	s := fmt.Sprint(r.Scope, " ", r.States, r.Transitions, r.FinalStates, r.Depth)
	if r.Incomplete {
		s += " cut"
	}
	return s
}

// ParseRow parses the output of String.
func ParseRow(line string) (r Row, err error) {
	cells := strings.Fields(line)
	if r.Incomplete = len(cells) == 6 && cells[5] == "cut"; r.Incomplete {
		cells = cells[:5]
	}
	if len(cells) != 5 {
		return r, fmt.Errorf("the row is %q; a row has scope, states, transitions, final states, depth", line)
	}
	r.Scope = cells[0]
	for i, n := range []*int{&r.States, &r.Transitions, &r.FinalStates, &r.Depth} {
		if *n, err = strconv.Atoi(cells[i+1]); err != nil {
			return r, err
		}
	}
	return r, nil
}

// ParseRows parses all rows of a file. Empty lines and lines that start with # are skipped.
func ParseRows(text string) (rows []Row, err error) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		r, err := ParseRow(line)
		if err != nil {
			return nil, err
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// ExploreAgain explores the scope of the row again, with the same limit if the row is incomplete, and returns the new
// counts. The violation is nil if no promise was broken.
func (r Row) ExploreAgain() (Row, *sim.Violation, error) {
	scope, err := sim.FindScope(r.Scope)
	if err != nil {
		return r, nil, err
	}
	o := sim.ExploreOptions{Scope: scope}
	if r.Incomplete {
		o.States = r.States
	}
	e, err := sim.Explore(o)
	return Row{r.Scope, e.States, e.Transitions, e.FinalStates, e.Depth, !e.Complete}, e.Violation, err
}
