package protocol

import "math"

// Stamps are two readings of clocks, in nanoseconds, from which each end learns how the other end's clock relates to
// its own:
//
//  1. A reads a on its clock and sends it as ClockNS.
//  2. B receives it, reads c on its own clock, and sends ClockNS c with EchoNS a.
//  3. A receives its own reading a back, so B read c after A read a. The pair is an anchor: an instant on B's clock has
//     an earliest place on A's clock.
//
// An echo proves this in any message, however late it arrives. A stamp is meaningful only within the incarnation that
// made it, so it is never echoed to a later incarnation. The clocks are those by which grants are timed.
type Stamps struct {
	// ClockNS is the clock of the sending end as it wrote the message; not negative, 0 if it does not say.
	ClockNS int64 `wire:"kvf_clock_ns,omitzero"`
	// EchoNS is the newest ClockNS that the sending end has received from the other one; not negative, 0: none yet.
	EchoNS int64 `wire:"kvf_echo_ns,omitzero"`
}

// instant reads a clock reading or a time span that is not negative, in nanoseconds.
func (r *reader) instant() int64 { return int64(r.uint(math.MaxInt64)) }
