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
	Scope                            string
	States, Transitions, Ends, Depth int
	Cut                              bool
}

func (r Row) String() string {
	s := fmt.Sprint(r.Scope, " ", r.States, r.Transitions, r.Ends, r.Depth)
	if r.Cut {
		s += " cut"
	}
	return s
}

// ParseRow parses the output of String.
func Parse(line string) (r Row, err error) {
	cells := strings.Fields(line)
	if r.Cut = len(cells) == 6 && cells[5] == "cut"; r.Cut {
		cells = cells[:5]
	}
	if len(cells) != 5 {
		return r, fmt.Errorf("the row is %q; want scope, states, transitions, ends, depth", line)
	}
	r.Scope = cells[0]
	for i, n := range []*int{&r.States, &r.Transitions, &r.Ends, &r.Depth} {
		if *n, err = strconv.Atoi(cells[i+1]); err != nil {
			return r, err
		}
	}
	return r, nil
}

// ParseRows parses all rows of a file. Empty lines and lines that start with # are skipped.
func Read(text string) (rows []Row, err error) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		r, err := Parse(line)
		if err != nil {
			return nil, err
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// ExploreAgain explores the scope of the row again, with the same limit if the row is incomplete, and returns the new
// counts. The violation is nil if no promise was broken.
func (r Row) Count() (Row, *sim.Violation, error) {
	scope, err := sim.ScopeNamed(r.Scope)
	if err != nil {
		return r, nil, err
	}
	o := sim.ExploreOptions{Scope: scope}
	if r.Cut {
		o.States = r.States
	}
	e, err := sim.Explore(o)
	return Row{r.Scope, e.States, e.Transitions, e.Ends, e.Depth, !e.Complete}, e.Violation, err
}
