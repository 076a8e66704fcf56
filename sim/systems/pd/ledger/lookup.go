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
	checkLookupRetry    = oracle.NewCheck("S24", "retried lookups")
	checkLookupPrefix   = oracle.NewCheck("S2", "prefixes that are leased to peers")
	checkLookupDone     = oracle.NewCheck("S19", "done messages of lookups after all reads")
	checkLookupDoneName = oracle.NewCheck("L2", "done messages of lookups by name")
	checkLookupClosed   = oracle.NewCheck("L2", "lookup connections closed with pending lookups")
	checkLookupShare    = oracle.NewCheck("S18", "pages that peers may read")
	checkLookupConnKept = oracle.NewCheck("L2", "lookup connections closed after a reply")
)

// lookupOracle judges read leases that peers request: the messages of the lookup channel, at both ends.
type lookupOracle struct {
	oracleBase
	perIncarnation[lookupState]
	leases        prefixLeases
	lookup        protocol.AscendBatchedLookupAndGetMsg     `snap:"scratch"` // a lookup that has arrived; the reply is sent in the same step
	reply         protocol.AscendBatchedLookupAndGetRetMsg  `snap:"scratch"`
	sentLookup    protocol.AscendBatchedLookupAndGetMsg     `snap:"scratch"` // a lookup that is being sent
	receivedReply protocol.AscendBatchedLookupAndGetRetMsg  `snap:"scratch"` // a reply that has arrived
	receivedDone  protocol.AscendBatchedLookupAndGetDoneMsg `snap:"scratch"` // a done message that has arrived
	sentDone      protocol.AscendBatchedLookupAndGetDoneMsg `snap:"scratch"` // a done message that is being sent

	lookupPages []uint32 `snap:"scratch"` // the pages that a lookup names
	replyPages  []int64  `snap:"scratch"` // the pages that a reply names
}

func (*lookupOracle) subscribe(l *oracle.Subscriptions[lookupOracle]) {
	oracle.On(l, func(o *lookupOracle, c *oracle.Call, e *effects.Landed) { o.recordClaims(o.nodeOf(c), e) })
	oracle.On(l, func(o *lookupOracle, _ *oracle.Call, e world.SteppingMachine) { o.recordStep(e.Node, e.Event) })
	oracle.On(l, func(o *lookupOracle, c *oracle.Call, e *effects.Close) { o.verifyClose(o.nodeOf(c), e) })
	oracle.On(l, func(o *lookupOracle, c *oracle.Call, _ *effects.Deliver) { o.stateOf(o.nodeOf(c)).delivered = true })
	oracle.On(l, func(o *lookupOracle, _ *oracle.Call, e world.MessageReceived) {
		if ch := effects.Channel(e.Delivery.B); ch == effects.ChannelLookup || ch == effects.ChannelPeerDone {
			o.handleMessage(e.Node, e.Delivery.C, e.Delivery.Body)
		}
	})
	oracle.On(l, func(o *lookupOracle, _ *oracle.Call, e world.ReplyReceived) {
		o.recordReply(e.Node, e.Conn)
		o.handlePushReply(e.Node, e.Conn, e.Corr, e.Body)
	})
	oracle.On(l, func(o *lookupOracle, _ *oracle.Call, e world.SendingRequest) {
		o.verifyDone(e.Node, e.Conn, e.Body)
		o.verifyPushLookup(e.Node, e.Conn, e.Corr, e.Body)
	})
	oracle.On(l, func(o *lookupOracle, _ *oracle.Call, e world.SendingReply) {
		o.verifyPushReply(e.Node, e.Request, e.Body)
		o.verifyReply(e.Node, e.Request, e.Body)
	})
	oracle.On(l, func(o *lookupOracle, _ *oracle.Call, e world.FactObserved) {
		if e.Effect.Fact == effects.FactLinkDown {
			o.recordLinkDown(e.Node)
		}
	})
	oracle.On(l, func(o *lookupOracle, _ *oracle.Call, e stepCounted) { o.afterStep(e.node) })
}

