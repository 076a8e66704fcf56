package sim

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/plan"
)

// settledEarly says whether an initiator is told that its pages are its own again while
// the owner of the target still reads them, as planes do that map a peer's memory: the
// driver withdraws the transfer's permit first, which a copy looks at before and after,
// so what is read from then on can no longer be delivered.
func (w *world) settledEarly(t *transfer) bool {
	if w.plan.Leased || t.read || !t.asked || !w.struck(plan.FaultEarly, t.name, 0) {
		return false
	}
	t.early = true
	return true
}

// unchanged says whether a page still is what was granted to be read, and its owner lets
// it be read.
func (t *transfer) unchanged(i int) bool {
	p := t.pairs[i].Local
	return t.local.pages[p.Index].generation == p.Generation && !t.early
}

// stalled is how much longer a copy, or the next submission, takes when its thread does not get to run.
func (w *world) stalled(t *transfer, step int) effects.Duration {
	if d, yes := w.strikes(plan.FaultStall, t.name, uint64(step)); yes {
		return d.Span(0, 3*effects.Second)
	}
	return 0
}
