package ledger

import (
	"cmp"
	"slices"

	"github.com/kvferry/kvferry/sim/world"
)

// endPartially handles a step that ends fewer promises of a chunk than have expired, and reports whether the step did
// that. A step ends a bounded number of promises, the oldest first. The rest must end before the machine has no more
// work.
func (or *promiseOracle) endPartially(n *world.Node, chunk uint32, count int) bool {
	state, now := or.stateOf(n), or.w.ReadClock(n)
	expiredCount := 0
	var certainRows []int // rows
	for i := range state.promises {
		if r := &state.promises[i]; r.chunk == chunk && r.until <= now {
			if expiredCount++; !r.uncertain {
				certainRows = append(certainRows, i)
			}
		}
	}
	if count == 0 || expiredCount <= count || !or.seesAllPromises(n) || n.Draining {
		return false
	}
	for i := range state.promises {
		if r := &state.promises[i]; r.chunk == chunk && r.until <= now {
			or.recordExpired(n, expiredPromise{chunk, r.request, now, true})
			r.uncertain, r.mustEnd = true, r.latestUntil <= now
		}
	}
	slices.SortStableFunc(certainRows, func(a, b int) int { return cmp.Compare(state.promises[a].until, state.promises[b].until) })
	certainRows = certainRows[:min(count, len(certainRows))]
	slices.Sort(certainRows)
	for _, i := range slices.Backward(certainRows) {
		state.promises = slices.Delete(state.promises, i, i+1)
	}
	state.touched = append(state.touched, chunk)
	return true
}

// removeOverdue drops the promises that had to end by the time when the machine has no more work. If the machine still
// has claims for these promises, the comparison of claims that follows fails the run.
func (or *promiseOracle) removeOverdue(n *world.Node) {
	if state := or.stateOf(n); !n.Busy {
		state.promises = slices.DeleteFunc(state.promises, func(r chunkPromise) bool { return r.mustEnd })
	}
}
