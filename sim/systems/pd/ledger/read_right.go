package ledger

import (
	"cmp"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// The right to read an offer ends before the lease does: by a guard time, and by the possible drift of the clocks since
// the reader compared the clocks. Some rules apply to a reader only within this right. The oracles apply these rules
// only while the stamps of received offers prove the right. The reader's machine may know a later end.

// clockAnchor is the best comparison of clocks in the offers that a reader received from a sender: the sender read the
// clock value theirs after the reader read ours.
type clockAnchor struct {
	peer         effects.Incarnation
	ours, theirs int64
}

// earliestInstant returns an instant on the reader's clock that was not after the given instant on the sender's clock.
func (a *clockAnchor) earliestInstant(instant int64, ppm uint32) int64 {
	span := instant - a.theirs
	return a.ours + span - max(span, -span)*int64(ppm)/1_000_000 - 1
}

// recordClocks records the comparison of clocks in an offer. Stamps that lie in the future come from a corrupted
// message.
func (or *deferredOfferOracle) recordClocks(n, owner *world.Node, m *protocol.PullReadyNotif) {
	state, peer, s := or.stateOf(n), effects.Incarnation(m.Ext.Incarnation), m.Ext.Stamps
	if s.EchoNS == 0 || s.EchoNS > int64(or.w.ReadClock(n)) || s.ClockNS > int64(or.w.ReadClock(owner)) {
		return
	}
	next := clockAnchor{peer: peer, ours: s.EchoNS, theirs: s.ClockNS}
	i := slices.IndexFunc(state.anchors, func(a clockAnchor) bool { return a.peer == peer })
	if i < 0 {
		state.anchors = append(state.anchors, next)
	} else if state.anchors[i].earliestInstant(next.theirs, pd.InfoOf(n).Cfg.DriftPPM) <= next.ours {
		state.anchors[i] = next
	}
}

// removeAnchors drops all comparisons of clocks, because a sender may have lost the row in the reader's table
// meanwhile, so that clocks are compared anew.
func (or *deferredOfferOracle) removeAnchors(n *world.Node) {
	or.stateOf(n).anchors = or.stateOf(n).anchors[:0]
}

// readRightOf returns until when the reader may certainly read an offer, by the reader's clock. The result is 0 if the
// end is unknown.
func (or *deferredOfferOracle) readRightOf(n *world.Node, m *protocol.PullReadyNotif) effects.Time {
	peer := effects.Incarnation(m.Ext.Incarnation)
	i := slices.IndexFunc(or.stateOf(n).anchors, func(a clockAnchor) bool { return a.peer == peer })
	if i < 0 {
		return 0
	}
	since := or.stateOf(n).anchors[i].earliestInstant(int64(m.Ext.GrantedNS), pd.InfoOf(n).Cfg.DriftPPM)
	return rightEnd(n, effects.Time(since), m.Ext.LeaseNS)
}

// rightEnd returns the end of a right that counts from an instant on the reader's clock. The reader accepts no lease
// longer than the configured maximum.
func rightEnd(n *world.Node, since effects.Time, leaseNS uint64) effects.Time {
	cfg := &pd.InfoOf(n).Cfg
	lease := min(leaseNS, uint64(cmp.Or(cfg.ReadLeaseMax, effects.Duration(leaseNS))))
	return since.Add(effects.Duration(lease) - cfg.LeaseGuard - effects.Duration(lease)*effects.Duration(cfg.DriftPPM)/1_000_000 - 1)
}
