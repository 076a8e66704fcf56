package allocqueue

import (
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// wants is a multiset of the keys of all waiting requests, by hash. A component that waits for a key can find out,
// without a walk, whether a waiting request may bring that key.
type wants struct {
	slab   table.Slab[want]
	byHash table.Index
}

// A want is one key and the number of waiting requests that have it.
type want struct {
	hash uint64
	n    int
}

// wantBytes is the memory that is kept for each key of a waiting request, besides the message: the hash, and at most
// two places in wants.
const wantBytes = 8 + 2*32

func (w *wants) emptied(bytes int) wants {
	return wants{slab: w.slab.Emptied(int(kernel.Clamped(uint64(bytes / wantBytes)))), byHash: w.byHash.Emptied()}
}

// find returns the want of a hash, or zero and nil.
func (w *wants) find(hash uint64) (table.Handle, *want) {
	h := w.byHash.Seek(hash).Handle()
	return h, w.slab.Get(h)
}

// add counts the keys of a request that begins to wait.
func (w *wants) add(hashes []uint64) {
	for _, hash := range hashes {
		if _, x := w.find(hash); x != nil {
			x.n++
			continue
		}
		h, x := w.slab.Add()
		*x = want{hash: hash, n: 1}
		w.byHash.Add(hash, h)
	}
}

// drop removes the keys of a request that waits no more.
func (w *wants) drop(hashes []uint64) {
	for _, hash := range hashes {
		h, x := w.find(hash)
		if x.n--; x.n == 0 {
			w.byHash.Remove(hash, h)
			w.slab.Remove(h)
		}
	}
}
