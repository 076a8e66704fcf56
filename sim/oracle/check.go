package oracle

import "github.com/kvferry/kvferry/sim/coverage"

// A Check is a fact that an oracle judges repeatedly, for example "the page that a grant names is free". The coverage
// counts, for each check, how often the check judged and how often the check was void (the occasion came, but there was
// not enough information to judge). These counts reveal a check that no longer runs because a hook was lost, and a
// check that has become void in every run.
type Check uint16

// CheckCountMax is the maximum number of checks that can be registered.
const CheckCountMax = 768

// checkTable holds, by check number, the property that the check belongs to and what the check judges. The table is
// filled by the initialization of package variables, before any run starts.
var checkTable []struct{ property, subject string }

// NewCheck registers a check. Property is the property of docs/safety.md that is broken when the check fails, and of
// describes what the check judges. NewCheck may only be called to initialize package variables; no check may be added
// later. NewCheck panics if there are more than [CheckCountMax] checks.
func NewCheck(property, subject string) Check {
	if len(checkTable) == CheckCountMax {
		panic("BUG: more checks than the coverage has room for")
	}
	checkTable = append(checkTable, struct{ property, subject string }{property, subject})
	return Check(len(checkTable) - 1)
}

// Checks returns all registered checks, in the order of their registration.
func Checks() []Check {
	all := make([]Check, len(checkTable))
	for i := range all {
		all[i] = Check(i)
	}
	return all
}

// Property returns the property of docs/safety.md that is broken when the check fails.
func (c Check) Property() string { return checkTable[c].property }

// String returns the name of the check in the coverage.
func (c Check) String() string { return checkTable[c].property + " " + checkTable[c].subject }

// The coverage sections of the judgements of checks and of the occasions at which a check was void.
var (
	pointJudged = coverage.NewSection(CheckCountMax, func(i int) string { return checkName("judged ", i) })
	pointVoid   = coverage.NewSection(CheckCountMax, func(i int) string { return checkName("void ", i) })
)

// checkName returns the name of check i after the given word, and "" if there is no such check.
func checkName(word string, i int) string {
	if i < len(checkTable) {
		return word + Check(i).String()
	}
	return ""
}

// CountJudged counts in the coverage of a run that the check judged.
func (c Check) CountJudged(counts *coverage.Coverage) { counts.Hit(pointJudged + coverage.Point(c)) }

// CountVoid counts in the coverage of a run that an occasion for the check came, but that the check could not judge.
func (c Check) CountVoid(counts *coverage.Coverage) { counts.Hit(pointVoid + coverage.Point(c)) }
