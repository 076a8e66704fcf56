package link

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
)

// anchor relates the clock of one incarnation of a peer to this node's clock: the peer read the clock value theirs
// after this node had read the clock value ours. For an instant on the peer's clock the anchor therefore yields an
// earliest possible time on this node's clock.
//
// Invariant: a lease that this node counts from that earliest time ends here before the lease ends at the peer (rule
// M4, docs/safety.md).
type anchor struct{ ours, theirs int64 }

// addStamps takes over the stamps of a message if they prove more than the present anchor does. The stamps of a link
// that was idle echo an old stamp of this node and prove little. The earlier proof stays valid although the clocks may
// have drifted since then. An anchor that places an instant that has already passed into the future is wrong and is
// replaced. Stamps that echo a time that is still in this node's future are ignored, because this node never sent them.
func (a *anchor) addStamps(now effects.Time, s protocol.Stamps, driftPPM uint32) {
	if s.EchoNS == 0 || s.ClockNS == 0 || s.EchoNS > int64(now) {
		return
	}
	next := anchor{ours: s.EchoNS, theirs: s.ClockNS}
	if before := a.earliestTime(next.theirs, driftPPM); *a == (anchor{}) || before > now || int64(before) <= next.ours {
		*a = next
	}
}

// earliestTime converts an instant on the peer's clock to this node's clock. The result is the latest time that is
// proven to be no later than the instant, if the clocks drift apart by at most driftPPM.
func (a anchor) earliestTime(instant int64, driftPPM uint32) effects.Time {
	span := instant - a.theirs
	if span < 0 {
		return effects.Time(a.ours + span - driftBound(-span, driftPPM))
	}
	return effects.Time(a.ours + span - driftBound(span, driftPPM))
}

// driftBound returns how far two clocks may drift apart during a span. The result is rounded up and does not overflow
// for any span.
func driftBound(span int64, ppm uint32) int64 {
	const million = 1_000_000
	return span/million*int64(ppm) + (span%million*int64(ppm)+million-1)/million
}
