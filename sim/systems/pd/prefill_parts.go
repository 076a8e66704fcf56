package pd

import (
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/world"
)

// A call of an engine may be too large for a single put. The engine then gives the call in parts, as package runtime
// does: all parts at once and in order. No accepted command comes between the parts.

// putParts gives the puts of all batches of a Whole job.
func (j *Job) putParts(w *Cluster, n *world.Node) {
	batches := j.Batches
	first := j.put(w, n, 0, uint32(len(batches)-1), 0)
	w.Commands[first-1].maybeBetween(w, n, first)
	for bi := 1; bi < len(batches); bi++ {
		batches[bi-1].full = false
		j.put(w, n, bi, 0, first)
	}
}

// mayShare draws whether all parts of a call use the pages of a single reserve, as in a call through package runtime.
// The sender's pool must have enough pages for that.
func (j *Job) mayShare(w *Cluster) {
	j.shared = j.Whole && len(j.Batches) > 1 && len(j.Keys) <= int(w.Source.Topology.SenderPages) &&
		draw.Hash(w.Seed, draw.Engine, uint64(j.request), 19).Permille(500)
}

// reserving returns the range of keys that the reserve of batch b is for: the batch itself, or all keys if the
// reserve is shared.
func (j *Job) reserving(b int) Batch {
	if j.shared {
		return Batch{From: 0, To: len(j.Keys)}
	}
	return j.Batches[b]
}

// letGoParts gives back the pages of the parts of a call that will not be made, because another part received no
// pages.
func (j *Job) letGoParts(w *Cluster, n *world.Node) {
	for bi := range j.Batches {
		if b := &j.Batches[bi]; b.full {
			b.full = false
			w.Release(n, b.Reserve)
		}
	}
}
