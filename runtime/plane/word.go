package plane

import (
	"sync/atomic"

	"github.com/kvferry/kvferry/effects"
)

// A word is one page's fence: the grant under which it may be stored in the low 48 bits, the number of
// stores in progress in the high 16. It lies in private memory; no peer can reach it.
//
//	word          means
//	{0, 0}        closed: nobody stores
//	{g, 0}        open for grant g
//	{g, n}        n holders are storing under g
//	{0, n}        closed, but n holders have not left yet
//
// Grant ids are never reused within an incarnation and each binds a page to one generation, so equality
// of the grant is equality of the generation too.
type word struct{ v atomic.Uint64 }

const (
	grantBits  = 48
	grantMask  = 1<<grantBits - 1
	oneHolder  = 1 << grantBits
	holdersMax = 1<<16 - 1
)

// open makes grant g the only one that may store; it fails unless the page is closed and still.
func (w *word) open(g effects.GrantID) bool { return w.v.CompareAndSwap(0, uint64(g)) }

// hold enters the page for one bounded store under g.
func (w *word) hold(g effects.GrantID) bool {
	for {
		v := w.v.Load()
		if v&grantMask != uint64(g) || v>>grantBits == holdersMax {
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

// close takes the grant away and returns how many holders are still inside.
func (w *word) close() (holders uint64) {
	for {
		v := w.v.Load()
		if w.v.CompareAndSwap(v, v&^uint64(grantMask)) {
			return v >> grantBits
		}
	}
}

// land closes the page for good if nobody is inside and g is its grant.
func (w *word) land(g effects.GrantID) bool { return w.v.CompareAndSwap(uint64(g), 0) }
