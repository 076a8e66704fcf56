package ledger

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/identity"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// The oracle of this file judges the messages that end read leases. On leased planes the reader's message ends a lease,
// so the message must be true, and a message of a different peer must not end the lease.

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkRefusing   = oracle.NewCheck("S19", "answers that end read leases")
	checkEndNamed   = oracle.NewCheck("L2", "ends told by name")
	checkEndSettled = oracle.NewCheck("S19", "ends told of what is settled")
	checkTakenBack  = oracle.NewCheck("L2", "read leases over by their reader's done")
)

// offersOracle judges the messages about read leases: offers, their replies, and done messages.
type offersOracle struct {
	judge
	perLife[offersLife]
}

func (*offersOracle) listen(l *oracle.Listen[offersOracle]) {
	oracle.On(l, func(o *offersOracle, _ *oracle.Call, e world.Received) {
		if effects.Channel(e.Delivery.B) == effects.ChannelDone {
			o.doneHeard(e.Node, e.Delivery.Body)
		}
	})
	oracle.On(l, func(o *offersOracle, _ *oracle.Call, e world.Replied) {
		o.acked(e.Node, e.Conn.Under(e.Corr).Offer, e.Body)
	})
	oracle.On(l, func(o *offersOracle, _ *oracle.Call, e world.Sending) { o.offering(e.Node, e.Conn, e.Body) })
	oracle.On(l, func(o *offersOracle, _ *oracle.Call, e pd.DoneSent) { o.saying(e.Node, e.Message) })
	oracle.On(l, func(o *offersOracle, _ *oracle.Call, e counted) {
		if e.node.Lends || e.node.Pulls {
			o.takenBack(e.node)
		}
	})
}

// offersLife records the leases of an incarnation of an owner that readers reported as over.
type offersLife struct {
	over []*world.Grant // read leases that the machine is notified in this step to be over
}

func (s *offersLife) startReply() { *s = offersLife{over: s.over[:0]} }

// offering records the id under which a read lease is offered, when the offer is sent.
func (or *offersOracle) offering(n *world.Node, c *world.Conn, body []byte) {
	c.Offer = 0
	if !n.Pulls || c.Channel != effects.ChannelAlloc {
		return
	}
	m, is := or.truth().asOffer(body)
	if !is || !m.HasExt {
		return
	}
	if g := n.Pool.Loan(effects.GrantID(m.Ext.Grant)); g != nil {
		g.Loan.Pull, c.Offer, c.Lane, g.Loan.Late = m.PullID, g.ID, true, false
	}
}

// acked handles a reply to an offer when the reply reaches the sender's machine. If the reply says that the reader will
// read nothing, the lease is over.
func (or *offersOracle) acked(n *world.Node, offer effects.GrantID, body []byte) {
	g := n.Pool.Loan(offer)
	if offer == 0 || g == nil {
		return
	}
	m, is := or.truth().asAck(body)
	if !is {
		return
	}
	its := m.HasExt && protocol.UUID(g.Peer) == m.Ext.Incarnation || !m.HasExt && g.Bearer()
	// The sender treats a stale reply as about another incarnation. Then only time ends the lease.
	code := effects.CodeFromWire(m.Ext.Code)
	stale := code == effects.Stale
	if m.Ext.Delayed {
		return // The read failed, or the offer is deferred: the end is still to be reported.
	}
	if its && code == effects.Expired { // The offer arrived too late, and may be sent again after the clocks are compared anew.
		g.Loan.Late = true
		return
	}
	pages := len(g.Pages)
	// A malformed list means nothing.
	all := len(m.AlreadySent) == pages && (pages == 0 || m.AlreadySent[pages-1] == int64(pages-1))
	if its && !stale && (m.AllocFailed || m.Ext.Code != 0 || all) {
		or.ended(n, g)
	}
}

// refusing checks a reply that ends a read lease, when the reader sends the reply: none of the reader's reads is in
// flight (S19).
func (or *offersOracle) refusing(n *world.Node, r *world.Request, body []byte) {
	if r.Conn == nil || r.Offer == 0 {
		return
	}
	m, is := or.truth().asAck(body)
	if !is || !m.HasExt || !m.AllocFailed && m.Ext.Code == 0 {
		return
	}
	if m.Ext.Delayed {
		or.refusedMeets(r)
		return
	}
	if effects.CodeFromWire(m.Ext.Code) == effects.Stale {
		return
	}
	or.judged(checkRefusing)
	owner := or.truth().incarnation(r.Conn.Client, r.Conn.Life)
	for _, t := range or.w.Going.Transfers.Some {
		if t.Read && t.Reading && t.Local == n.Pool && t.Grant == r.Offer &&
			identity.SameIncarnation(t.Link.Peer, owner) && !or.harmless(t) {
			or.fail(checkRefusing, "node %d says that nothing of grant %d will be read while transfer %d may still read",
				n.It(), t.Remote.Node.ItsGrant(t.Grant), oracle.Transfer(t.ID))
			return
		}
	}
}

