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
	checkRecallRetry    = oracle.NewCheck("S24", "retried recalls")
	checkRecallPrefix   = oracle.NewCheck("S2", "prefixes that are leased")
	checkRecallDone     = oracle.NewCheck("S19", "done notices of recalls after all reads")
	checkRecallDoneName = oracle.NewCheck("L2", "done notices of recalls by name")
)

// recallOracle judges recalls: until when the peer may read, and that no lease is left over.
type recallOracle struct {
	oracleBase
	leases    prefixLeases
	sentQuery protocol.CacheQueryRequest  `snap:"scratch"` // the request that is being sent
	query     protocol.CacheQueryRequest  `snap:"scratch"` // the request that has arrived; the reply is sent in the same step
	reply     protocol.CacheQueryResponse `snap:"scratch"`
}

func (*recallOracle) subscribe(l *oracle.Subscriptions[recallOracle]) {
	oracle.On(l, func(o *recallOracle, _ *oracle.Call, e world.MessageReceived) {
		if effects.Channel(e.Delivery.B) == effects.ChannelQuery {
			o.handleDone(e.Node, e.Delivery.Body)
		}
	})
	oracle.On(l, func(o *recallOracle, _ *oracle.Call, e world.SendingRequest) { o.verifyDone(e.Node, e.Conn, e.Body) })
	oracle.On(l, func(o *recallOracle, _ *oracle.Call, e world.SendingReply) {
		o.verifyReply(e.Node, &o.w.Requests[e.Request-1], e.Body)
	})
}

// reset empties the records for a run.
func (or *recallOracle) reset(int) { or.leases.resetLeases() }

// verifyDone checks a recall request when the request is sent: if the request carries a done notice, all reads under
// the lease must have ended.
func (or *recallOracle) verifyDone(n *world.Node, c *world.Conn, body []byte) {
	m := &or.sentQuery
	if c.Channel != effects.ChannelQuery || m.Decode(body, &pd.WireLimits) != nil {
		return
	}
	for _, id := range m.Ext.Done {
		or.countJudged(checkRecallDone, checkRecallDoneName)
		if !pd.IsNameOf(n, effects.Incarnation(m.Ext.Incarnation)) {
			or.fail(checkRecallDoneName, "node %d reports the end of grant %d under a name that is not a name of the node",
				n.AsSubject(), n.GrantSubject(effects.GrantID(id)))
			return
		}
		if t := or.recordReadDone(n, m.Ext.To, id); t != nil {
			or.fail(checkRecallDone, "node %d reports the end of grant %d while transfer %d may still read",
				n.AsSubject(), t.Remote.Node.GrantSubject(t.Grant), oracle.Transfer(t.ID))
			return
		}
	}
}

// handleDone handles the reader's done notice for a lease at the owner.
func (or *recallOracle) handleDone(n *world.Node, body []byte) {
	m := &or.query
	if m.Decode(body, &pd.WireLimits) != nil {
		return
	}
	for _, id := range m.Ext.Done {
		g := n.Grants[effects.GrantID(id)]
		if g != nil && g.Read && protocol.UUID(g.Peer) == m.Ext.Incarnation &&
			pd.IsGenuine(n, g.Peer, effects.Incarnation(m.Ext.To)) {
			or.oracles().offers.recordEnded(n, g)
		}
	}
}

// verifyReply checks a reply when the reply is sent: the pages hold the first of the requested chunks, under the only
// lease of the operation.
func (or *recallOracle) verifyReply(n *world.Node, r *world.Request, body []byte) {
	q, m := &or.query, &or.reply
	if r.Channel != effects.ChannelQuery || m.Decode(body, &pd.WireLimits) != nil || m.Ext.Grant == 0 {
		return
	}
	or.countJudged(checkRecallRetry, checkRecallPrefix)
	or.leases.verifyReply(&or.oracleBase, n, &prefixReply{
		lookupKey: lookupKey{n.ID, n.Incarnation, effects.Incarnation(q.Ext.Incarnation), q.Ext.Operation}, keys: q.Keys,
		id: effects.GrantID(m.Ext.Grant), lease: effects.Duration(m.Ext.LeaseNS), indexes: m.CachedIndexes,
	}, func(format string, args ...any) { or.fail(checkRecallRetry, format, args...) },
		func(format string, args ...any) { or.fail(checkRecallPrefix, format, args...) })
}
