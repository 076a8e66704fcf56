package world

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/plan"
)

// settledEarly says whether an initiator is told that its pages are its own again while
// the owner of the target still reads them, as planes do that map a peer's memory: the
// driver withdraws the transfer's permit first, which a copy looks at before and after,
// so what is read from then on can no longer be delivered.
func (t *Transfer) settledEarly(w *World) bool {
	if w.Setting.Leased || t.Read || !t.Asked || !w.Struck(plan.FaultEarly, t.Name, 0) {
		return false
	}
	t.Early = true
	return true
}

// unchanged says whether a page still is what was granted to be read, and its owner lets
// it be read.
func (t *Transfer) unchanged(i int) bool {
	for _, p := range t.Sources(i) {
		if t.Local.Pages[p.Index].Generation != p.Generation {
			return false
		}
	}
	return !t.Early
}

// stalled is how much longer a copy, or the next submission, takes when its thread does not get to run.
func (t *Transfer) stalled(w *World, step int) effects.Duration {
	if d, yes := w.Strikes(plan.FaultStall, t.Name, uint64(step)); yes {
		return d.Span(0, 3*effects.Second)
	}
	return 0
}
