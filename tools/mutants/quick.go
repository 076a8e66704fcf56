package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// quickHunt looks for each mutant from the seed on that the list says finds it, and nowhere else: where the steps of
// the machines are what they were, that seed does. Nothing is made smaller, and no tree without a defect is run, which
// is for tools/guard to say. With fallback, what is not found so is looked for in full.
func quickHunt(ctx context.Context, w io.Writer, mutants []mutant, list string, seeds int, o options) (finds []find,
	failed int, err error) {
	text, err := os.ReadFile(list)
	if err != nil {
		return nil, 0, err
	}
	rows := rowsOf(string(text))
	s, done, err := newScratch(o)
	if err != nil {
		return nil, 0, err
	}
	defer done()
	return s.tryAll(ctx, w, mutants, func(m mutant) (find, string, error) {
		found, verdict, err := s.tryQuick(ctx, m, rows, seeds)
		if err != nil || verdict == "" || !o.fallback {
			return found, verdict, err
		}
		fmt.Fprintf(w, "%s: %s; once more in full\n", m.name, firstLine(verdict))
		return s.try(ctx, m, seeds)
	})
}

// tryQuick returns how m was found, and why it does not count, or "".
func (s scratch) tryQuick(ctx context.Context, m mutant, rows []row, seeds int) (found find, verdict string,
	err error) {
	known := firstSeed(rows, m.name)
	found = find{mutant: m, seed: -1}
	verdict, err = s.with(ctx, m, func() (string, error) {
		report, code, err := s.report(ctx, m, "./tools/guard", s.quickArgs(m, known, seeds))
		if err != nil {
			return err.Error(), nil
		}
		found.seed = firstFailing(report)
		found.moved = found.seed > known
		return m.judge(report, code, from(known, seeds)), nil
	})
	return found, verdict, err
}

// quickArgs are what guard is run with.
func (s scratch) quickArgs(m mutant, known, seeds int) []string {
	switch {
	case m.scope != "":
		return []string{"scope", m.scope, strconv.Itoa(statesMax)}
	case m.planned:
		return []string{"plan", s.planOf(m)}
	}
	return append([]string{"seed", m.profile, strconv.Itoa(known), strconv.Itoa(from(known, seeds))}, m.properties...)
}

// from is how many seeds are run from the known one on: that one even if fewer seeds in all are asked for.
func from(known, seeds int) int { return max(seeds-known, 1) }

// firstSeed is the lowest that finds a mutant, as the list says; 0 if that says nothing.
func firstSeed(rows []row, name string) int {
	for _, r := range rows {
		if r.name == name {
			return max(r.seed, 0)
		}
	}
	return 0
}

// firstFailing is the seed that a report of guard names first, or -1.
func firstFailing(report []byte) int {
	seed := -1
	if _, err := fmt.Sscanf(firstLine(string(report)), "seed %d breaks", &seed); err != nil {
		return -1
	}
	return seed
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}
