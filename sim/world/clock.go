package world

import "github.com/kvferry/kvferry/effects"

// Clocks of different nodes are unrelated: each starts at an arbitrary value, and each runs slightly fast or slow.
// There is no wall clock: machines never receive its time, so a jump of the wall clock cannot mislead them.

// PPM is the rate by which a clock runs faster than simulated time, in parts per million.
type PPM int64

// DriftMax is the largest rate by which seeds let a clock run fast or slow, in parts per million. Leases hold with any
// drift that the machines are configured for (M4); with this one, a lease of a second ends 60 ms early for its holder.
const DriftMax = 30_000

// scale returns d times p, without overflow for any simulated instant.
func (p PPM) scale(d int64) int64 { return d/1_000_000*int64(p) + d%1_000_000*int64(p)/1_000_000 }

// ReadClock returns the present reading of n's clock.
func (w *World) ReadClock(n *Node) effects.Time { return n.ReadingAt(w.Now) }

// A Clock is the clock of a node. A second of this clock differs slightly from a second of simulated time.
type Clock struct {
	Offset int64 // reading at simulated time 0, in nanoseconds
	Drift  PPM
}

// ReadingAt returns the reading of the clock at an instant of simulated time.
func (c *Clock) ReadingAt(at int64) effects.Time {
	return effects.Time(at + c.Drift.scale(at) + c.Offset)
}

// InstantOf returns the first instant at which the clock shows t.
func (c *Clock) InstantOf(t effects.Time) int64 {
	d := int64(t) - c.Offset
	if c.Drift == 0 {
		return d
	}
	// Undo the rate in two parts, so that nothing overflows. The divisions lose a few nanoseconds, which the loops
	// correct.
	rate := 1_000_000 + int64(c.Drift)
	at := d/rate*1_000_000 + d%rate*1_000_000/rate
	for c.ReadingAt(at-1) >= t {
		at--
	}
	for c.ReadingAt(at) < t {
		at++
	}
	return at
}

// LongestSpan returns the longest simulated time that a span by this clock can last.
func (c *Clock) LongestSpan(d effects.Duration) effects.Duration {
	if c.Drift >= 0 {
		return d
	}
	return d + d*effects.Duration(-c.Drift)/effects.Duration(1_000_000+c.Drift) + 1
}

// DriftApart returns the largest rate by which two clocks of a plan run apart, in parts per million and rounded up.
func DriftApart(ppm []int) uint32 {
	slow, fast := int64(0), int64(0)
	for _, d := range ppm {
		slow, fast = min(slow, int64(d)), max(fast, int64(d))
	}
	return uint32((fast-slow)*1_000_000/(1_000_000+slow) + 1)
}
