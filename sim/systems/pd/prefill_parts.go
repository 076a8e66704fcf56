package pd

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// An engine's call may be too large for one put. Then it is given in parts, as package runtime does it: all of them at once,
// in order, and with nothing between them that would be taken.

// putParts puts the batches of a whole job.
func (w *Cluster) putParts(n *world.Node, i int) {
	batches := w.Jobs[i].Batches
	first := w.put(n, i, 0, uint32(len(batches)-1), 0)
	w.maybeBetween(n, first)
	for bi := 1; bi < len(batches); bi++ {
		batches[bi-1].full = false
		w.put(n, i, bi, 0, first)
	}
}

// mayShare draws whether all parts of a call lie in pages of one reserve, as where a user of package runtime made the
// call. The pool must have so many.
func (w *Cluster) mayShare(j *Job) {
	j.shared = j.Whole && len(j.Batches) > 1 && len(j.Keys) <= int(w.Source.Topology.SenderPages) &&
		draw.Hash(w.Seed, draw.Engine, uint64(j.request), 19).Permille(500)
}

// reserving is what a batch's reserve is for: itself, or all of them.
func (j *Job) reserving(b int) Batch {
	if j.shared {
		return Batch{From: 0, To: len(j.Keys)}
	}
	return j.Batches[b]
}

// PutOf is the newest put of a page that a Reserve gave; 0 if there is none.
func (w *Cluster) PutOf(reserve *Command, page effects.Page) effects.Ticket {
	j, b := &w.Jobs[reserve.Job], reserve.Batch
	if j.shared {
		at := slices.IndexFunc(reserve.Pages, func(p effects.Page) bool { return p.Index == page.Index })
		b = slices.IndexFunc(j.Batches, func(b Batch) bool { return b.From <= at && at < b.To })
	}
	if b < 0 || b >= len(j.Batches) {
		return 0
	}
	return j.Batches[b].Put
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
