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
	checkRenewHeard  = oracle.NewCheck("L8", "renewals that are heard")
)

// renewOracle judges renewals of read leases.
type renewOracle struct {
	judge
	perLife[renewLife]
	ask  protocol.RenewRequest `snap:"scratch"`
	owed []*world.Grant        `snap:"scratch"` // leases that the reply to the request must renew, in the same step
	by   uint64                `snap:"scratch"` // that request
}

func (*renewOracle) listen(l *oracle.Listen[renewOracle]) {
	oracle.On(l, func(o *renewOracle, _ *oracle.Call, e asked) { o.asked(e.node, e.request, e.body) })
	oracle.On(l, func(o *renewOracle, _ *oracle.Call, e world.Opening) { o.tries(e.Node, e.Conn) })
	oracle.On(l, func(o *renewOracle, _ *oracle.Call, e world.Sending) { o.asking(e.Node, e.Conn, e.Body) })
	oracle.On(l, func(o *renewOracle, _ *oracle.Call, e world.Replied) {
		o.renewed(e.Node, e.Conn, e.Conn.Under(e.Corr).Asked, e.Body)
	})
	oracle.On(l, func(o *renewOracle, _ *oracle.Call, e counted) {
		if e.node.Delays {
			o.due(e.node)
		}
	})
}

// asked records which leases an owner must renew on a reader's request: the leases that are in force and may last
// longer.
func (or *renewOracle) asked(n *world.Node, request uint64, body []byte) {
	or.owed, or.by = or.owed[:0], request
	m := &or.ask
	if !n.Pulls || n.Draining || !protocol.MayHaveTag(body, protocol.TagRenewRequest, &pd.WireLimits) ||
		m.Decode(body, &pd.WireLimits) != nil {
		return
	}
	now := or.w.Clock(n)
	for _, id := range m.Grants {
		g := n.Grants[effects.GrantID(id)]
		its := g != nil && g.Read && protocol.UUID(g.Peer) == m.Incarnation && or.w.Named(n, effects.Incarnation(m.To))
		stands := its && !g.Revoking && !g.Loan.Heard && !g.Loan.Late && now < g.Ends && !slices.Contains(m.Done, id)
		if stands && now.Add(pd.Its(n).Cfg.PullTTL) <= g.Loan.Began.Add(pd.Its(n).Cfg.ReadLeaseMax) {
			or.owed = append(or.owed, g)
		}
	}
}

// renewing records that an owner renews leases, when the reply is sent. The check fails for a lease that has ended, and
// for a renewal beyond the longest lease.
func (or *renewOracle) renewing(n *world.Node, request uint64, body []byte) {
	m := protocol.RenewResponse{}
	if !n.Pulls || !protocol.MayHaveTag(body, protocol.TagRenewResponse, &pd.WireLimits) ||
		m.Decode(body, &pd.WireLimits) != nil {
		or.prolonged(n, request, nil)
		return
	}
	if or.prolonged(n, request, m.Extended); or.w.Failure != nil {
		return
	}
	now := or.w.Clock(n)
	until := now.Add(effects.Duration(m.LeaseNS))
	for _, id := range m.Extended {
		or.judged(checkRenewID, checkRenewInTime, checkRenewBound)
		g := n.Grants[effects.GrantID(id)]
		switch {
		case g == nil || !g.Read:
			or.fail(checkRenewID, "node %d prolongs grant %d, which it never gave to read",
				n.It(), n.ItsGrant(effects.GrantID(id)))
		case g.Revoking || now > g.Ends || g.Loan.Heard:
			or.fail(checkRenewInTime, "node %d prolongs grant %d, which had ended", n.It(), n.ItsGrant(effects.GrantID(id)))
		case until > g.Loan.Began.Add(pd.Its(n).Cfg.ReadLeaseMax):
			or.fail(checkRenewBound, "node %d prolongs grant %d beyond the longest lease of an offer",
				n.It(), n.ItsGrant(effects.GrantID(id)))
		default:
			g.Ends = max(g.Ends, until)
		}
	}
}

// prolonged checks that a reply renews all leases that the owner must renew.
func (or *renewOracle) prolonged(n *world.Node, request uint64, ids []uint64) {
	if request != or.by {
		return
	}
	for _, g := range or.owed {
		if or.judged(checkRenewHeard); !slices.Contains(ids, uint64(g.ID)) {
			or.fail(checkRenewHeard, "node %d is asked for more time under grant %d, which stands, and gives none",
				n.It(), n.ItsGrant(g.ID))
			return
		}
	}
	or.owed = or.owed[:0]
}

// renewed handles a reply at the reader. Leases in Gone are over, so the reader may drop the offers under these leases.
// Leases in Extended last longer, counted from when the reader sent the request. If the reader's right to a lease ended
// before the reply arrived, the reader may have given the lease up.
func (or *renewOracle) renewed(n *world.Node, c *world.Conn, asked effects.Time, body []byte) {
	kept := or.all().kept.at(n)
	m := protocol.RenewResponse{}
	if !n.Delays || !protocol.MayHaveTag(body, protocol.TagRenewResponse, &pd.WireLimits) ||
		m.Decode(body, &pd.WireLimits) != nil {
		return
	}
	for i := range kept.kept {
		k := &kept.kept[i]
		switch {
		case k.loan == nil || slices.Contains(m.Gone, uint64(k.loan.ID)):
			k.shaky = true
		case slices.Contains(m.Extended, uint64(k.loan.ID)):
			k.ends = k.loan.Ends
			k.shaky = k.shaky || or.w.Clock(n) >= k.right
			k.right = max(k.right, rightFrom(n, asked, m.LeaseNS))
			or.begins(n, k)
		}
	}
	if !c.Closed {
		or.passing(n, c.Server, effects.Incarnation(m.Incarnation))
	}
}
