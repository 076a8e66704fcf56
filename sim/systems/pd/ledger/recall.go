package ledger

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkRecallSame   = oracle.NewCheck("S24", "recalls asked again")
	checkRecallPrefix = oracle.NewCheck("S2", "prefixes that are leased")
	checkRecallDone   = oracle.NewCheck("S19", "dones of recalls")
	checkRecallNamed  = oracle.NewCheck("L2", "dones of recalls by name")
)

// recallOracle judges recalls: until when the peer may read, and that no lease is left over.
type recallOracle struct {
	judge
	leases prefixes
	word   protocol.CacheQueryRequest  `snap:"scratch"` // the request that is being sent
	ask    protocol.CacheQueryRequest  `snap:"scratch"` // the request that has arrived; the reply is sent in the same step
	reply  protocol.CacheQueryResponse `snap:"scratch"`
}

func (*recallOracle) listen(l *oracle.Listen[recallOracle]) {
	oracle.On(l, func(o *recallOracle, _ *oracle.Call, e world.Received) {
		if effects.Channel(e.Delivery.B) == effects.ChannelQuery {
			o.heard(e.Node, e.Delivery.Body)
		}
	})
	oracle.On(l, func(o *recallOracle, _ *oracle.Call, e world.Sending) { o.saying(e.Node, e.Conn, e.Body) })
	oracle.On(l, func(o *recallOracle, _ *oracle.Call, e world.Replying) {
		o.answering(e.Node, &o.w.Requests[e.Request-1], e.Body)
	})
}

// reset empties the records for a run.
func (or *recallOracle) reset(int) { or.leases.begin() }

// saying checks a recall request when the request is sent: if the request carries a done notice, all reads under the
// lease must have ended.
func (or *recallOracle) saying(n *world.Node, c *world.Conn, body []byte) {
	m := &or.word
	if c.Channel != effects.ChannelQuery || m.Decode(body, &pd.WireLimits) != nil {
		return
	}
	for _, id := range m.Ext.Done {
		or.judged(checkRecallDone, checkRecallNamed)
		if !pd.IsNameOf(n, effects.Incarnation(m.Ext.Incarnation)) {
			or.fail(checkRecallNamed, "node %d says that grant %d has ended in a name that is not its own",
				n.It(), n.ItsGrant(effects.GrantID(id)))
			return
		}
		if t := or.lastWord(n, m.Ext.To, id); t != nil {
			or.fail(checkRecallDone, "node %d says that grant %d has ended while transfer %d may still read",
				n.It(), t.Remote.Node.ItsGrant(t.Grant), oracle.Transfer(t.ID))
			return
		}
	}
}

// heard handles the reader's done notice for a lease at the owner.
func (or *recallOracle) heard(n *world.Node, body []byte) {
	m := &or.ask
	if m.Decode(body, &pd.WireLimits) != nil {
		return
	}
	for _, id := range m.Ext.Done {
		g := n.Grants[effects.GrantID(id)]
		if g != nil && g.Read && protocol.UUID(g.Peer) == m.Ext.Incarnation &&
			pd.Believes(n, g.Peer, effects.Incarnation(m.Ext.To)) {
			or.all().offers.ended(n, g)
		}
	}
}

// answering checks a reply when the reply is sent: the pages hold the first of the requested chunks, under the only
// lease of the operation.
func (or *recallOracle) answering(n *world.Node, r *world.Request, body []byte) {
	q, m := &or.ask, &or.reply
	if r.Channel != effects.ChannelQuery || m.Decode(body, &pd.WireLimits) != nil || m.Ext.Grant == 0 {
		return
	}
	or.judged(checkRecallSame, checkRecallPrefix)
	or.leases.answered(&or.judge, n, &prefixTold{
		asking: asking{n.ID, n.Life, effects.Incarnation(q.Ext.Incarnation), q.Ext.Operation}, keys: q.Keys,
		id: effects.GrantID(m.Ext.Grant), lease: effects.Duration(m.Ext.LeaseNS), indexes: m.CachedIndexes,
	}, func(format string, args ...any) { or.fail(checkRecallSame, format, args...) },
		func(format string, args ...any) { or.fail(checkRecallPrefix, format, args...) })
}
