package plane

import "sync/atomic"

// A readFence admits the reads that this process makes for a peer under a read lease (M3). The fence is an atomic word
// that counts the reads in progress (the holders) and says whether more reads may begin. Each lease has a fence, so
// the word need not name the lease. The zero value is open.
type readFence struct{ v atomic.Uint64 }

// closedBit is set in a fence that is closed. The lower bits count the holders; no process can have 2^63 holders.
const closedBit = 1 << 63

// hold enters for a bounded read, and fails if the fence is closed.
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

// release leaves and reports whether the caller was the last holder of a closed fence.
func (g *readFence) release() (last bool) { return g.v.Add(^uint64(0)) == closedBit }

// close lets no more holders enter, and returns the number of holders that are still inside.
func (g *readFence) close() (holders uint64) { return g.v.Or(closedBit) &^ closedBit }
