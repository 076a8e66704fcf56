// Package draw has every choice that a plan of the simulator leaves open: a stateless function of what names it, a
// seed, a label, a subject and an ordinal. A caller may rely on this: equal names give equal draws, on any machine and
// in any order, and one more draw somewhere leaves all others as they were.
package draw

import (
	"math/bits"
	"time"

	"github.com/kvferry/kvferry/effects"
)

// A Label names what a draw is for. Labels are numbered by hand: their numbers are
// part of what a seed means.
type Label uint64

const (
	Plan Label = iota + 1
	Identity
	Clock
	Open
	Request
	Reply
	Post
	Loss
	Notice
	Tick
	Import
	Submit
	Ask
	Copy
	Store
	Ack
	Revoke
	PlaneFault
	Crash
	Pause
	Cut
	Noise
	Workload
	Engine
	Mailbox
	DeviceCopy
	PlainReader
	Communicator
	Encoder

	Labels // how many there are
)

// The first of the labels of faults, which follow in order: their strikes, and when
// the scheduled ones start.
const (
	Strike   Label = 64
	Schedule Label = 64 + 256
)

// Mix is one round of multiply-and-fold: both halves of a 128-bit product matter.
func Mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a^0x9E3779B97F4A7C15, b^0xD1B54A32D192ED03)
	return hi ^ lo
}

// An Of is a value that depends on nothing but what names it.
type Of uint64

// Nothing is drawn in worlds of these seeds but identities: every draw is still, the least
// of its range, or restless, the greatest. There somebody else chooses: whoever explores a small world.
const (
	StillSeed    uint64 = 1<<64 - 1
	RestlessSeed uint64 = 1<<64 - 2
	Still        Of     = 0
	restless     Of     = 1<<64 - 1
)

// Hash draws what a seed means by a label, a subject and an ordinal.
func Hash(seed uint64, l Label, about, ordinal uint64) Of {
	if seed >= RestlessSeed && l != Identity {
		if seed == StillSeed {
			return Still
		}
		return restless
	}
	return Of(Mix(Mix(Mix(seed, uint64(l)), about), ordinal+0x632BE59BD9B4E019))
}

// Again gives a further independent value of the same name.
func (d Of) Again() Of {
	if d == Still || d == restless {
		return d
	}
	return Of(Mix(uint64(d), 0xA0761D6478BD642F))
}

// Below returns a value in [0, n).
func (d Of) Below(n uint64) uint64 {
	if n == 0 || d == Still {
		return 0
	}
	if d == restless {
		return n - 1
	}
	hi, _ := bits.Mul64(Mix(uint64(d), 0xE7037ED1A0B428DB), n)
	return hi
}

// Between returns a value in [lo, hi].
func (d Of) Between(lo, hi int) int { return lo + int(d.Below(uint64(hi-lo+1))) }

// Permille is true n times in a thousand.
func (d Of) Permille(n int) bool { return int(d.Below(1000)) < n }

// Rarely is Permille for what happens by itself: where nothing is drawn, it does not.
func (d Of) Rarely(n int) bool { return d != Still && d != restless && d.Permille(n) }

// Span returns a duration in [lo, hi].
func (d Of) Span(lo, hi effects.Duration) effects.Duration {
	return lo + effects.Duration(d.Below(uint64(hi-lo)+1))
}

// Time is span for the durations of plans, rounded so that a person can read them.
func (d Of) Time(lo, hi time.Duration) time.Duration {
	unit := 10 * time.Microsecond
	if hi < 10*time.Millisecond {
		unit = time.Microsecond
	}
	return max(lo, (lo + time.Duration(d.Below(uint64(hi-lo)+1))).Truncate(unit))
}

// Heavy returns a duration around mean with a tail of up to thirty times it: most
// delays are ordinary, and the interesting ones are not.
func (d Of) Heavy(mean effects.Duration) effects.Duration {
	if mean <= 0 {
		return 0
	}
	switch v := d.Below(100); {
	case v < 80:
		return d.Again().Span(mean/4, mean)
	case v < 97:
		return d.Again().Span(mean, 4*mean)
	default:
		return d.Again().Span(4*mean, 30*mean)
	}
}
