package allocqueue

import (
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// wants are the keys of all that waits, by their hashes, and how many ask for each: so that whoever waits for a key
// learns without a walk whether anybody may bring it.
type wants struct {
	slab   table.Slab[want]
	byHash table.Index
}

// A want is one key.
type want struct {
	hash uint64
	n    int
}

// wantBytes are kept of each key of what waits, beside the message: its hash, and at most two places in wants.
const wantBytes = 8 + 2*32

func (w *wants) emptied(bytes int) wants {
	return wants{slab: w.slab.Emptied(int(kernel.Clamped(uint64(bytes / wantBytes)))), byHash: w.byHash.Emptied()}
}

func (w *wants) find(hash uint64) (table.Handle, *want) {
	h := w.byHash.Seek(hash).Handle()
	return h, w.slab.Get(h)
}

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

func (w *wants) drop(hashes []uint64) {
	for _, hash := range hashes {
		h, x := w.find(hash)
		if x.n--; x.n == 0 {
			w.byHash.Remove(hash, h)
			w.slab.Remove(h)
		}
	}
}
