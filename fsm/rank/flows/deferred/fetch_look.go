package deferred

import (
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/table"
)

// Fetches that wait are looked at in passes, in their order. A pass is cut into as many steps as its work takes; one
// that is asked for while another is under way follows it. So nothing that comes begins a pass anew, and each fetch is
// looked at after what it may have waited for.

// LookAgain asks for a pass over the fetches that wait.
func (x *Fetches) LookAgain() {
	if x.at != 0 {
		x.again = true
		return
	}
	x.at = x.waiting.Front()
}

// NextLook is the fetch that is to be looked at next; zero if there is none, or no work left in this step.
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

// unwait takes a fetch out of those that wait. A pass that was to go on with it goes on with the next.
func (x *Fetches) unwait(h table.Handle) {
	if x.at == h {
		x.at = x.rows.Next(h)
	}
	x.rows.Unlink(&x.waiting, h)
}
