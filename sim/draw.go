package sim

import (
	"math/bits"
	"time"

	"github.com/kvferry/kvferry/effects"
)

// A label names what a draw is for. Labels are numbered by hand: their numbers are
// part of what a seed means.
type label uint64

const (
	drawPlan label = iota + 1
	drawIdentity
	drawClock
	drawOpen
	drawRequest
	drawReply
	drawPost
	drawLoss
	drawNotice
	drawTick
	drawImport
	drawSubmit
	drawAsk
	drawCopy
	drawStore
	drawAck
	drawRevoke
	drawPlaneFault
	drawCrash
	drawPause
	drawCut
	drawNoise
	drawWorkload
	drawEngine
	drawMailbox
	drawOffload
	drawPlainReader
	drawCommunicator
	drawEncoder

	labels // how many there are
)

// The first of the labels of faults, which follow in order: their strikes, and when
// the scheduled ones start.
const (
	drawStrike   label = 64
	drawSchedule label = 64 + 256
)

// mix is one round of multiply-and-fold: both halves of a 128-bit product matter.
func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a^0x9E3779B97F4A7C15, b^0xD1B54A32D192ED03)
	return hi ^ lo
}

// A draw is a value that depends on nothing but what names it.
type draw uint64

// Nothing is drawn in worlds of these seeds but identities: every draw is still, the least
// of its range, or restless, the greatest. There somebody else chooses, see [Explore].
const (
	stillSeed    uint64 = 1<<64 - 1
	restlessSeed uint64 = 1<<64 - 2
	still        draw   = 0
	restless     draw   = 1<<64 - 1
)

func hash(seed uint64, l label, about, ordinal uint64) draw {
	if seed >= restlessSeed && l != drawIdentity {
		if seed == stillSeed {
			return still
		}
		return restless
	}
	return draw(mix(mix(mix(seed, uint64(l)), about), ordinal+0x632BE59BD9B4E019))
}

// again gives a further independent value of the same name.
func (d draw) again() draw {
	if d == still || d == restless {
		return d
	}
	return draw(mix(uint64(d), 0xA0761D6478BD642F))
}

// below returns a value in [0, n).
func (d draw) below(n uint64) uint64 {
	if n == 0 || d == still {
		return 0
	}
	if d == restless {
		return n - 1
	}
	hi, _ := bits.Mul64(mix(uint64(d), 0xE7037ED1A0B428DB), n)
	return hi
}

// between returns a value in [lo, hi].
func (d draw) between(lo, hi int) int { return lo + int(d.below(uint64(hi-lo+1))) }

// permille is true n times in a thousand.
func (d draw) permille(n int) bool { return int(d.below(1000)) < n }

// span returns a duration in [lo, hi].
func (d draw) span(lo, hi effects.Duration) effects.Duration {
	return lo + effects.Duration(d.below(uint64(hi-lo)+1))
}

// time is span for the durations of plans, rounded so that a person can read them.
func (d draw) time(lo, hi time.Duration) time.Duration {
	unit := 10 * time.Microsecond
	if hi < 10*time.Millisecond {
		unit = time.Microsecond
	}
	return max(lo, (lo + time.Duration(d.below(uint64(hi-lo)+1))).Truncate(unit))
}

// heavy returns a duration around mean with a tail of up to thirty times it: most
// delays are ordinary, and the interesting ones are not.
func (d draw) heavy(mean effects.Duration) effects.Duration {
	if mean <= 0 {
		return 0
	}
	switch v := d.below(100); {
	case v < 80:
		return d.again().span(mean/4, mean)
	case v < 97:
		return d.again().span(mean, 4*mean)
	default:
		return d.again().span(4*mean, 30*mean)
	}
}
