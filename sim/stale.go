package sim

import (
	"fmt"

	"github.com/kvferry/kvferry/sim/plan"
)

// StaleReasons returns the reasons why a kept plan no longer exercises the defect for which the plan is kept, given the
// result of a run of the plan: strikes and faults that found no occasion, and marks that the run no longer reaches,
// perhaps only because the marks were renamed. Nil means that the plan is still good. A property that holds again is no
// reason, because the defect may have been fixed.
func StaleReasons(p *plan.Plan, r *Result) []string {
	lines := r.UnusedFaults
	reached := r.Coverage.Counts("mark")
	for _, m := range p.Reaches {
		if reached[m] == 0 {
			lines = append(lines, fmt.Sprintf("mark %s is no longer reached", m))
		}
	}
	return lines
}
