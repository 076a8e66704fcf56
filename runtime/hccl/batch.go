package hccl

import (
	"iter"

	"github.com/kvferry/kvferry/effects"
)

// A piece is one descriptor of a batch: Bytes bytes between an address of ours and one of the peer's.
type piece struct {
	local, remote uintptr
	bytes         uint64
}

// A limit says how much one batch takes.
type limit struct {
	pieces int    // the library's, 256
	bytes  uint64 // ours: a batch that was begun is waited for, and so must be short
}

// batches cuts a transfer into what the library takes in one call each. Each descriptor has a fixed price of up to 23
// µs (docs/ascend.md), so pages that are neighbours at both ends become one. Every byte is in exactly one piece, and
// the order is the pages'.
func batches(pairs []effects.Pair, gather *effects.Gather, local func(effects.Page) uintptr,
	remote func(effects.RemotePage) uintptr, most limit) [][]piece {
	var list [][]piece
	var batch []piece
	var bytes uint64
	for p := range pieces(pairs, gather, local, remote) {
		if p.bytes == 0 {
			continue // The library refuses an empty descriptor.
		}
		full := len(batch) > 0 && bytes+p.bytes > most.bytes
		if last := len(batch) - 1; !full && last >= 0 && batch[last].meets(p) {
			batch[last].bytes += p.bytes
			bytes += p.bytes
			continue
		}
		if full || len(batch) == most.pieces {
			list = append(list, batch)
			batch, bytes = nil, 0
		}
		batch = append(batch, p)
		bytes += p.bytes
	}
	if len(batch) > 0 {
		list = append(list, batch)
	}
	return list
}

// pieces are those of all pages.
func pieces(pairs []effects.Pair, gather *effects.Gather, local func(effects.Page) uintptr,
	remote func(effects.RemotePage) uintptr) iter.Seq[piece] {
	return func(yield func(piece) bool) {
		for i := range pairs {
			for x := range gather.Pieces(i, &pairs[i]) {
				here, there := local(x.Page)+uintptr(x.From), remote(pairs[i].Remote)+uintptr(x.At)
				if !yield(piece{here, there, uint64(x.Bytes)}) {
					return
				}
			}
		}
	}
}

// meets reports whether q goes on where p ends, here and there. Only whole pages do.
func (p piece) meets(q piece) bool {
	return p.local+uintptr(p.bytes) == q.local && p.remote+uintptr(p.bytes) == q.remote
}
