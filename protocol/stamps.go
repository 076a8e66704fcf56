package protocol

import "math"

// Stamps are two readings of clocks, in nanoseconds, from which each peer learns how the clock of the other peer
// relates to its own clock:
//
//  1. A reads a on its clock and sends it as ClockNS.
//  2. B receives a, reads c on its own clock, and sends ClockNS c with EchoNS a.
//  3. A receives its own reading a back, so B read c after A read a. The pair is an anchor: an instant on B's clock has
//     an earliest place on A's clock.
//
// An echo proves this in any message, however late the message arrives. A stamp is meaningful only within the
// incarnation that read the clock, so a peer never echoes a stamp to a later incarnation. The clocks are those that
// time the grants.
type Stamps struct {
	// ClockNS is the sender's clock when it wrote the message; not negative, 0: not stated.
	ClockNS int64 `wire:"kvf_clock_ns,omitzero"`
	// EchoNS is the newest ClockNS that the sender has received from the receiver; not negative, 0: none yet.
	EchoNS int64 `wire:"kvf_echo_ns,omitzero"`
}

// readInstant reads a clock reading or a time span that is not negative, in nanoseconds.
func (r *reader) readInstant() int64 { return int64(r.readUint(math.MaxInt64)) }
