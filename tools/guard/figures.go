package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/kvferry/kvferry/sim/figures"
)

// figuresFile has what is counted in each small world, in the order of size. make scopes holds it too.
const figuresFile = "cmd/kvferry/testdata/scopes.txt"

// How many transitions a scope may have whose figures are compared: those of a moment, and those of a minute.
const (
	fewTransitions  = 2_000
	manyTransitions = 400_000
)

// readFigures reads the rows of scopes of at most so many transitions.
func readFigures(path string, most int) ([]figures.Row, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	rows, err := figures.Read(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	rows = slices.DeleteFunc(rows, func(r figures.Row) bool { return r.Transitions > most })
	if len(rows) == 0 {
		return nil, fmt.Errorf("%s has no scope of at most %d transitions", path, most)
	}
	return rows, nil
}

// compareFigures explores scopes and says which are counted otherwise, and how many these are.
func compareFigures(w io.Writer, rows []figures.Row) (differ int, err error) {
	rows = slices.Clone(rows)
	slices.Reverse(rows) // The large ones first, so that no core ends alone.
	said := make([]string, len(rows))
	err = each(len(rows), cores(), func(i int) error {
		got, broken, err := rows[i].Count()
		switch {
		case err != nil:
			return err
		case broken != nil:
			said[i] = fmt.Sprintf("scope %s: %s", rows[i].Scope, broken)
		case got != rows[i]:
			said[i] = fmt.Sprintf("scope: %s, and not %s", got, rows[i])
		}
		return nil
	})
	said = slices.DeleteFunc(said, func(text string) bool { return text == "" })
	for _, text := range said {
		fmt.Fprintf(w, "differs: %s\n", strings.TrimSpace(text))
	}
	fmt.Fprintf(w, "%d scopes of at most %d transitions, %d differ\n", len(rows), rows[0].Transitions, len(said))
	return len(said), err
}
