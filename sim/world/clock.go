package world

import "github.com/kvferry/kvferry/effects"

// Clocks of different nodes have nothing in common: each starts anywhere, and each runs
// a little fast or slow. There is no wall clock at all: machines are given none, so none
// can mislead them by jumping.

// PPM is how much faster than simulated time a clock runs, in parts per million.
type PPM int64

// DriftMax is how far clocks may be off for a lease to hold: the holder stops a guard early, and if his clock is as
// slow as the grantor's is fast, the guard covers
//
//	(lease - guard) / (1 - drift) <= lease / (1 + drift)
//
// which is so up to guard / (2 lease - guard).
func DriftMax(lease, guard effects.Duration) PPM {
	return PPM(1_000_000 * int64(guard) / int64(2*lease-guard))
}

// scale is d times p, without overflow for any simulated instant.
func (p PPM) of(d int64) int64 { return d/1_000_000*int64(p) + d%1_000_000*int64(p)/1_000_000 }

// Clock is what n's clock shows now.
func (w *World) Clock(n *Node) effects.Time { return n.Shows(w.Now) }

// A Clock is a node's. Its second is not quite the world's.
type Clock struct {
	Offset int64 // at the start
	Drift  PPM
}

// Shows is what it shows at an instant.
func (c *Clock) Shows(at int64) effects.Time { return effects.Time(at + c.Drift.of(at) + c.Offset) }

// When is the first instant at which it shows t.
func (c *Clock) When(t effects.Time) int64 {
	d := int64(t) - c.Offset
	if c.Drift == 0 {
		return d
	}
	// Undo the rate, in two parts so that nothing overflows; what the divisions of either
	// way cut off is a few nanoseconds.
	rate := 1_000_000 + int64(c.Drift)
	at := d/rate*1_000_000 + d%rate*1_000_000/rate
	for c.Shows(at-1) >= t {
		at--
	}
	for c.Shows(at) < t {
		at++
	}
	return at
}

// Slowest is how long a span by it can be in simulated time.
func (c *Clock) Slowest(d effects.Duration) effects.Duration {
	if c.Drift >= 0 {
		return d
	}
	return d + d*effects.Duration(-c.Drift)/effects.Duration(1_000_000+c.Drift) + 1
}

// DriftApart is how far any two clocks of a plan run apart, rounded up.
func DriftApart(ppm []int) uint32 {
	slow, fast := int64(0), int64(0)
	for _, d := range ppm {
		slow, fast = min(slow, int64(d)), max(fast, int64(d))
	}
	return uint32((fast-slow)*1_000_000/(1_000_000+slow) + 1)
}
