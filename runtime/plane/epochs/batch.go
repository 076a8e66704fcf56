package epochs

import (
	"iter"

	"github.com/kvferry/kvferry/effects"
)

// A Piece is a descriptor of a batch: a range of Bytes bytes at an address of ours and at an address of the peer.
type Piece struct {
	Local, Remote uintptr
	Bytes         uint64
}

// A BatchLimit bounds a batch.
type BatchLimit struct {
	Pieces int    // as many descriptors as the library takes
	Bytes  uint64 // our own limit: a batch that has begun must be waited for, and so must be short
}

// SplitIntoBatches cuts a transfer into batches, each of which is a single call of the library. Each descriptor has a
// fixed cost (over HCCL up to 23 µs, see docs/ascend.md), so pages that are adjacent at both ends become one
// descriptor. Every byte is in exactly one piece, in the order of the pages.
func SplitIntoBatches(pairs []effects.Pair, gather *effects.Gather, local func(effects.Page) uintptr,
	remote func(effects.RemotePage) uintptr, limit BatchLimit) [][]Piece {
	var list [][]Piece
	var batch []Piece
	var bytes uint64
	for p := range piecesOf(pairs, gather, local, remote) {
		if p.Bytes == 0 {
			continue // The library refuses an empty descriptor.
		}
		full := len(batch) > 0 && bytes+p.Bytes > limit.Bytes
		if last := len(batch) - 1; !full && last >= 0 && batch[last].adjoins(p) {
			batch[last].Bytes += p.Bytes
			bytes += p.Bytes
			continue
		}
		if full || len(batch) == limit.Pieces {
			list = append(list, batch)
			batch, bytes = nil, 0
		}
		batch = append(batch, p)
		bytes += p.Bytes
	}
	if len(batch) > 0 {
		list = append(list, batch)
	}
	return list
}

// piecesOf yields the pieces of all pages.
func piecesOf(pairs []effects.Pair, gather *effects.Gather, local func(effects.Page) uintptr,
	remote func(effects.RemotePage) uintptr) iter.Seq[Piece] {
	return func(yield func(Piece) bool) {
		for i := range pairs {
			for x := range gather.Pieces(i, &pairs[i]) {
				here, there := local(x.Page)+uintptr(x.From), remote(pairs[i].Remote)+uintptr(x.At)
				if !yield(Piece{here, there, uint64(x.Bytes)}) {
					return
				}
			}
		}
	}
}

// adjoins reports whether q begins where p ends, at both ends. Only whole pages adjoin.
func (p Piece) adjoins(q Piece) bool {
	return p.Local+uintptr(p.Bytes) == q.Local && p.Remote+uintptr(p.Bytes) == q.Remote
}
