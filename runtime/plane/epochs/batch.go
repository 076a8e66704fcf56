package epochs

import (
	"iter"

	"github.com/kvferry/kvferry/effects"
)

// A Piece is one descriptor of a batch: Bytes bytes between an address of ours and one of the peer's.
type Piece struct {
	Local, Remote uintptr
	Bytes         uint64
}

// A Limit says how much one batch takes.
type Limit struct {
	Pieces int    // the library's
	Bytes  uint64 // ours: a batch that was begun is waited for, and so must be short
}

// Batches cuts a transfer into what a library takes in one call each. Each descriptor has a fixed price, over HCCL up
// to 23 µs (docs/ascend.md), so pages that are neighbours at both ends become one. Every byte is in exactly one piece,
// and the order is the pages'.
func Batches(pairs []effects.Pair, gather *effects.Gather, local func(effects.Page) uintptr,
	remote func(effects.RemotePage) uintptr, most Limit) [][]Piece {
	var list [][]Piece
	var batch []Piece
	var bytes uint64
	for p := range pieces(pairs, gather, local, remote) {
		if p.Bytes == 0 {
			continue // The library refuses an empty descriptor.
		}
		full := len(batch) > 0 && bytes+p.Bytes > most.Bytes
		if last := len(batch) - 1; !full && last >= 0 && batch[last].meets(p) {
			batch[last].Bytes += p.Bytes
			bytes += p.Bytes
			continue
		}
		if full || len(batch) == most.Pieces {
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

// pieces are those of all pages.
func pieces(pairs []effects.Pair, gather *effects.Gather, local func(effects.Page) uintptr,
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

// meets reports whether q goes on where p ends, here and there. Only whole pages do.
func (p Piece) meets(q Piece) bool {
	return p.Local+uintptr(p.Bytes) == q.Local && p.Remote+uintptr(p.Bytes) == q.Remote
}
