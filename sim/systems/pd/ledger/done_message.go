package ledger

import (
	"cmp"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// The holder of a grant or lease sends a done message when the holder has finished reading or writing, because the time
// of a grant or lease is long. That applies to the leases of recalls, to the leases of shared chunks, to write grants
// that were not used, and to offers that were read. A single message is enough, whether the message is accepted or not.
// A holder that has no way to send the message sends none.

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkDoneRecall = oracle.NewCheck("L2", "done notices of recalls, sent")
	checkDoneGrant  = oracle.NewCheck("L2", "done messages of grants, sent")
	checkDoneOffer  = oracle.NewCheck("L2", "done messages of offers, sent")
	checkDoneLookup = oracle.NewCheck("L2", "done messages of shared chunks, sent")
)

// doneMessageOracle judges done messages (L2).
type doneMessageOracle struct {
	oracleBase
	perIncarnation[doneMessageState]
	query      protocol.CacheQueryRequest  `snap:"scratch"`
	queryReply protocol.CacheQueryResponse `snap:"scratch"`

	done        protocol.AscendBatchedLookupAndGetDoneMsg `snap:"scratch"`
	lookupReply protocol.AscendBatchedLookupAndGetRetMsg  `snap:"scratch"`
}

func (*doneMessageOracle) subscribe(l *oracle.Subscriptions[doneMessageOracle]) {
	oracle.On(l, func(o *doneMessageOracle, c *oracle.Call, e *effects.Opened) { o.recordSlowOpen(o.nodeOf(c), e) })
	oracle.On(l, func(o *doneMessageOracle, _ *oracle.Call, e world.ReplyReceived) {
		o.recordSlowReply(e.Node, e.Conn, e.Conn.FindRequest(e.Corr).SentAt)
		o.recordReply(e.Node, e.Conn, e.Body)
		o.removeTold(e.Node, e.Corr)
	})
	oracle.On(l, func(o *doneMessageOracle, _ *oracle.Call, e world.SendingRequest) {
		o.handleSent(e.Node, e.Conn, e.Corr, e.Body)
	})
	oracle.On(l, func(o *doneMessageOracle, _ *oracle.Call, e world.SteppingMachine) {
		if x, ok := e.Event.(*effects.Unanswered); ok {
			o.recordUnanswered(e.Node, x.Corr)
		}
	})
	oracle.On(l, func(o *doneMessageOracle, _ *oracle.Call, e world.TransferSettled) { o.removeExpired(e.Transfer) })
	oracle.On(l, func(o *doneMessageOracle, _ *oracle.Call, e world.GrantRevoked) { o.removeRevoked(e.Node, e.Grant) })
	oracle.On(l, func(o *doneMessageOracle, _ *oracle.Call, e world.StartingTransfer) {
		o.recordTransfer(e.Node, e.Transfer)
	})
	oracle.On(l, func(o *doneMessageOracle, _ *oracle.Call, e pd.DoneSent) { o.recordOfferDone(e.Node, e.Message) })
	oracle.On(l, func(o *doneMessageOracle, _ *oracle.Call, e world.NodeAtRest) {
		if o.w.Healed {
			o.verifyRest(e.Node, e.When)
		}
	})
	oracle.On(l, func(o *doneMessageOracle, _ *oracle.Call, e world.FactObserved) {
		switch e.Effect.Fact {
		case effects.FactLinkUp:
			o.recordLink(e.Node, e.Effect.ID)
		case effects.FactLinkDown:
			o.removeLinkGrants(e.Node)
		}
	})
}

// doneMessageState records the grants that peers gave to an incarnation of a node, and for which the node has not sent
// a done message.
type doneMessageState struct {
	grants []heldGrant `snap:"skip"`
	links  []uint64    `snap:"skip"` // links with a completed handshake
	// told holds the grants of recalls with a done message that has no reply yet.
	told []toldGrant `snap:"skip"`
}

func (s *doneMessageState) clearForReuse() {
	s.grants, s.links, s.told = s.grants[:0], s.links[:0], s.told[:0]
}

// removeGrant removes a grant of an owner.
func (s *doneMessageState) removeGrant(owner int32, id effects.GrantID) {
	s.grants = slices.DeleteFunc(s.grants, func(x heldGrant) bool { return x.owner == owner && x.grant == id })
}

// doneRoute is the destination of a done message: the owner and the channel.
type doneRoute struct {
	owner   int32
	channel effects.Channel
}

// heldGrant is a grant of an incarnation of a peer, with facts that may have prevented the holder from sending a done
// message.
type heldGrant struct {
	doneRoute
	grant         effects.GrantID
	incarnation   uint32
	frozenAtGrant int64  `snap:"skip"` // how long the holder had been frozen by then
	closedConns   int    `snap:"skip"` // connections to the owner that were closed by then, which are no obstacle any more
	slow          bool   `snap:"skip"` // something took so long that the done message may have been given up
	attempts      uint32 `snap:"skip"` // done messages that were sent and got no reply
}

// recordLink records that a handshake completed.
func (or *doneMessageOracle) recordLink(n *world.Node, link uint64) {
	or.stateOf(n).links = append(or.stateOf(n).links, link)
}

