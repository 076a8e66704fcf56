package pd

import (
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/world"
)

// An engine's call may be too large for one put. Then it is given in parts, as package runtime does it: all of them at
// once, in order, and with nothing between them that would be taken.

// putParts puts the batches of a whole job.
func (j *Job) putParts(w *Cluster, n *world.Node) {
	batches := j.Batches
	first := j.put(w, n, 0, uint32(len(batches)-1), 0)
	w.Commands[first-1].maybeBetween(w, n, first)
	for bi := 1; bi < len(batches); bi++ {
		batches[bi-1].full = false
		j.put(w, n, bi, 0, first)
	}
}

// mayShare draws whether all parts of a call lie in pages of one reserve, as where a user of package runtime made the
// call. The pool must have so many.
func (j *Job) mayShare(w *Cluster) {
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

// letGoParts gives back the parts of a call that will not be: one of them got no pages.
func (j *Job) letGoParts(w *Cluster, n *world.Node) {
	for bi := range j.Batches {
		if b := &j.Batches[bi]; b.full {
			b.full = false
			w.Release(n, b.Reserve)
		}
	}
}
