package ledger

import (
	"cmp"
	"slices"

	"github.com/kvferry/kvferry/sim/world"
)

// endedInPart handles a step that ends fewer promises of a chunk than have expired, and reports whether the step did
// that. A step ends a bounded number of promises, the oldest first. The rest must end before the machine has no more
// work.
func (or *claimedOracle) endedInPart(n *world.Node, chunk uint32, count int) bool {
	my, now := or.at(n), or.w.Clock(n)
	all := 0
	var sure []int // rows
	for i := range my.rows {
		if r := &my.rows[i]; r.chunk == chunk && r.until <= now {
			if all++; !r.perhaps {
				sure = append(sure, i)
			}
		}
	}
	if count == 0 || all <= count || !or.exact(n) || n.Draining {
		return false
	}
	for i := range my.rows {
		if r := &my.rows[i]; r.chunk == chunk && r.until <= now {
			or.over(n, ended{chunk, r.request, now, true})
			r.perhaps, r.overdue = true, r.last <= now
		}
	}
	slices.SortStableFunc(sure, func(a, b int) int { return cmp.Compare(my.rows[a].until, my.rows[b].until) })
	sure = sure[:min(count, len(sure))]
	slices.Sort(sure)
	for _, i := range slices.Backward(sure) {
		my.rows = slices.Delete(my.rows, i, i+1)
	}
	my.touched = append(my.touched, chunk)
	return true
}

// overdue drops the promises that had to end by the time when the machine has no more work. If the machine still has
// claims for these promises, the comparison of claims that follows fails the run.
func (or *claimedOracle) overdue(n *world.Node) {
	if my := or.at(n); !n.Busy {
		my.rows = slices.DeleteFunc(my.rows, func(r claimed) bool { return r.overdue })
	}
}
