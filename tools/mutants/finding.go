package main

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/kvferry/kvferry/tools/mutants/table"
)

// A finding is a mutant that was found, and the way in which it was found.
type finding struct {
	name      string
	how       table.Found
	otherSeed bool // the seed differs from the seed of the previous hunt
}

var (
	seedsFailed = regexp.MustCompile(`(?m)^(\d+) of (\d+) seeds failed; the first is seed (\d+):$`)
	choicesMade = regexp.MustCompile(`broken after (\d+) choices`)
)

// parseFinding reads the report of the check that found m.
func parseFinding(m *table.Mutant, report []byte) finding {
	f := finding{name: m.Name}
	switch {
	case m.Test != "":
		f.how.By = "test"
	case m.Plan != "":
		f.how.By = "plan"
	case m.Scope != "":
		if n := choicesMade.FindSubmatch(report); n != nil {
			f.how = table.Found{By: "choices", Choices: parseDigits(n[1])}
		}
	default:
		if n := seedsFailed.FindSubmatch(report); n != nil {
			f.how = table.Found{By: "seed", Failing: parseDigits(n[1]), Of: parseDigits(n[2]), Seed: parseDigits(n[3])}
		}
	}
	return f
}

func parseDigits(digits []byte) int {
	n, _ := strconv.Atoi(string(digits))
	return n
}

func (f finding) String() string {
	switch {
	case f.otherSeed:
		return fmt.Sprintf("seed %d, which differs from the recorded seed", f.how.Seed)
	case f.how.By == "seed" && f.how.Of == 0:
		return fmt.Sprintf("seed %d", f.how.Seed)
	}
	return f.how.String()
}

// fewSeeds is the number of failing seeds below which a defect may be missed after a small change of the simulator's
// draws.
const fewSeeds = 20

// summariseFindings describes how soon seeds found the defects, and lists the defects that fewer than fewSeeds seeds
// found.
func summariseFindings(finds []finding) string {
	var seeds []int
	var few []string
	for _, f := range finds {
		if f.how.By != "seed" {
			continue
		}
		seeds = append(seeds, f.how.Seed)
		if f.how.Failing < fewSeeds {
			few = append(few, f.name)
		}
	}
	if len(seeds) == 0 {
		return "no defect was found by seeds"
	}
	slices.Sort(seeds)
	text := fmt.Sprintf("seeds found %d; the median of the first failing seeds is %d, the highest %d",
		len(seeds), seeds[len(seeds)/2], seeds[len(seeds)-1])
	if len(few) > 0 {
		text += fmt.Sprintf("\nfewer than %d seeds found %s", fewSeeds, strings.Join(few, ", "))
	}
	return text
}

// missedReason returns the reason that a report does not count as finding m, or "".
func missedReason(m *table.Mutant, report []byte, code, seeds int) string {
	switch {
	case code == 0 && m.Test != "":
		return m.Test + " passes"
	case code == 0 && m.Scope != "":
		return fmt.Sprintf("%d states of scope %s found nothing", statesMax, m.Scope)
	case code == 0 && m.Plan != "":
		return stalePlan + ": it does not fail with the defect, and nothing else finds that"
	case code == 0:
		return fmt.Sprintf("%d seeds found nothing", seeds)
	case code != 1:
		return fmt.Sprintf("the simulator ended with exit code %d instead of a finding:\n%s", code, outputTail(report))
	}
	for _, p := range m.Properties {
		if !mentionsProperty(report, p) {
			return fmt.Sprintf("something was found, but not a breach of %s:\n%s", p, outputTail(report))
		}
	}
	return ""
}

// mentionsProperty reports whether a report contains the property as a separate word, so that S14 does not count as S1.
func mentionsProperty(report []byte, property string) bool {
	isWord := func(i int) bool {
		if i < 0 || i >= len(report) {
			return false
		}
		c := report[i]
		return c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
	}
	for from := 0; ; {
		i := bytes.Index(report[from:], []byte(property))
		if i < 0 {
			return false
		}
		i += from
		if !isWord(i-1) && !isWord(i+len(property)) {
			return true
		}
		from = i + 1
	}
}
