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
	checkOfferRefusal = oracle.NewCheck("S19", "offer replies that end read leases")
	checkDoneName     = oracle.NewCheck("L2", "done messages by name")
	checkDoneSettled  = oracle.NewCheck("S19", "done messages after all reads")
	checkDoneProof    = oracle.NewCheck("S19", "leases of vanilla readers that were offered more than once")
	checkDoneRevokes  = oracle.NewCheck("L2", "read leases ended by the reader")
)

// offerOracle judges the messages about read leases: offers, their replies, and done messages.
type offerOracle struct {
	oracleBase
	perIncarnation[offerState]
}

func (*offerOracle) subscribe(l *oracle.Subscriptions[offerOracle]) {
	oracle.On(l, func(o *offerOracle, _ *oracle.Call, e world.MessageReceived) {
		if effects.Channel(e.Delivery.B) == effects.ChannelDone {
			o.handleDone(e.Node, e.Delivery.Body)
		}
	})
	oracle.On(l, func(o *offerOracle, _ *oracle.Call, e world.ReplyReceived) {
		o.handleOfferReply(e.Node, e.Conn.FindRequest(e.Corr).Offer, e.Body)
	})
	oracle.On(l, func(o *offerOracle, _ *oracle.Call, e world.SendingRequest) { o.recordOffer(e.Node, e.Conn, e.Body) })
	oracle.On(l, func(o *offerOracle, _ *oracle.Call, e pd.DoneSent) { o.verifyDone(e.Node, e.Message) })
	oracle.On(l, func(o *offerOracle, _ *oracle.Call, e stepCounted) {
		if e.node.LendsChunks || e.node.OffersChunks {
			o.verifyRevoked(e.node)
		}
	})
}

// offerState records the leases of an incarnation of an owner that readers reported as over.
type offerState struct {
	endedLeases []*world.Grant // read leases that the machine is notified in this step to be over
}

func (s *offerState) clearForReuse() { *s = offerState{endedLeases: s.endedLeases[:0]} }

// recordOffer records the id under which a read lease is offered, when the offer is sent.
func (or *offerOracle) recordOffer(n *world.Node, c *world.Conn, body []byte) {
	c.Offer = 0
	if !n.OffersChunks || c.Channel != effects.ChannelAlloc {
		return
	}
	m, ok := or.facts().asOffer(body)
	if !ok || !m.HasExt {
		return
	}
	if g := n.Pool.FindReadLease(effects.GrantID(m.Ext.Grant)); g != nil {
		g.Lease.SentCount++
		g.Lease.OfferID, c.Offer, c.CarriesOffers, g.Lease.RefusedLate = m.PullID, g.ID, true, false
	}
}

// handleOfferReply handles a reply to an offer when the reply reaches the sender's machine. If the reply says that the
// reader will read nothing, the lease is over.
func (or *offerOracle) handleOfferReply(n *world.Node, offer effects.GrantID, body []byte) {
	g := n.Pool.FindReadLease(offer)
	if offer == 0 || g == nil {
		return
	}
	m, ok := or.facts().asAck(body)
	if !ok {
		return
	}
	fromReader := m.HasExt && protocol.UUID(g.Peer) == m.Ext.Incarnation || !m.HasExt && g.IsBearer()
	// The sender treats a stale reply as about another incarnation. Then only time ends the lease.
	code := effects.CodeFromWire(m.Ext.Code)
	stale := code == effects.Stale
	if m.Ext.Delayed {
		return // The read failed, or the offer is deferred: the end is still to be reported.
	}
	if fromReader && code == effects.Expired { // The offer arrived too late, and may be sent again after the clocks are compared anew.
		g.Lease.RefusedLate = true
		return
	}
	pages := len(g.Pages)
	// A malformed list means nothing.
	all := len(m.AlreadySent) == pages && (pages == 0 || m.AlreadySent[pages-1] == int64(pages-1))
	if fromReader && !stale && (m.AllocFailed || m.Ext.Code != 0 || all) {
		or.recordEnded(n, g)
	}
}

// verifyRefusal checks a reply that ends a read lease, when the reader sends the reply: none of the reader's reads is
// in flight (S19).
func (or *offerOracle) verifyRefusal(n *world.Node, r *world.Request, body []byte) {
	if r.Conn == nil || r.Offer == 0 {
		return
	}
	m, ok := or.facts().asAck(body)
	if !ok || !m.HasExt || !m.AllocFailed && m.Ext.Code == 0 {
		return
	}
	if m.Ext.Delayed {
		or.countRefusedWhileRead(r)
		return
	}
	if effects.CodeFromWire(m.Ext.Code) == effects.Stale {
		return
	}
	or.countJudged(checkOfferRefusal)
	owner := or.facts().incarnationOf(r.Conn.Client, r.Conn.Incarnation)
	for _, t := range or.w.Active.Transfers.Items {
		if t.Read && t.LocalInUse && t.Local == n.Pool && t.Grant == r.Offer &&
			identity.SameIncarnation(t.Link.Peer, owner) && !or.isHarmless(t) {
			or.fail(checkOfferRefusal, "node %d replies that it will not read under grant %d while transfer %d may still read",
				n.AsSubject(), t.Remote.Node.GrantSubject(t.Grant), oracle.Transfer(t.ID))
			return
		}
	}
}

