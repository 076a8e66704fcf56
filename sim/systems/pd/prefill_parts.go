package pd

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// An engine's call may be too large for one put. Then it is given in parts, as package runtime does it: all of them at once,
// in order, and with nothing between them.

// putParts puts the batches of a whole job.
func (w *Cluster) putParts(n *world.Node, i int) {
	batches := w.Jobs[i].Batches
	first := w.put(n, i, 0, uint32(len(batches)-1), 0)
	for bi := 1; bi < len(batches); bi++ {
		batches[bi-1].full = false
		w.put(n, i, bi, 0, first)
	}
}

// letGoParts gives back the parts of a call that will not be: one of them got no pages.
func (w *Cluster) letGoParts(n *world.Node, j *Job) {
	for bi := range j.Batches {
		if b := &j.Batches[bi]; b.full {
			b.full = false
			w.Release(n, b.Reserve)
		}
	}
}

// observed takes the word of a machine that a put was taken: it counts for its request until it has ended.
func (w *Cluster) observed(_ *world.Node, e *effects.Observe) {
	if e.Fact != effects.FactPutEnded {
		return
	}
	if c := &w.Commands[e.ID-1]; c.Want == plan.WantPut {
		c.Joined = true
		w.Jobs[c.Job].Batches[c.Batch].Joined = true
	}
}
