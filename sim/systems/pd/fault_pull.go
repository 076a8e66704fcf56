package pd

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// forge tells a sender, as a stranger, that one of its offers has ended: without our fields, as
// the name that everybody may know of its reader, to the one of the sender, or of another grant.
// What its reader has not said must change nothing (S8). Offers to plain readers are left alone:
// whoever can reach the port and knows their names can end them.
func (w *Cluster) forge(n *world.Node, d draw.Of) {
	var offers []*world.Grant
	for _, g := range n.Pool.Lent {
		if w.Standing(n, g) && !g.Bearer() && g.Loan.Pull != (protocol.PullID{}) {
			offers = append(offers, g)
		}
	}
	if len(offers) == 0 {
		return
	}
	w.Result.Fault(plan.FaultForged)
	g := offers[d.Below(uint64(len(offers)))]
	m := protocol.PullDoneSignal{PullID: g.Loan.Pull, HasExt: true, Ext: protocol.PullDoneExt{
		Version: protoVersion, Incarnation: protocol.UUID(g.Peer), To: protocol.UUID(w.known(n, g.Peer)),
		Grant: uint64(g.ID)}}
	switch d.Again().Below(4) {
	case 0:
		m.HasExt, m.Ext = false, protocol.PullDoneExt{}
	case 1:
		m.Ext.Incarnation = protocol.UUID(w.shown(g.Peer))
	case 2:
		m.Ext.To = protocol.UUID(Its(n).Incarnation)
	case 3:
		m.Ext.Grant++
	}
	w.Stranger(n, effects.ChannelDone, m.Append(nil))
}
