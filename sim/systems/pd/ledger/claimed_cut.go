package ledger

import (
	"cmp"
	"slices"

	"github.com/kvferry/kvferry/sim/world"
)

// endedInPart notes that fewer promises of a chunk end than have lasted for their time, and says whether that is so: a
// step has work for so many, those that stand longest first. The others are to end before the machine has no more work.
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

// overdue ends, when the machine has no more work, what it was to end: compare says if it has not.
func (or *claimedOracle) overdue(n *world.Node) {
	if my := or.at(n); !n.Busy {
		my.rows = slices.DeleteFunc(my.rows, func(r claimed) bool { return r.overdue })
	}
}
