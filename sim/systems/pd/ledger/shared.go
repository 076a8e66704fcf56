package ledger

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// sharedOracle follows what is lent to peers.
type sharedOracle struct {
	judge
	done protocol.AscendBatchedLookupAndGetDoneMsg `snap:"scratch"`
}

// heard notes that an owner is told, by the reader itself, that a loan is finished with.
func (or *sharedOracle) heard(n *world.Node, body []byte) {
	m := &or.done
	if m.Decode(body, &pd.WireLimits) != nil || !m.HasExt {
		return
	}
	g := n.Grants[effects.GrantID(m.Ext.Grant)]
	if g != nil && g.Read && protocol.UUID(g.Peer) == m.Ext.Incarnation &&
		pd.Believes(n, g.Peer, effects.Incarnation(m.Ext.To)) {
		or.all().offers.ended(n, g)
	}
}
