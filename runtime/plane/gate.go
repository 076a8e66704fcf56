package plane

import "sync/atomic"

// A gate is the fence of one grant to read, for reads that this process makes for a peer: how many are in progress, and
// whether more may begin. It serves one grant only, so it needs not say which. The zero value is open.
type gate struct{ v atomic.Uint64 }

// shut is the bit of a gate that is closed; below it are the holders, of which no process can have as many.
const shut = 1 << 63

// hold enters for one bounded read.
func (g *gate) hold() bool {
	for {
		v := g.v.Load()
		if v&shut != 0 {
			return false
		}
		if g.v.CompareAndSwap(v, v+1) {
			return true
		}
	}
}

// unhold leaves and reports whether it was the last to leave a closed gate.
func (g *gate) unhold() (last bool) { return g.v.Add(^uint64(0)) == shut }

// close lets nobody in any more and returns how many are still inside.
func (g *gate) close() (holders uint64) { return g.v.Or(shut) &^ shut }
