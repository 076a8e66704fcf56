// Package figures is what is counted in small worlds: a row for each scope, as cmd/kvferry/testdata/scopes.txt keeps
// them. A row that is counted otherwise says that the machines do something else than they did.
package figures

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/kvferry/kvferry/sim"
)

// A Row is what is counted in one scope. An exploration that is cut looks at no more than States.
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

// Parse reads a row as String writes it.
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

// Read reads all rows of a file's text; in it are also empty lines, and comments behind a #.
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

// Count explores the row's scope again, to the same bound if it was cut, and returns what is counted now.
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