// lookupState records the lookups of an incarnation of a node, and facts about the current step.
type lookupState struct {
	replyConn      uint64               `snap:"skip"` // the connection on which the step receives a reply
	mayClose       bool                 `snap:"skip"` // the step receives an event that ends connections
	sentPushes     []sentPushLookup     `snap:"skip"`
	receivedPushes []receivedPushLookup `snap:"skip"`
	landedChunks   []landedChunk        `snap:"scratch"`
	delivered      bool                 `snap:"scratch"` // the step delivers an outcome
}

func (s *lookupState) clearForReuse() {
	*s = lookupState{sentPushes: s.sentPushes[:0], receivedPushes: s.receivedPushes[:0], landedChunks: s.landedChunks[:0]}
}

// reset empties the records for a run.
func (or *lookupOracle) reset(int) { or.leases.resetLeases() }

// recordStep records whether a step receives an event that ends connections.
func (or *lookupOracle) recordStep(n *world.Node, ev effects.Event) {
	state := or.stateOf(n)
	_, answered := ev.(*effects.Replied)
	_, failed := ev.(*effects.Unanswered)
	_, lost := ev.(*effects.ConnLost)
	if state.mayClose = failed || lost; !answered {
		state.replyConn = 0
	}
}

// recordReply records a reply that the next step receives. A reply is no reason to close the connection.
func (or *lookupOracle) recordReply(n *world.Node, c *world.Conn) {
	if or.stateOf(n).replyConn = c.ID; c.Channel == effects.ChannelLookup {
		or.countJudged(checkLookupConnKept)
	}
}

// recordLinkDown records that a link is down. The connections that belong to the link end, too.
func (or *lookupOracle) recordLinkDown(n *world.Node) { or.stateOf(n).mayClose = true }

// verifyClose checks that a connection to a peer that shares is closed for a cause. Late replies on the connection
// bring leases that must be given back, and the next lookup need not connect again.
func (or *lookupOracle) verifyClose(n *world.Node, e *effects.Close) {
	c, state := or.w.ConnOf(uint64(e.Conn)), or.stateOf(n)
	if c == nil || c.Channel != effects.ChannelLookup {
		return
	}
	if state.mayClose {
		or.countVoid(checkLookupClosed)
		return
	}
	waiting, oldest := 0, effects.Duration(0)
	for i := range c.Requests {
		q := &c.Requests[i] // The node waits for the reply of a lookup that has ended, too.
		if oldest = max(oldest, or.w.ReadClock(n).Sub(q.SentAt)); !q.Ended {
			waiting++
		}
	}
	if or.countJudged(checkLookupClosed); oldest >= pd.InfoOf(n).Cfg.ReplyTimeout {
		return // The machine no longer waits for the reply.
	}
	if state.replyConn == c.ID {
		or.fail(checkLookupConnKept, "node %d closes connection %d in the step that receives a reply on the connection", n.AsSubject(),
			oracle.Conn(c.ID))
		return
	}
	if waiting > 0 {
		or.fail(checkLookupClosed, "node %d closes connection %d on which %d lookups wait, the oldest for %d ns",
			n.AsSubject(), oracle.Conn(c.ID), waiting, oldest)
	}
}

// verifyDone checks a done message when the message is sent: all reads under the lease must have ended.
func (or *lookupOracle) verifyDone(n *world.Node, c *world.Conn, body []byte) {
	m := &or.sentDone
	if c.Channel != effects.ChannelLookup || m.Decode(body, &pd.WireLimits) != nil || !m.HasExt {
		return
	}
	or.countJudged(checkLookupDone, checkLookupDoneName)
	if !pd.IsNameOf(n, effects.Incarnation(m.Ext.Incarnation)) {
		or.fail(checkLookupDoneName, "node %d reports the end of grant %d under a name that is not a name of the node",
			n.AsSubject(), n.GrantSubject(effects.GrantID(m.Ext.Grant)))
		return
	}
	or.oracles().deferredOffers.verifyReturned(n, m)
	if t := or.recordReadDone(n, m.Ext.To, m.Ext.Grant); t != nil {
		or.fail(checkLookupDone, "node %d reports the end of grant %d while transfer %d may still read",
			n.AsSubject(), n.GrantSubject(t.Grant), oracle.Transfer(t.ID))
	}
}

