package link

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
)

// An anchor ties the clock of one life of a peer to ours: the peer read `theirs` after we read `ours`.
// So an instant that the peer names has an earliest place on our clock, and a lease that is counted
// from there ends here before it ends there. (Rule M4, docs/safety.md.)
type anchor struct{ ours, theirs int64 }

// anchors are the first one of a life and the newest. The newest is tight if the peer saw a stamp of ours
// lately; the first one stays right however long the peer has not heard of us.
type anchors struct{ first, newest anchor }

// add takes the stamps of a message. An echo of what we never said is none.
func (a *anchors) add(now effects.Time, s protocol.Stamps) {
	if s.EchoNS == 0 || s.ClockNS == 0 || s.EchoNS > int64(now) {
		return
	}
	next := anchor{ours: s.EchoNS, theirs: s.ClockNS}
	if a.first == (anchor{}) {
		a.first = next
	}
	if next.ours >= a.newest.ours {
		a.newest = next
	}
}

// earliest is the latest of the places that the anchors prove to be no later than an instant on the
// peer's clock, where clocks run apart by at most drift.
func (a *anchors) earliest(instant int64, driftPPM uint32) (effects.Time, bool) {
	if a.first == (anchor{}) {
		return 0, false
	}
	return max(a.first.earliest(instant, driftPPM), a.newest.earliest(instant, driftPPM)), true
}

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
