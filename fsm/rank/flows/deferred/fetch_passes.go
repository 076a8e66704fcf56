package deferred

import (
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/table"
)

// Waiting fetches are looked at in passes, in order. A pass takes as many steps as its work requires. A pass that
// is requested while another is in progress follows that one. So no event restarts a pass, and each fetch is
// looked at after the event for which it may have waited.

// RequestPass requests a pass over the waiting fetches.
func (x *Fetches) RequestPass() {
	if x.passNext != 0 {
		x.anotherPass = true
		return
	}
	x.passNext = x.waiting.Front()
}

// NextInPass returns the fetch to look at next, or zero if there is none or no work is left in this step.
func (x *Fetches) NextInPass(v *env.Env) table.Handle {
	if x.passNext == 0 && x.anotherPass {
		x.anotherPass, x.passNext = false, x.waiting.Front()
	}
	if x.passNext == 0 {
		return 0
	}
	if !v.Work.HasBudget() {
		v.Out.Mark(Marks.StartsCut)
		return 0
	}
	v.Work.SpendLook()
	h := x.passNext
	x.passNext = x.rows.Next(h)
	return h
}

// stopWaiting removes a fetch from the waiting ones. A pass that was to continue with this fetch continues with the
// next.
func (x *Fetches) stopWaiting(h table.Handle) {
	if x.passNext == h {
		x.passNext = x.rows.Next(h)
	}
	x.rows.Unlink(&x.waiting, h)
}
