package ledger

import (
	"cmp"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// The right to read an offer ends before its lease does: by a guard, and by what clocks may have run apart since its
// reader compared them. What is demanded of a reader while its right stands is demanded for as long as the stamps of
// the offers that it heard prove, and its machine may know more.

// anchored is the best comparison of clocks in the offers that a reader heard of a sender: the sender read theirs
// after the reader read ours.
type anchored struct {
	peer         effects.Incarnation
	ours, theirs int64
}

// earliest is an instant on the reader's clock that was not after an instant of the sender's.
func (a *anchored) earliest(instant int64, ppm uint32) int64 {
	span := instant - a.theirs
	return a.ours + span - max(span, -span)*int64(ppm)/1_000_000 - 1
}

// compares notes the comparison of clocks in an offer. Stamps of the future are those of a message that was corrupted.
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

// handsShaken forgets what offers proved: a sender may have lost its place meanwhile, and be compared with anew.
func (or *keptOracle) handsShaken(n *world.Node) { or.at(n).anchors = or.at(n).anchors[:0] }

// rightOf is until when the reader of an offer may read it for sure, by its own clock; 0 if that is not known.
func (or *keptOracle) rightOf(n *world.Node, m *protocol.PullReadyNotif) effects.Time {
	who := effects.Incarnation(m.Ext.Incarnation)
	i := slices.IndexFunc(or.at(n).anchors, func(a anchored) bool { return a.peer == who })
	if i < 0 {
		return 0
	}
	since := or.at(n).anchors[i].earliest(int64(m.Ext.GrantedNS), pd.Its(n).Cfg.DriftPPM)
	return rightFrom(n, effects.Time(since), m.Ext.LeaseNS)
}

// rightFrom is the end of a right that counts from an instant of its reader's. The reader believes in no lease beyond
// the longest.
func rightFrom(n *world.Node, since effects.Time, leaseNS uint64) effects.Time {
	cfg := &pd.Its(n).Cfg
	lease := min(leaseNS, uint64(cmp.Or(cfg.ReadLeaseMax, effects.Duration(leaseNS))))
	return since.Add(effects.Duration(lease) - cfg.LeaseGuard)
}