// saying checks a reader's done message when the message is sent: none of the reader's reads under the lease is in
// flight.
func (or *offersOracle) saying(n *world.Node, m *protocol.PullDoneSignal) {
	if !m.HasExt {
		return
	}
	or.judged(checkEndNamed, checkEndSettled)
	if or.w.Script == nil && !pd.Believes(n, effects.Incarnation(m.Ext.To), effects.Incarnation(m.Ext.Incarnation)) {
		or.fail(checkEndNamed, "node %d says that grant %d has ended in a name that its owner does not know",
			n.It(), n.ItsGrant(effects.GrantID(m.Ext.Grant)))
		return
	}
	for _, t := range or.w.Transfers {
		if !t.Read || t.Local != n.Pool || uint64(t.Grant) != m.Ext.Grant || protocol.UUID(t.Link.Peer) != m.Ext.To {
			continue
		}
		if t.Reading && !or.harmless(t) {
			or.fail(checkEndSettled, "node %d says that grant %d has ended while transfer %d may still read",
				n.It(), t.Remote.Node.ItsGrant(t.Grant), oracle.Transfer(t.ID))
			return
		}
		if t.Under != nil {
			t.Under.Loan.Said = true
		}
	}
}

// harmless reports whether a read on a fenced plane, by a receiver that reads offers on arrival, is a repeated read of
// the offer. The receiver may have dropped the record of the done message, and the plane refuses reads of revoked
// pages.
func (or *offersOracle) harmless(t *world.Transfer) bool {
	if or.w.Setting.Leased || t.Local.Node.Delays || t.Under == nil {
		return false
	}
	return slices.ContainsFunc(or.w.Transfers[:t.ID-1], func(u *world.Transfer) bool {
		return u.Under == t.Under && u.Local == t.Local
	})
}

// doneHeard handles a done message at the owner. The message ends a lease only if the message comes from the lease's
// reader.
func (or *offersOracle) doneHeard(n *world.Node, body []byte) {
	m := &or.truth().done
	if m.Decode(body, &pd.WireLimits) != nil {
		return
	}
	for _, g := range n.Pool.Lent {
		if g.Loan.Pull != m.PullID {
			continue
		}
		its := m.HasExt && m.Ext.Grant == uint64(g.ID) && protocol.UUID(g.Peer) == m.Ext.Incarnation
		if g.Bearer() || its && or.w.Named(n, effects.Incarnation(m.Ext.To)) {
			or.ended(n, g)
		}
	}
}

// ended records that an owner's machine is notified by the reader itself that a read lease is over.
func (or *offersOracle) ended(n *world.Node, g *world.Grant) {
	if !g.Loan.Heard {
		g.Loan.Heard = true
		or.at(n).over = append(or.at(n).over, g)
	}
}

// takenBack checks that the owner revokes a read lease in the step in which the reader reports the end of the lease: at
// once where the reader's message is the proof, and otherwise by starting the revocation (L2).
func (or *offersOracle) takenBack(n *world.Node) {
	my := or.at(n)
	for _, g := range my.over {
		or.judged(checkTakenBack)
		c := &pd.Command{}
		if g.Loan.Put != 0 {
			c = &or.w.Commands[g.Loan.Put-1]
		}
		if !g.Revoking && (!or.w.Setting.Leased || c.Over && c.Held && c.Lent == g.ID) {
			or.fail(checkTakenBack, "node %d leaves pages leased under grant %d although their reader said that it has ended",
				n.It(), n.ItsGrant(g.ID))
		}
	}
	my.over = my.over[:0]
}

// refusedMeets counts, for the coverage of the run, a refusal which says that a read of the offer is still in flight,
// where the offer has been sent again.
func (or *offersOracle) refusedMeets(r *world.Request) {
	if g := or.w.Nodes[r.Conn.Client].Pool.Loan(r.Offer); g != nil && g.Loan.Came > 1 {
		pd.Met(&or.w.Result, pd.RefusedWhileRead)
	}
}
