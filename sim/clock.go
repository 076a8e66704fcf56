package sim

import "github.com/kvferry/kvferry/effects"

// Clocks of different nodes have nothing in common: each starts anywhere, and each runs
// a little fast or slow. There is no wall clock at all: machines are given none, so none
// can mislead them by jumping.

// ppm is how much faster than simulated time a clock runs, in parts per million.
type ppm int64

// driftMax is how far clocks may be off for a lease to hold: the holder stops a guard
// early, and if his clock is as slow as the grantor's is fast, the guard covers
//
//	(lease - guard) / (1 - drift) <= lease / (1 + drift)
//
// which is so up to guard / (2 lease - guard).
func driftMax(lease, guard effects.Duration) ppm {
	return ppm(1_000_000 * int64(guard) / int64(2*lease-guard))
}

// scale is d times p, without overflow for any simulated instant.
func (p ppm) of(d int64) int64 { return d/1_000_000*int64(p) + d%1_000_000*int64(p)/1_000_000 }

// clock is what n's clock shows now.
func (w *world) clock(n *node) effects.Time { return n.shows(w.now) }

func (n *node) shows(at int64) effects.Time { return effects.Time(at + n.drift.of(at) + n.offset) }

// when is the first instant at which n's clock shows t.
func (n *node) when(t effects.Time) int64 {
	d := int64(t) - n.offset
	if n.drift == 0 {
		return d
	}
	// Undo the rate, in two parts so that nothing overflows; what the divisions of either
	// way cut off is a few nanoseconds.
	rate := 1_000_000 + int64(n.drift)
	at := d/rate*1_000_000 + d%rate*1_000_000/rate
	for n.shows(at-1) >= t {
		at--
	}
	for n.shows(at) < t {
		at++
	}
	return at
}

// slowest is how long a span by n's clock can be in simulated time.
func (n *node) slowest(d effects.Duration) effects.Duration {
	if n.drift >= 0 {
		return d
	}
	return d + d*effects.Duration(-n.drift)/effects.Duration(1_000_000+n.drift) + 1
}

// driftApart is how far any two clocks of a plan run apart, rounded up.
func driftApart(ppm []int) uint32 {
	slow, fast := int64(0), int64(0)
	for _, d := range ppm {
		slow, fast = min(slow, int64(d)), max(fast, int64(d))
	}
	return uint32((fast-slow)*1_000_000/(1_000_000+slow) + 1)
}