// recordReply records a grant or a lease in a reply, over a link that is up. A reply during a new handshake belongs to
// a request from before the handshake: nothing is read or written under the grant, and a retry may get a different
// grant.
func (or *doneMessageOracle) recordReply(n *world.Node, c *world.Conn, body []byte) {
	id := effects.GrantID(0)
	//exhaustive:ignore
	switch c.Channel {
	case effects.ChannelQuery:
		if or.queryReply.Decode(body, &pd.WireLimits) == nil && or.queryReply.HasExt {
			id = effects.GrantID(or.queryReply.Ext.Grant)
		}
	case effects.ChannelAlloc:
		if m, ok := or.facts().asReply(body); ok && m.HasExt {
			id = effects.GrantID(m.Ext.Grant)
		}
	case effects.ChannelLookup:
		if or.lookupReply.Decode(body, &pd.WireLimits) == nil && or.lookupReply.HasExt {
			id = effects.GrantID(or.lookupReply.Ext.Grant)
		}
	}
	if id == 0 || c.Server < 0 || c.Closed {
		return
	}
	owner := or.w.Nodes[c.Server]
	g := owner.Grants[id]
	if g == nil || g.IsBearer() || g.Read == (c.Channel == effects.ChannelAlloc) || !pd.IsNameOf(n, g.Peer) ||
		!or.hasLinkTo(n, owner) {
		return
	}
	or.recordGrant(n, doneRoute{c.Server, c.Channel}, g)
}

// recordGrant records a grant, unless the grant is recorded already.
func (or *doneMessageOracle) recordGrant(n *world.Node, route doneRoute, g *world.Grant) {
	state, owner := or.stateOf(n), or.w.Nodes[route.owner]
	if slices.ContainsFunc(state.grants,
		func(x heldGrant) bool {
			return x.doneRoute == route && x.grant == g.ID && x.incarnation == owner.Incarnation
		}) {
		return
	}
	x := heldGrant{doneRoute: route, grant: g.ID, incarnation: owner.Incarnation, frozenAtGrant: n.FrozenTime}
	for _, c := range or.w.Conns {
		if x.hasFailed(n, c) && c.Closed {
			x.closedConns++
		}
	}
	state.grants = append(state.grants, x)
}

// hasFailed reports whether a connection could have carried n's done message, and failed.
func (x *heldGrant) hasFailed(n *world.Node, c *world.Conn) bool {
	return c.Client == n.ID && c.Incarnation == n.Incarnation && c.Server == x.owner && c.Channel == x.channel &&
		(!c.OpenReported || c.Channel != effects.ChannelDone && (c.Dead || c.Closed))
}

// recordSlowOpen records that a connection took long to be made.
func (or *doneMessageOracle) recordSlowOpen(n *world.Node, ev *effects.Opened) {
	c := or.w.ConnOf(uint64(ev.Conn))
	if ev.Code == effects.OK && c != nil && 2*or.w.ReadClock(n).Sub(c.Opened) > pd.InfoOf(n).Cfg.ReplyTimeout {
		or.markSlow(n, doneRoute{c.Server, c.Channel})
	}
}

// recordSlowReply records a request with a slow reply. A done message may wait behind the request until the lease is
// over.
func (or *doneMessageOracle) recordSlowReply(n *world.Node, c *world.Conn, asked effects.Time) {
	if 8*or.w.ReadClock(n).Sub(asked) > pd.InfoOf(n).Cfg.ReplyTimeout {
		or.markSlow(n, doneRoute{c.Server, c.Channel})
	}
}

// markSlow records, for the grants with the given destination of done messages, that something took long.
func (or *doneMessageOracle) markSlow(n *world.Node, x doneRoute) {
	for i := range or.stateOf(n).grants {
		if g := &or.stateOf(n).grants[i]; g.doneRoute == x {
			g.slow = true
		}
	}
}

// hasLinkTo reports whether n has a link to the pages of a node's current incarnation, with a completed handshake.
func (or *doneMessageOracle) hasLinkTo(n, owner *world.Node) bool {
	return slices.ContainsFunc(n.Links, func(l *world.Link) bool {
		return l.ImportReported && !l.LossReported && !l.Dropped && l.Target == owner.Pool && slices.Contains(or.stateOf(n).links, l.ID)
	})
}

// recordTransfer records a read of an offer. For a write on a fenced plane, the plane itself reports the end.
func (or *doneMessageOracle) recordTransfer(n *world.Node, t *world.Transfer) {
	owner := t.Remote.Node
	if g := owner.Grants[t.Grant]; t.Read && g != nil && !g.Lease.OnRequest {
		or.recordGrant(n, doneRoute{owner.ID, effects.ChannelDone}, g)
	}
	if !t.Read && !or.w.Conditions.Leased {
		or.stateOf(n).removeGrant(owner.ID, t.Grant)
	}
}

