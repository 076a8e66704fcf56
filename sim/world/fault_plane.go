package world

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/plan"
)

// drawSettledEarly draws whether an initiator is notified that its pages are settled while the owner of the target
// still reads these pages. Planes that map a peer's memory do so: the driver first withdraws the transfer's permit,
// which a copy reads before and after each page, so that what is read from then on cannot be delivered (M3).
func (t *Transfer) settledEarly(w *World) bool {
	if w.Setting.Leased || t.Read || !t.Asked || !w.Struck(plan.FaultEarly, t.Name, 0) {
		return false
	}
	t.Early = true
	return true
}

// unchanged reports whether a page is still the page that may be read, and whether its owner still permits the read.
func (t *Transfer) unchanged(i int) bool {
	for _, p := range t.Sources(i) {
		if t.Local.Pages[p.Index].Generation != p.Generation {
			return false
		}
	}
	return !t.Early
}

// stalled returns how much longer a copy, or the next submission, takes because its thread does not run.
func (t *Transfer) stalled(w *World, step int) effects.Duration {
	if d, yes := w.Strikes(plan.FaultStall, t.Name, uint64(step)); yes {
		return d.Span(0, 3*effects.Second)
	}
	return 0
}
