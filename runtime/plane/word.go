package plane

import "sync/atomic"

// A word is one page's fence: the turn in which it may be stored in the low 52 bits, the number of
// stores in progress in the high 12. It lies in private memory; no peer can reach it.
//
//	word          means
//	{0, 0}        closed: nobody stores
//	{t, 0}        open for the grant whose turn is t
//	{t, n}        n holders are storing in turn t
//	{0, n}        closed, but n holders have not left yet
//
// A pool numbers its grants to store upwards: that is a grant's turn, which no other ever has, and each binds a
// page to one generation, so equality of the turn is equality of the grant and of the generation too. At a million
// grants a second turns last for 142 years. The grant's id is no such number: it is wider, and has no order.
//
// One push at a time stores to a page, each of its pairs once, so holders are few.
type word struct{ v atomic.Uint64 }

// A turn is the how-many-th grant to store of a pool; zero is none.
type turn uint64

const (
	turnBits   = 52
	turnMask   = 1<<turnBits - 1
	oneHolder  = 1 << turnBits
	holdersMax = 1<<(64-turnBits) - 1
)

// open makes turn t the only one in which the page may be stored; it fails unless the page is closed and still.
func (w *word) open(t turn) bool { return w.v.CompareAndSwap(0, uint64(t)) }

// hold enters the page for one bounded store in turn t.
func (w *word) hold(t turn) bool {
	for {
		v := w.v.Load()
		if v&turnMask != uint64(t) || v>>turnBits == holdersMax {
			return false
		}
		if w.v.CompareAndSwap(v, v+oneHolder) {
			return true
		}
	}
}

// unhold leaves the page and reports whether it was the last to leave a closed one. The stores made in
// the hold are visible to whoever sees it gone: the addition releases them.
func (w *word) unhold() (last bool) {
	// Subtracting one holder, spelled as an addition.
	return w.v.Add(^uint64(oneHolder-1)) == 0
}

// close ends the turn and returns how many holders are still inside.
func (w *word) close() (holders uint64) {
	for {
		v := w.v.Load()
		if w.v.CompareAndSwap(v, v&^uint64(turnMask)) {
			return v >> turnBits
		}
	}
}

// land closes the page for good if nobody is inside and the turn is t.
func (w *word) land(t turn) bool { return w.v.CompareAndSwap(uint64(t), 0) }
