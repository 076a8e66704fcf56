package world

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/plan"
)

// drawSettledEarly draws whether an initiator is notified that its pages are settled while the owner of the target
// still reads these pages. Planes that map a peer's memory do so: the driver first withdraws the transfer's permit,
// which a copy reads before and after each page, so that what is read from then on cannot be delivered (M3).
func (t *Transfer) drawSettledEarly(w *World) bool {
	if w.Conditions.Leased || t.Read || !t.CopyStarted || !w.IsStruck(plan.FaultSettledEarly, t.Name, 0) {
		return false
	}
	t.SettledEarly = true
	return true
}

// isUnchanged reports whether a page is still the page that may be read, and whether its owner still permits the read.
func (t *Transfer) isUnchanged(i int) bool {
	for _, p := range t.Sources(i) {
		if t.Local.Pages[p.Index].Generation != p.Generation {
			return false
		}
	}
	return !t.SettledEarly
}

// drawStall returns how much longer a copy, or the next submission, takes because its thread does not run.
func (t *Transfer) drawStall(w *World, step int) effects.Duration {
	if d, yes := w.DrawStrike(plan.FaultCopyStalled, t.Name, uint64(step)); yes {
		return d.Duration(0, 3*effects.Second)
	}
	return 0
}
