package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/kvferry/kvferry/tools/mutants/table"
)

// quickHunt looks for each mutant from the seed that the table records. If the steps of the state machines have not
// changed, that seed finds the mutant. No plan is minimised, and nothing is run without a defect. With fallback, a
// mutant that is not found in this way is looked for in full.
func quickHunt(ctx context.Context, w io.Writer, mutants []table.Mutant, seeds int, o options) (finds []finding, failed int,
	err error) {
	h, done, err := newHunter(mutants, o)
	if err != nil {
		return nil, 0, err
	}
	defer done()
	return h.tryAll(ctx, w, mutants, func(m *table.Mutant) (finding, string, error) {
		found, verdict, err := h.tryQuick(ctx, m, seeds)
		if err != nil || verdict == "" || !o.fallback {
			return found, verdict, err
		}
		fmt.Fprintf(w, "%s: %s; once more in full\n", m.Name, firstLine(verdict))
		return h.tryMutant(ctx, m, seeds)
	})
}

// tryQuick runs the quick check of m. It returns how m was found, and the reason that this does not count, or "".
func (h *hunter) tryQuick(ctx context.Context, m *table.Mutant, seeds int) (found finding, verdict string, err error) {
	if m.Test != "" || m.Scope != "" || m.Plan != "" {
		return h.tryMutant(ctx, m, seeds)
	}
	known := 0
	if m.Found != nil {
		known = m.Found.Seed
	}
	seedsLeft := max(seeds-known, 1) // The known seed is run even if fewer seeds are asked for.
	args := append([]string{m.Profile, strconv.Itoa(known), strconv.Itoa(seedsLeft)}, m.Properties...)
	found.name = m.Name
	verdict, err = h.withDefect(m, func() (string, error) {
		if err := h.buildFor(ctx, m, seekFolder); err != nil {
			return err.Error(), nil
		}
		report, code, err := h.runCheck(ctx, m, h.current.binary, args)
		if err != nil {
			return err.Error(), nil
		}
		if seed := firstFailing(report); seed >= 0 {
			found.how = table.Found{By: "seed", Seed: seed}
			found.otherSeed = seed > known
		}
		return missedReason(m, report, code, seedsLeft), nil
	})
	return found, verdict, err
}

// firstFailing returns the first seed that a report of seek names, or -1.
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
