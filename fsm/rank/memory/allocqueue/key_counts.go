package allocqueue

import (
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// keyCounts is a multiset of the keys of all waiting requests, by hash. A component that waits for a key can find out,
// without a walk, whether a waiting request may bring that key.
type keyCounts struct {
	rows   table.Slab[keyCount]
	byHash table.Index
}

// A keyCount is one key and the number of waiting requests that have it.
type keyCount struct {
	hash  uint64
	count int
}

// keyCountBytes is the memory that is kept for each key of a waiting request, besides the message: the hash, and at
// most two places in wants.
const keyCountBytes = 8 + 2*32

func (w *keyCounts) recycle(bytes int) keyCounts {
	return keyCounts{rows: w.rows.Recycle(int(kernel.ClampCount(uint64(bytes / keyCountBytes)))), byHash: w.byHash.Recycle()}
}

// findKey returns the want of a hash, or zero and nil.
func (w *keyCounts) findKey(hash uint64) (table.Handle, *keyCount) {
	h := w.byHash.Find(hash).Handle()
	return h, w.rows.Get(h)
}

// addKeys counts the keys of a request that begins to wait.
func (w *keyCounts) addKeys(hashes []uint64) {
	for _, hash := range hashes {
		if _, x := w.findKey(hash); x != nil {
			x.count++
			continue
		}
		h, x := w.rows.Add()
		*x = keyCount{hash: hash, count: 1}
		w.byHash.Add(hash, h)
	}
}

// dropKeys removes the keys of a request that waits no more.
func (w *keyCounts) dropKeys(hashes []uint64) {
	for _, hash := range hashes {
		h, x := w.findKey(hash)
		if x.count--; x.count == 0 {
			w.byHash.Remove(hash, h)
			w.rows.Remove(h)
		}
	}
}
