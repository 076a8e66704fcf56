// Package draw makes every choice that a plan of the simulator leaves open. A draw is a stateless function of its name:
// a seed, a label, a subject and an ordinal.
//
// A caller may rely on the following: equal names give equal draws, on any machine and in any order; and an additional
// draw leaves all other draws unchanged.
//
// For example, the delay of the third message on a connection is drawn as
//
//	draw.Hash(seed, draw.Request, uint64(conn), 3).HeavyTail(mean)
//
// If a change of the plan adds a message on another connection, this delay stays the same, because neither the other
// connection nor the number of earlier draws is part of its name. The shrinker depends on this: a plan from which a job
// was removed is apart from that the same run.
package draw

import (
	"math/bits"
	"time"

	"github.com/kvferry/kvferry/effects"
)

// A Label names the purpose of a draw. The numbers of labels are fixed, because they are part of what a seed means.
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
	Verify

	LabelCount // the number of labels
)

// FirstStrike is the first of the labels for strikes of faults, and FirstSchedule is the first of the labels for the
// start of scheduled faults. The labels follow in the order of the faults' numbers.
const (
	FirstStrike   Label = 64
	FirstSchedule Label = 64 + 256
)

// Mix returns one round of multiply-and-fold: both halves of the 128-bit product contribute.
func Mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a^0x9E3779B97F4A7C15, b^0xD1B54A32D192ED03)
	return hi ^ lo
}

// A Value is the value of a draw, which depends only on the name of the draw.
type Value uint64

// In worlds with these seeds only identities are drawn. All remaining draws have the lowest value of their range, or
// the highest value. The explorer of small worlds uses these seeds, because the explorer makes the choices itself.
const (
	LowestSeed  uint64 = 1<<64 - 1
	HighestSeed uint64 = 1<<64 - 2
	Lowest      Value  = 0
	highest     Value  = 1<<64 - 1
)

// IsFixed reports whether only identities are drawn in worlds with the seed.
func IsFixed(seed uint64) bool { return seed >= HighestSeed }

// Hash returns the draw of a seed for a label, a subject and an ordinal.
func Hash(seed uint64, l Label, subject, ordinal uint64) Value {
	if IsFixed(seed) && l != Identity {
		if seed == LowestSeed {
			return Lowest
		}
		return highest
	}
	return Value(Mix(Mix(Mix(seed, uint64(l)), subject), ordinal+0x632BE59BD9B4E019))
}

// Rehash returns an additional, independent value for the same name.
func (d Value) Rehash() Value {
	if d == Lowest || d == highest {
		return d
	}
	return Value(Mix(uint64(d), 0xA0761D6478BD642F))
}

// Below returns a value in [0, n).
func (d Value) Below(n uint64) uint64 {
	if n == 0 || d == Lowest {
		return 0
	}
	if d == highest {
		return n - 1
	}
	hi, _ := bits.Mul64(Mix(uint64(d), 0xE7037ED1A0B428DB), n)
	return hi
}

// Between returns a value in [lo, hi].
func (d Value) Between(lo, hi int) int { return lo + int(d.Below(uint64(hi-lo+1))) }

// ChancePermille returns true with a probability of n in a thousand.
func (d Value) ChancePermille(n int) bool { return int(d.Below(1000)) < n }

// ChanceIfRandom is like ChancePermille, for events that occur by themselves. The result is always false in worlds in
// which nothing is drawn.
func (d Value) ChanceIfRandom(n int) bool { return d != Lowest && d != highest && d.ChancePermille(n) }

// Duration returns a duration in [lo, hi].
func (d Value) Duration(lo, hi effects.Duration) effects.Duration {
	return lo + effects.Duration(d.Below(uint64(hi-lo)+1))
}

// RoundedDuration is like Duration, for the durations of plans. The result is rounded so that a person can read the
// plan.
func (d Value) RoundedDuration(lo, hi time.Duration) time.Duration {
	unit := 10 * time.Microsecond
	if hi < 10*time.Millisecond {
		unit = time.Microsecond
	}
	return max(lo, (lo + time.Duration(d.Below(uint64(hi-lo)+1))).Truncate(unit))
}

// HeavyTail returns a duration around mean, with a tail of up to thirty times the mean: most delays are ordinary, and
// the rare long ones are of interest.
func (d Value) HeavyTail(mean effects.Duration) effects.Duration {
	if mean <= 0 {
		return 0
	}
	switch v := d.Below(100); {
	case v < 80:
		return d.Rehash().Duration(mean/4, mean)
	case v < 97:
		return d.Rehash().Duration(mean, 4*mean)
	default:
		return d.Rehash().Duration(4*mean, 30*mean)
	}
}
