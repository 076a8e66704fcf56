package protocol

import "math"

// Clocks are two stamps, in nanoseconds, that messages carry so that each end learns how the
// other's clock stands to its own:
//
//  1. A reads a on its clock and sends it as ClockNS.
//  2. B sees it, reads c on its own clock, and sends ClockNS c with EchoNS a.
//  3. A sees a come back, so B read c after A read a. That pair is an anchor: an instant that B names by
//     its clock has an earliest place on A's clock.
//
// An echo proves this in any message and however late it comes. A stamp means something only within
// the incarnation that made it, and the clocks are those on which grants are counted.
type Clocks struct {
	ClockNS int64 // kvf_clock_ns: the speaker's clock as it wrote the message; not negative, 0 is unsaid
	EchoNS  int64 // kvf_echo_ns: the newest ClockNS of the other end that the speaker has seen; not negative, 0 is none
}

// Fields of Clocks, counted from the first one.
const (
	clocksClock = iota
	clocksEcho
)

var clocksNames = []string{"kvf_clock_ns", "kvf_echo_ns"}

func (c *Clocks) decode(r *reader, field int) {
	switch field {
	case clocksClock:
		c.ClockNS = r.instant()
	case clocksEcho:
		c.EchoNS = r.instant()
	}
}

// count says how many fields append will write.
func (c *Clocks) count() int { return ones(c.ClockNS != 0, c.EchoNS != 0) }

func (c *Clocks) append(b []byte) []byte {
	b = appendNonZero(b, "kvf_clock_ns", uint64(c.ClockNS))
	return appendNonZero(b, "kvf_echo_ns", uint64(c.EchoNS))
}

// appendBoth is append where the presence of the stamps is the extension.
func (c *Clocks) appendBoth(b []byte) []byte {
	b = appendUint(appendStr(b, "kvf_clock_ns"), uint64(c.ClockNS))
	return appendUint(appendStr(b, "kvf_echo_ns"), uint64(c.EchoNS))
}

// instant takes a reading of a clock, in nanoseconds.
func (r *reader) instant() int64 { return int64(r.uint(math.MaxInt64)) }
