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
	first := j.putBatch(w, n, 0, uint32(len(batches)-1), 0)
	w.Commands[first-1].maybeConflictBetweenParts(w, n, first)
	for bi := 1; bi < len(batches); bi++ {
		batches[bi-1].filled = false
		j.putBatch(w, n, bi, 0, first)
	}
}

// maybeShareReserve draws whether all parts of a call use the pages of a single reserve, as in a call through package
// runtime. The sender's pool must have enough pages for that.
func (j *Job) maybeShareReserve(w *Cluster) {
	j.sharesReserve = j.Whole && len(j.Batches) > 1 && len(j.Keys) <= int(w.SourcePlan.Topology.SenderPages) &&
		draw.Hash(w.Seed, draw.Engine, uint64(j.requestNumber), 19).ChancePermille(500)
}

// reservedRange returns the range of keys that the reserve of batch b is for: the batch itself, or all keys if the
// reserve is shared.
func (j *Job) reservedRange(b int) Batch {
	if j.sharesReserve {
		return Batch{From: 0, To: len(j.Keys)}
	}
	return j.Batches[b]
}

// releaseParts gives back the pages of the parts of a call that will not be made, because another part received no
// pages.
func (j *Job) releaseParts(w *Cluster, n *world.Node) {
	for bi := range j.Batches {
		if b := &j.Batches[bi]; b.filled {
			b.filled = false
			w.ReleaseReserve(n, b.Reserve)
		}
	}
}