// recordDone records a done message on a channel for a grant of the given owner, or of any owner if owner is
// plan.NoNode.
func (or *doneMessageOracle) recordDone(n *world.Node, owner int32, channel effects.Channel, id effects.GrantID) {
	state := or.stateOf(n)
	oldCount := len(state.grants)
	state.grants = slices.DeleteFunc(state.grants, func(x heldGrant) bool {
		return x.grant == id && x.channel == channel && (x.owner == owner || owner == plan.NoNode)
	})
	if len(state.grants) < oldCount {
		or.countJudged(doneCheckOf(channel))
	}
}

// doneCheckOf returns the check for done messages on a channel.
func doneCheckOf(channel effects.Channel) oracle.Check {
	//exhaustive:ignore
	switch channel { // Grants use no further channels.
	case effects.ChannelQuery:
		return checkDoneRecall
	case effects.ChannelAlloc:
		return checkDoneGrant
	case effects.ChannelLookup:
		return checkDoneLookup
	default:
		return checkDoneOffer
	}
}

// handleSent handles a message when the message is sent on a connection for requests, and records a done message.
func (or *doneMessageOracle) handleSent(n *world.Node, c *world.Conn, corr effects.Corr, body []byte) {
	if len(or.stateOf(n).grants) == 0 {
		return
	}
	if m := &or.query; c.Channel == effects.ChannelQuery && m.Decode(body, &pd.WireLimits) == nil {
		for _, id := range m.Ext.Done {
			or.recordTold(n, c, corr, effects.GrantID(id))
			or.recordDone(n, c.Server, c.Channel, effects.GrantID(id))
		}
	}
	if c.Channel == effects.ChannelAlloc {
		if m, ok := or.facts().asRequest(body); ok {
			for _, id := range slices.Concat(m.Ext.Commit, m.Ext.Abort) {
				or.recordDone(n, c.Server, c.Channel, effects.GrantID(id))
			}
		}
	}
	if m := &or.done; c.Channel == effects.ChannelLookup && m.Decode(body, &pd.WireLimits) == nil {
		or.recordDone(n, c.Server, c.Channel, effects.GrantID(m.Ext.Grant))
	}
}

// recordOfferDone records the done message of an offer.
func (or *doneMessageOracle) recordOfferDone(n *world.Node, m *protocol.PullDoneSignal) {
	or.recordDone(n, plan.NoNode, effects.ChannelDone, effects.GrantID(m.Ext.Grant))
}

// removeLinkGrants drops the grants that depend on links, because the oracle does not know which grants are finished.
func (or *doneMessageOracle) removeLinkGrants(n *world.Node) {
	state := or.stateOf(n)
	state.grants = slices.DeleteFunc(state.grants, func(x heldGrant) bool { return x.channel != effects.ChannelDone })
	state.told = state.told[:0]
}

// removeRevoked drops a grant if the owner ends the grant while a request of the holder waits for a reply on the same
// channel. The done message could not be sent in time, and has no meaning now.
func (or *doneMessageOracle) removeRevoked(owner *world.Node, id effects.GrantID) {
	for _, n := range or.w.Nodes[:or.w.RankCount] {
		state := or.stateOf(n)
		state.grants = slices.DeleteFunc(state.grants, func(x heldGrant) bool {
			return x.grant == id && x.owner == owner.ID && slices.ContainsFunc(or.w.Conns, func(c *world.Conn) bool {
				return c.Client == n.ID && c.Incarnation == n.Incarnation && c.Server == x.owner && c.Channel == x.channel && c.OpenRequests > 0
			})
		})
	}
}

// removeExpired drops a grant if the lease was over before the holder had finished, because the owner does not wait for
// the done message then.
func (or *doneMessageOracle) removeExpired(t *world.Transfer) {
	n, owner := t.Local.Node, t.Remote.Node
	if g := owner.Grants[t.Grant]; !t.Read && g != nil && or.w.ReadClock(owner) > g.ExpiresAt {
		or.stateOf(n).removeGrant(owner.ID, t.Grant)
	}
}

// verifyRest checks that no done message is missing when nothing is in flight.
func (or *doneMessageOracle) verifyRest(n *world.Node, when string) {
	state := or.stateOf(n)
	for _, x := range state.grants {
		owner := or.w.Nodes[x.owner]
		if !owner.Up || owner.Incarnation != x.incarnation || or.hadNoRoute(n, &x) {
			or.countVoid(doneCheckOf(x.channel))
			continue
		}
		or.fail(doneCheckOf(x.channel), "node %d never sent a done message for grant %d of node %d, %s",
			n.AsSubject(), owner.GrantSubject(x.grant), owner.AsSubject(), when)
		return
	}
	state.grants = state.grants[:0]
}

// hadNoRoute reports whether a holder may have had no way to send a done message: a connection failed or took too long,
// the holder was frozen, or the tables are so small that a peer uses up the peer's share.
func (or *doneMessageOracle) hadNoRoute(n *world.Node, x *heldGrant) bool {
	cfg := &pd.InfoOf(n).Cfg
	if x.slow || n.FrozenTime != x.frozenAtGrant || x.channel == effects.ChannelDone && cmp.Or(cfg.GrantsMax, 4096) < 16 {
		return true
	}
	failed := 0
	for _, c := range or.w.Conns {
		if x.hasFailed(n, c) {
			failed++
		}
	}
	return failed > x.closedConns
}
