package ledger

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkRenewID     = oracle.NewCheck("S12", "ids of renewed leases")
	checkRenewInTime = oracle.NewCheck("S24", "renewals in time")
	checkRenewBound  = oracle.NewCheck("L2", "renewals within bounds")
	checkRenewDrain  = oracle.NewCheck("L2", "renewals by a node that drains")
	checkRenewGiven  = oracle.NewCheck("L8", "renewals that are granted")
)

// renewOracle judges renewals of read leases.
type renewOracle struct {
	oracleBase
	perIncarnation[renewState]
	renewRequest protocol.RenewRequest `snap:"scratch"`
	dueLeases    []*world.Grant        `snap:"scratch"` // leases that the reply to the request must renew, in the same step
	dueRequest   uint64                `snap:"scratch"` // that request
}

func (*renewOracle) subscribe(l *oracle.Subscriptions[renewOracle]) {
	oracle.On(l, func(o *renewOracle, _ *oracle.Call, e messageReceived) { o.recordDue(e.node, e.request, e.body) })
	oracle.On(l, func(o *renewOracle, _ *oracle.Call, e world.OpeningConn) { o.recordTry(e.Node, e.Conn) })
	oracle.On(l, func(o *renewOracle, _ *oracle.Call, e world.SendingRequest) { o.recordRenewal(e.Node, e.Conn, e.Body) })
	oracle.On(l, func(o *renewOracle, _ *oracle.Call, e world.ReplyReceived) {
		o.recordRenewed(e.Node, e.Conn, e.Conn.FindRequest(e.Corr).SentAt, e.Body)
	})
	oracle.On(l, func(o *renewOracle, _ *oracle.Call, e stepCounted) {
		if e.node.KeepsOffers {
			o.verifyDue(e.node)
		}
	})
}

// recordDue records which leases an owner must renew on a reader's request: the leases that are in force and may last
// longer.
func (or *renewOracle) recordDue(n *world.Node, request uint64, body []byte) {
	or.dueLeases, or.dueRequest = or.dueLeases[:0], request
	m := &or.renewRequest
	if !n.OffersChunks || n.Draining || !protocol.MayHaveTag(body, protocol.TagRenewRequest, &pd.WireLimits) ||
		m.Decode(body, &pd.WireLimits) != nil {
		return
	}
	now := or.w.ReadClock(n)
	for _, id := range m.Grants {
		g := n.Grants[effects.GrantID(id)]
		ofReader := g != nil && g.Read && protocol.UUID(g.Peer) == m.Incarnation && or.w.IsSenderName(n, effects.Incarnation(m.To))
		inForce := ofReader && !g.Revoking && !g.Lease.DoneReceived && !g.Lease.RefusedLate && now < g.ExpiresAt && !slices.Contains(m.Done, id)
		if inForce && now.Add(pd.InfoOf(n).Cfg.PullTTL) <= g.Lease.GrantedAt.Add(pd.InfoOf(n).Cfg.ReadLeaseMax) {
			or.dueLeases = append(or.dueLeases, g)
		}
	}
}

// verifyRenewed records that an owner renews leases, when the reply is sent. The check fails for a lease that has
// ended, and for a renewal beyond the longest lease.
func (or *renewOracle) verifyRenewed(n *world.Node, request uint64, body []byte) {
	m := protocol.RenewResponse{}
	if !n.OffersChunks || !protocol.MayHaveTag(body, protocol.TagRenewResponse, &pd.WireLimits) ||
		m.Decode(body, &pd.WireLimits) != nil {
		or.verifyExtended(n, request, nil)
		return
	}
	if or.verifyExtended(n, request, m.Extended); or.w.Failure != nil {
		return
	}
	if n.Draining {
		or.countJudged(checkRenewDrain)
	}
	now := or.w.ReadClock(n)
	until := now.Add(effects.Duration(m.LeaseNS))
	for _, id := range m.Extended {
		or.countJudged(checkRenewID, checkRenewInTime, checkRenewBound)
		g := n.Grants[effects.GrantID(id)]
		switch {
		case n.Draining:
			or.fail(checkRenewDrain, "node %d renews grant %d although it drains", n.AsSubject(), n.GrantSubject(effects.GrantID(id)))
		case g == nil || !g.Read:
			or.fail(checkRenewID, "node %d renews grant %d, which is no read lease of the node",
				n.AsSubject(), n.GrantSubject(effects.GrantID(id)))
		case g.Revoking || now > g.ExpiresAt || g.Lease.DoneReceived:
			or.fail(checkRenewInTime, "node %d renews grant %d, which had ended", n.AsSubject(), n.GrantSubject(effects.GrantID(id)))
		case until > g.Lease.GrantedAt.Add(pd.InfoOf(n).Cfg.ReadLeaseMax):
			or.fail(checkRenewBound, "node %d renews grant %d beyond the maximum lease of an offer",
				n.AsSubject(), n.GrantSubject(effects.GrantID(id)))
		default:
			g.ExpiresAt = max(g.ExpiresAt, until)
		}
	}
}

// verifyExtended checks that a reply renews all leases that the owner must renew.
func (or *renewOracle) verifyExtended(n *world.Node, request uint64, ids []uint64) {
	if request != or.dueRequest {
		return
	}
	for _, g := range or.dueLeases {
		if or.countJudged(checkRenewGiven); !slices.Contains(ids, uint64(g.ID)) {
			or.fail(checkRenewGiven, "node %d does not renew grant %d on request although the grant is in force",
				n.AsSubject(), n.GrantSubject(g.ID))
			return
		}
	}
	or.dueLeases = or.dueLeases[:0]
}

// recordRenewed handles a reply at the reader. Leases in Gone are over, so the reader may drop the offers under these
// leases. Leases in Extended last longer, counted from when the reader sent the request. If the reader's right to a
// lease ended before the reply arrived, the reader may have given the lease up.
func (or *renewOracle) recordRenewed(n *world.Node, c *world.Conn, asked effects.Time, body []byte) {
	kept := or.oracles().deferredOffers.stateOf(n)
	m := protocol.RenewResponse{}
	if !n.KeepsOffers || !protocol.MayHaveTag(body, protocol.TagRenewResponse, &pd.WireLimits) ||
		m.Decode(body, &pd.WireLimits) != nil {
		return
	}
	for i := range kept.offers {
		k := &kept.offers[i]
		switch {
		case k.lease == nil || slices.Contains(m.Gone, uint64(k.lease.ID)):
			k.uncertain = true
		case slices.Contains(m.Extended, uint64(k.lease.ID)):
			k.leaseEnd = k.lease.ExpiresAt
			k.uncertain = k.uncertain || or.w.ReadClock(n) >= k.rightUntil
			k.rightUntil = max(k.rightUntil, rightEnd(n, asked, m.LeaseNS))
			or.beginTerm(n, k)
		}
	}
	if !c.Closed {
		or.verifyRound(n, c.Server, effects.Incarnation(m.Incarnation))
	}
}
