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

// anchored is the best comparison of clocks in the offers that a reader received from a sender: the sender read the
// clock value theirs after the reader read ours.
type anchored struct {
	peer         effects.Incarnation
	ours, theirs int64
}

// earliest returns an instant on the reader's clock that was not after the given instant on the sender's clock.
func (a *anchored) earliest(instant int64, ppm uint32) int64 {
	span := instant - a.theirs
	return a.ours + span - max(span, -span)*int64(ppm)/1_000_000 - 1
}

// compares records the comparison of clocks in an offer. Stamps that lie in the future come from a corrupted message.
func (or *keptOracle) compares(n, owner *world.Node, m *protocol.PullReadyNotif) {
	my, who, s := or.at(n), effects.Incarnation(m.Ext.Incarnation), m.Ext.Stamps
	if s.EchoNS == 0 || s.EchoNS > int64(or.w.Clock(n)) || s.ClockNS > int64(or.w.Clock(owner)) {
		return
	}
	next := anchored{peer: who, ours: s.EchoNS, theirs: s.ClockNS}
	i := slices.IndexFunc(my.anchors, func(a anchored) bool { return a.peer == who })
	if i < 0 {
		my.anchors = append(my.anchors, next)
	} else if my.anchors[i].earliest(next.theirs, pd.Its(n).Cfg.DriftPPM) <= next.ours {
		my.anchors[i] = next
	}
}

// handsShaken drops all comparisons of clocks, because a sender may have lost the row in the reader's table meanwhile,
// so that clocks are compared anew.
func (or *keptOracle) handsShaken(n *world.Node) { or.at(n).anchors = or.at(n).anchors[:0] }

// rightOf returns until when the reader may certainly read an offer, by the reader's clock. The result is 0 if the end
// is unknown.
func (or *keptOracle) rightOf(n *world.Node, m *protocol.PullReadyNotif) effects.Time {
	who := effects.Incarnation(m.Ext.Incarnation)
	i := slices.IndexFunc(or.at(n).anchors, func(a anchored) bool { return a.peer == who })
	if i < 0 {
		return 0
	}
	since := or.at(n).anchors[i].earliest(int64(m.Ext.GrantedNS), pd.Its(n).Cfg.DriftPPM)
	return rightFrom(n, effects.Time(since), m.Ext.LeaseNS)
}

// rightFrom returns the end of a right that counts from an instant on the reader's clock. The reader accepts no lease
// longer than the configured maximum.
func rightFrom(n *world.Node, since effects.Time, leaseNS uint64) effects.Time {
	cfg := &pd.Its(n).Cfg
	lease := min(leaseNS, uint64(cmp.Or(cfg.ReadLeaseMax, effects.Duration(leaseNS))))
	return since.Add(effects.Duration(lease) - cfg.LeaseGuard)
}
