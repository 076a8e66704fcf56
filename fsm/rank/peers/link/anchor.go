package link

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
)

// An anchor ties the clock of one life of a peer to ours: the peer read `theirs` after we read `ours`.
// So an instant that the peer names has an earliest place on our clock, and a lease that is counted
// from there ends here before it ends there. (Rule M4, docs/safety.md.)
type anchor struct{ ours, theirs int64 }

// add takes the stamps of a message, if they prove more than what is known. Those of a link that was idle name a stamp
// of ours that is old, and prove little: what was proven before stays right, though clocks may have run apart since.
// What puts an instant into the future that has come already is wrong, and goes. An echo of what we never said is none.
func (a *anchor) add(now effects.Time, s protocol.Stamps, driftPPM uint32) {
	if s.EchoNS == 0 || s.ClockNS == 0 || s.EchoNS > int64(now) {
		return
	}
	next := anchor{ours: s.EchoNS, theirs: s.ClockNS}
	if before := a.earliest(next.theirs, driftPPM); *a == (anchor{}) || before > now || int64(before) <= next.ours {
		*a = next
	}
}

// earliest is the latest place on our clock that the anchor proves to be no later than an instant on the peer's, where
// clocks run apart by at most drift.
func (a anchor) earliest(instant int64, driftPPM uint32) effects.Time {
	span := instant - a.theirs
	if span < 0 {
		return effects.Time(a.ours + span - drifted(-span, driftPPM))
	}
	return effects.Time(a.ours + span - drifted(span, driftPPM))
}

// drifted is how far clocks may run apart over a span, rounded up, without overflow for any span.
func drifted(span int64, ppm uint32) int64 {
	const million = 1_000_000
	return span/million*int64(ppm) + (span%million*int64(ppm)+million-1)/million
}