// verifyDone checks a reader's done message when the message is sent: none of the reader's reads under the lease is in
// flight.
func (or *offerOracle) verifyDone(n *world.Node, m *protocol.PullDoneSignal) {
	if !m.HasExt {
		return
	}
	or.countJudged(checkDoneName, checkDoneSettled)
	if or.w.Script == nil && !pd.IsGenuine(n, effects.Incarnation(m.Ext.To), effects.Incarnation(m.Ext.Incarnation)) {
		or.fail(checkDoneName, "node %d reports the end of grant %d under a name that the owner does not know",
			n.AsSubject(), n.GrantSubject(effects.GrantID(m.Ext.Grant)))
		return
	}
	for _, t := range or.w.Transfers {
		if !t.Read || t.Local != n.Pool || uint64(t.Grant) != m.Ext.Grant || protocol.UUID(t.Link.Peer) != m.Ext.To {
			continue
		}
		if t.LocalInUse && !or.isHarmless(t) {
			or.fail(checkDoneSettled, "node %d reports the end of grant %d while transfer %d may still read",
				n.AsSubject(), t.Remote.Node.GrantSubject(t.Grant), oracle.Transfer(t.ID))
			return
		}
		if t.Lease != nil {
			t.Lease.Lease.DoneSent = true
		}
	}
}

// isHarmless reports whether a read on a fenced plane, by a receiver that reads offers on arrival, is a repeated read
// of the offer. The receiver may have dropped the record of the done message, and the plane refuses reads of revoked
// pages.
func (or *offerOracle) isHarmless(t *world.Transfer) bool {
	if or.w.Conditions.Leased || t.Local.Node.KeepsOffers || t.Lease == nil {
		return false
	}
	return slices.ContainsFunc(or.w.Transfers[:t.ID-1], func(u *world.Transfer) bool {
		return u.Lease == t.Lease && u.Local == t.Local
	})
}

// handleDone handles a done message at the owner. The message ends a lease only if the message comes from the lease's
// reader.
func (or *offerOracle) handleDone(n *world.Node, body []byte) {
	m := &or.facts().done
	if m.Decode(body, &pd.WireLimits) != nil {
		return
	}
	for _, g := range n.Pool.ReadLeases {
		if g.Lease.OfferID != m.PullID {
			continue
		}
		fromReader := m.HasExt && m.Ext.Grant == uint64(g.ID) && protocol.UUID(g.Peer) == m.Ext.Incarnation
		if g.IsBearer() || fromReader && or.w.IsSenderName(n, effects.Incarnation(m.Ext.To)) {
			or.recordEnded(n, g)
		}
	}
}

// recordEnded records that an owner's machine is notified by the reader itself that a read lease is over.
func (or *offerOracle) recordEnded(n *world.Node, g *world.Grant) {
	if !g.Lease.DoneReceived {
		g.Lease.DoneReceived = true
		or.stateOf(n).endedLeases = append(or.stateOf(n).endedLeases, g)
	}
}

// verifyRevoked checks that the owner revokes a read lease in the step in which the reader reports the end of the
// lease: at once where the reader's message is the proof, and otherwise by starting the revocation (L2).
func (or *offerOracle) verifyRevoked(n *world.Node) {
	state := or.stateOf(n)
	for _, g := range state.endedLeases {
		or.countJudged(checkDoneRevokes)
		c := &pd.Command{}
		if g.Lease.PutTicket != 0 {
			c = &or.w.Commands[g.Lease.PutTicket-1]
		}
		if !g.Revoking && (!or.w.Conditions.Leased || c.Finished && c.HoldsMemory && c.OfferGrant == g.ID) {
			or.fail(checkDoneRevokes, "node %d does not revoke grant %d although the reader reported the end of the lease",
				n.AsSubject(), n.GrantSubject(g.ID))
		}
		if or.w.Conditions.Leased && g.IsBearer() && g.Lease.SentCount > 1 {
			// The reader may still read because of another message than the one that it answers.
			if or.countJudged(checkDoneProof); !g.Revoking {
				or.fail(checkDoneProof, "node %d ends grant %d by the word of a vanilla reader, and has offered it %d times",
					n.AsSubject(), n.GrantSubject(g.ID), g.Lease.SentCount)
			}
		}
	}
	state.endedLeases = state.endedLeases[:0]
}

// countRefusedWhileRead counts, for the coverage of the run, a refusal which says that a read of the offer is still in
// flight, where the offer has been sent again.
func (or *offerOracle) countRefusedWhileRead(r *world.Request) {
	if g := or.w.Nodes[r.Conn.Client].Pool.FindReadLease(r.Offer); g != nil && g.Lease.OfferCount > 1 {
		pd.CountConjunction(&or.w.Result, pd.OfferRefusedWhileRead)
	}
}
