package sim

import (
	"fmt"

	"github.com/kvferry/kvferry/sim/plan"
)

// Stale says in what a kept plan no longer tells its story, after it was run: strikes
// and faults that found no occasion, marks that it does not reach any more, if only
// because they were renamed. Nil is good. That its property holds is no staleness: the
// defect may have been mended.
func Stale(p *plan.Plan, r *Result) []string {
	lines := r.Unused
	taken := r.Coverage.Counts("mark")
	for _, m := range p.Reaches {
		if taken[m] == 0 {
			lines = append(lines, fmt.Sprintf("mark %s is not reached any more", m))
		}
	}
	return lines
}
