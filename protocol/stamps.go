package protocol

import "math"

// Stamps are two readings of clocks, in nanoseconds, that messages carry so that each end learns how
// the other's clock stands to its own:
//
//  1. A reads a on its clock and sends it as ClockNS.
//  2. B sees it, reads c on its own clock, and sends ClockNS c with EchoNS a.
//  3. A sees a come back, so B read c after A read a. That pair is an anchor: an instant that B names by
//     its clock has an earliest place on A's clock.
//
// An echo proves this in any message and however late it comes. A stamp means something only within
// the incarnation that made it, so none is echoed to a later one. The clocks are those on which
// grants are counted.
type Stamps struct {
	ClockNS int64 // kvf_clock_ns: the speaker's clock as it wrote the message; not negative, 0 is unsaid
	EchoNS  int64 // kvf_echo_ns: the newest ClockNS of the other end that the speaker has seen; not negative, 0 is none
}

// Fields of Stamps, counted from the first one.
const (
	stampClock = iota
	stampEcho
)

var stampNames = []string{"kvf_clock_ns", "kvf_echo_ns"}

func (s *Stamps) decode(r *reader, field int) {
	switch field {
	case stampClock:
		s.ClockNS = r.instant()
	case stampEcho:
		s.EchoNS = r.instant()
	}
}

// count says how many fields append will write.
func (s *Stamps) count() int { return ones(s.ClockNS != 0, s.EchoNS != 0) }

func (s *Stamps) append(b []byte) []byte {
	b = appendNonZero(b, "kvf_clock_ns", uint64(s.ClockNS))
	return appendNonZero(b, "kvf_echo_ns", uint64(s.EchoNS))
}

// appendBoth is append where the presence of the stamps is the extension.
func (s *Stamps) appendBoth(b []byte) []byte {
	b = appendUint(appendStr(b, "kvf_clock_ns"), uint64(s.ClockNS))
	return appendUint(appendStr(b, "kvf_echo_ns"), uint64(s.EchoNS))
}

// instant takes a reading of a clock, in nanoseconds.
func (r *reader) instant() int64 { return int64(r.uint(math.MaxInt64)) }
