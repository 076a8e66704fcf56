package plane

import "sync/atomic"

// A readFence admits the reads that this process makes for a peer under one read lease (M3). It is one atomic word
// that counts the reads in progress (the holders) and says whether more may begin. Each lease has its own fence, so
// the word need not name the lease. The zero value is open.
type readFence struct{ v atomic.Uint64 }

// closedBit is set in a fence that is closed. The bits below it count the holders, of which no process can have that
// many.
const closedBit = 1 << 63

// hold enters for one bounded read. It fails if the fence is closed.
func (g *readFence) hold() bool {
	for {
		v := g.v.Load()
		if v&closedBit != 0 {
			return false
		}
		if g.v.CompareAndSwap(v, v+1) {
			return true
		}
	}
}

// release leaves and reports whether it was the last holder of a closed fence.
func (g *readFence) release() (last bool) { return g.v.Add(^uint64(0)) == closedBit }

// close lets no more holders in and returns the number that are still inside.
func (g *readFence) close() (holders uint64) { return g.v.Or(closedBit) &^ closedBit }
