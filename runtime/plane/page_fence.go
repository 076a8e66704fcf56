package plane

import "sync/atomic"

// A pageFence decides under which write grant a page may be stored into (M3). The fence is an atomic word: the low 52
// bits hold the turn in which the page may be stored into, the high 12 bits count the stores in progress (the
// holders). The word lies in private memory, which no peer can reach.
//
//	value         meaning
//	{0, 0}        closed: nobody stores
//	{t, 0}        open for the grant with turn t
//	{t, n}        n holders are storing in turn t
//	{0, n}        closed, but n holders have not left yet
//
// A pool numbers its write grants upwards, and this number is the grant's turn. No two grants have the same turn, and
// each grant binds a page to one generation, so equal turns mean the same grant and the same generation. At a million
// grants a second the turns last for 142 years. The grant's id could not serve as the turn, because ids are wider than
// 52 bits and have no order.
//
// There are few holders: at most one push at a time stores into a page, and each pair of a push is stored once.
type pageFence struct{ v atomic.Uint64 }

// A turn is the number of a write grant of a pool, counted from 1. Zero means no grant.
type turn uint64

const (
	turnBits   = 52
	turnMask   = 1<<turnBits - 1
	oneHolder  = 1 << turnBits
	maxHolders = 1<<(64-turnBits) - 1
)

// open lets holders of turn t enter. The call fails unless the page is closed and has no holder left.
func (w *pageFence) open(t turn) bool { return w.v.CompareAndSwap(0, uint64(t)) }

// hold enters the page for a bounded store in turn t. The call fails if the page is not open for t.
func (w *pageFence) hold(t turn) bool {
	for {
		v := w.v.Load()
		if v&turnMask != uint64(t) || v>>turnBits == maxHolders {
			return false
		}
		if w.v.CompareAndSwap(v, v+oneHolder) {
			return true
		}
	}
}

// release leaves the page and reports whether the caller was the last holder of a closed page. The atomic addition
// orders the holder's stores before the addition itself, so that the stores are visible to every thread that sees the
// holder gone.
func (w *pageFence) release() (last bool) {
	// Adding the complement subtracts one holder.
	return w.v.Add(^uint64(oneHolder-1)) == 0
}

// close ends the turn and returns the number of holders that are still inside.
func (w *pageFence) close() (holders uint64) {
	for {
		v := w.v.Load()
		if w.v.CompareAndSwap(v, v&^uint64(turnMask)) {
			return v >> turnBits
		}
	}
}

// land closes the page if the turn is t and no holder is inside. The result reports whether the page was closed.
func (w *pageFence) land(t turn) bool { return w.v.CompareAndSwap(uint64(t), 0) }