// handleMessage handles a message on the lookup channel at the owner. A done message of the reader ends the lease. A
// lookup is recorded until the node replies.
func (or *lookupOracle) handleMessage(n *world.Node, request uint64, body []byte) {
	or.lookup.HasExt = false
	if m := &or.lookup; m.Decode(body, &pd.WireLimits) == nil {
		if m.HasExt && !m.PullMode {
			state := or.stateOf(n)
			state.receivedPushes = append(state.receivedPushes, receivedPushLookup{newPendingLookup(n, request, m), effects.GrantID(m.Ext.Grant)})
		}
		if m.HasExt && m.PullMode && n.ArenaPages > 0 {
			or.oracles().arena.recordLookup(n, request, body)
		}
		return
	}
	m := &or.receivedDone
	if m.Decode(body, &pd.WireLimits) != nil || !m.HasExt {
		return
	}
	g := n.Grants[effects.GrantID(m.Ext.Grant)]
	if g != nil && g.Read && protocol.UUID(g.Peer) == m.Ext.Incarnation &&
		pd.IsGenuine(n, g.Peer, effects.Incarnation(m.Ext.To)) {
		or.oracles().offers.recordEnded(n, g)
	}
}

// verifyReply checks a reply when the reply is sent. The reply is to the lookup of this step, or to a lookup for which
// chunks were copied.
func (or *lookupOracle) verifyReply(n *world.Node, request uint64, body []byte) {
	q, m, r := &or.lookup, &or.reply, &or.w.Requests[request-1]
	if n.ArenaPages > 0 && r.Channel == effects.ChannelLookup {
		if asked := or.oracles().arena.takeAnswered(n, request, body); asked != nil && q.Decode(asked, &pd.WireLimits) != nil {
			return
		}
	}
	if r.Channel != effects.ChannelLookup || m.Decode(body, &pd.WireLimits) != nil || m.Ext.Grant == 0 || !q.HasExt {
		return
	}
	or.countJudged(checkLookupRetry, checkLookupPrefix)
	if or.leases.verifyReply(&or.oracleBase, n, &prefixReply{
		lookupKey: lookupKey{n.ID, n.Incarnation, effects.Incarnation(q.Ext.Incarnation), q.Ext.Operation}, keys: q.Keys,
		id: effects.GrantID(m.Ext.Grant), lease: effects.Duration(m.LeaseNS()), indexes: or.pagesOf(n, m),
	}, func(format string, args ...any) { or.fail(checkLookupRetry, format, args...) },
		func(format string, args ...any) { or.fail(checkLookupPrefix, format, args...) }) {
		or.verifyShare(n)
	}
}

// pagesOf returns the indexes of the pages that a reply names.
func (or *lookupOracle) pagesOf(n *world.Node, m *protocol.AscendBatchedLookupAndGetRetMsg) []int64 {
	or.replyPages = or.replyPages[:0]
	for i, index := range m.RemoteIndexes {
		or.replyPages = append(or.replyPages, int64(n.Pool.PageNumber(effects.BufferID(m.RemoteUUIDs[i]), uint32(index))))
	}
	return or.replyPages
}

// verifyShare checks that peers may read no more than a configured share of the pool. Pages of an arena do not count.
func (or *lookupOracle) verifyShare(n *world.Node) {
	leased, cfg := 0, &pd.InfoOf(n).Cfg
	for _, g := range n.Pool.ReadLeases {
		if !g.Lease.OnRequest || !or.w.IsLeaseLive(n, g) {
			continue
		}
		for _, p := range g.Pages {
			if !n.InArena(p.Index) {
				leased++
			}
		}
	}
	if or.countJudged(checkLookupShare); leased > int(cfg.Share(cfg.LoanSharePct)) {
		or.fail(checkLookupShare, "node %d lets peers read %d pages, in a pool of %d pages, of which peers may read %d%%",
			n.AsSubject(), leased, n.EnginePages(), cfg.LoanSharePct)
	}
}
