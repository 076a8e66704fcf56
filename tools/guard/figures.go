package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/kvferry/kvferry/sim"
)

// figuresFile has what is counted in each small world, in the order of size. make scopes holds it too.
const figuresFile = "cmd/kvferry/testdata/scopes.txt"

// How many transitions a scope may have whose figures are compared: those of a moment, and those of a minute.
const (
	fewTransitions  = 2_000
	manyTransitions = 400_000
)

// figures are what is counted in one scope. An exploration that is cut looks at no more states than these.
type figures struct {
	scope                            string
	states, transitions, ends, depth int
	cut                              bool
}

func (f figures) String() string {
	s := fmt.Sprint(f.scope, " ", f.states, f.transitions, f.ends, f.depth)
	if f.cut {
		s += " cut"
	}
	return s
}

// readFigures reads the rows of scopes of at most so many transitions.
func readFigures(path string, most int) (rows []figures, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		f, err := parseFigures(line)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if f.transitions <= most {
			rows = append(rows, f)
		}
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("%s has no scope of at most %d transitions", path, most)
	}
	return rows, nil
}

func parseFigures(line string) (f figures, err error) {
	cells := strings.Fields(line)
	if f.cut = len(cells) == 6 && cells[5] == "cut"; f.cut {
		cells = cells[:5]
	}
	if len(cells) != 5 {
		return f, fmt.Errorf("the row is %q; want scope, states, transitions, ends, depth", line)
	}
	f.scope = cells[0]
	for i, n := range []*int{&f.states, &f.transitions, &f.ends, &f.depth} {
		if *n, err = strconv.Atoi(cells[i+1]); err != nil {
			return f, err
		}
	}
	return f, nil
}

// count explores a scope again.
func (f figures) count() (figures, *sim.Violation, error) {
	scope, err := sim.ScopeNamed(f.scope)
	if err != nil {
		return f, nil, err
	}
	o := sim.ExploreOptions{Scope: scope}
	if f.cut {
		o.States = f.states
	}
	e, err := sim.Explore(o)
	return figures{f.scope, e.States, e.Transitions, e.Ends, e.Depth, !e.Complete}, e.Violation, err
}

// compareFigures explores scopes and says which are counted otherwise, and how many these are.
func compareFigures(w io.Writer, rows []figures) (differ int, err error) {
	rows = slices.Clone(rows)
	slices.Reverse(rows) // The large ones first, so that no core ends alone.
	said := make([]string, len(rows))
	err = each(len(rows), cores(), func(i int) error {
		got, broken, err := rows[i].count()
		switch {
		case err != nil:
			return err
		case broken != nil:
			said[i] = fmt.Sprintf("scope %s: %s", rows[i].scope, broken)
		case got != rows[i]:
			said[i] = fmt.Sprintf("scope: %s, and not %s", got, rows[i])
		}
		return nil
	})
	said = slices.DeleteFunc(said, func(text string) bool { return text == "" })
	for _, text := range said {
		fmt.Fprintf(w, "differs: %s\n", strings.TrimSpace(text))
	}
	fmt.Fprintf(w, "%d scopes of at most %d transitions, %d differ\n", len(rows), rows[0].transitions, len(said))
	return len(said), err
}
