package deferred

import (
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/table"
)

// Waiting fetches are looked at in passes, in order. A pass takes as many steps as its work requires. A pass that
// is requested while another is in progress follows that one. So no event restarts a pass, and each fetch is
// looked at after the event for which it may have waited.

// LookAgain requests a pass over the waiting fetches.
func (x *Fetches) LookAgain() {
	if x.at != 0 {
		x.again = true
		return
	}
	x.at = x.waiting.Front()
}

// NextLook returns the fetch to look at next, or zero if there is none or no work is left in this step.
func (x *Fetches) NextLook(v *env.Env) table.Handle {
	if x.at == 0 && x.again {
		x.again, x.at = false, x.waiting.Front()
	}
	if x.at == 0 {
		return 0
	}
	if !v.Work.Left() {
		v.Out.Mark(Marks.StartsCut)
		return 0
	}
	v.Work.Look()
	h := x.at
	x.at = x.rows.Next(h)
	return h
}

// unwait removes a fetch from the waiting ones. A pass that was to continue with this fetch continues with the
// next.
func (x *Fetches) unwait(h table.Handle) {
	if x.at == h {
		x.at = x.rows.Next(h)
	}
	x.rows.Unlink(&x.waiting, h)
}
