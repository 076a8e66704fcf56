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
	checkSharedSame   = oracle.NewCheck("S24", "lookups asked again")
	checkSharedPrefix = oracle.NewCheck("S2", "prefixes that are lent to peers")
	checkSharedDone   = oracle.NewCheck("S19", "dones of lookups")
	checkSharedNamed  = oracle.NewCheck("L2", "dones of lookups by name")
	checkSharedGhost  = oracle.NewCheck("L2", "lookup connections closed while answers may come")
	checkSharedLent   = oracle.NewCheck("S18", "what peers may read of a pool")
	checkSharedKept   = oracle.NewCheck("L2", "lookup connections kept")
)

// sharedOracle judges read leases that peers request: the messages of the lookup channel, at both ends.
type sharedOracle struct {
	judge
	perLife[sharedLife]
	loans prefixes
	get   protocol.AscendBatchedLookupAndGetMsg     `snap:"scratch"` // a lookup that has arrived; the reply is sent in the same step
	reply protocol.AscendBatchedLookupAndGetRetMsg  `snap:"scratch"`
	ask   protocol.AscendBatchedLookupAndGetMsg     `snap:"scratch"` // a lookup that is being sent
	told  protocol.AscendBatchedLookupAndGetRetMsg  `snap:"scratch"` // a reply that has arrived
	done  protocol.AscendBatchedLookupAndGetDoneMsg `snap:"scratch"` // a done message that has arrived
	word  protocol.AscendBatchedLookupAndGetDoneMsg `snap:"scratch"` // a done message that is being sent

	places []uint32 `snap:"scratch"` // the pages that a lookup names
	named  []int64  `snap:"scratch"` // the pages that a reply names
}

func (*sharedOracle) listen(l *oracle.Listen[sharedOracle]) {
	oracle.On(l, func(o *sharedOracle, c *oracle.Call, e *effects.Landed) { o.landing(o.node(c), e) })
	oracle.On(l, func(o *sharedOracle, _ *oracle.Call, e world.Stepping) { o.step(e.Node, e.Event) })
	oracle.On(l, func(o *sharedOracle, c *oracle.Call, e *effects.Close) { o.closing(o.node(c), e) })
	oracle.On(l, func(o *sharedOracle, c *oracle.Call, _ *effects.Deliver) { o.at(o.node(c)).gave = true })
	oracle.On(l, func(o *sharedOracle, _ *oracle.Call, e world.Received) {
		if ch := effects.Channel(e.Delivery.B); ch == effects.ChannelLookup || ch == effects.ChannelPeerDone {
			o.heard(e.Node, e.Delivery.C, e.Delivery.Body)
		}
	})
	oracle.On(l, func(o *sharedOracle, _ *oracle.Call, e world.Replied) {
		o.replied(e.Node, e.Conn)
		o.pushHeard(e.Node, e.Conn, e.Corr, e.Body)
	})
	oracle.On(l, func(o *sharedOracle, _ *oracle.Call, e world.Sending) {
		o.saying(e.Node, e.Conn, e.Body)
		o.asking(e.Node, e.Conn, e.Corr, e.Body)
	})
	oracle.On(l, func(o *sharedOracle, _ *oracle.Call, e world.Replying) {
		o.pushAnswered(e.Node, e.Request, e.Body)
		o.answering(e.Node, e.Request, e.Body)
	})
	oracle.On(l, func(o *sharedOracle, _ *oracle.Call, e world.Observed) {
		if e.Effect.Fact == effects.FactLinkDown {
			o.down(e.Node)
		}
	})
	oracle.On(l, func(o *sharedOracle, _ *oracle.Call, e counted) { o.afterStep(e.node) })
}

// sharedLife records the lookups of an incarnation of a node, and facts about the current step.
type sharedLife struct {
	answered uint64      `snap:"skip"` // the connection on which the step receives a reply
	excused  bool        `snap:"skip"` // the step receives an event that ends connections
	asked    []askedPush `snap:"skip"`
	came     []camePush  `snap:"skip"`
	landed   []landedFor `snap:"scratch"`
	gave     bool        `snap:"scratch"` // the step delivers an outcome
}

func (s *sharedLife) startReply() {
	*s = sharedLife{asked: s.asked[:0], came: s.came[:0], landed: s.landed[:0]}
}

// reset empties the records for a run.
func (or *sharedOracle) reset(int) { or.loans.begin() }

// step records whether a step receives an event that ends connections.
func (or *sharedOracle) step(n *world.Node, ev effects.Event) {
	my := or.at(n)
	_, answered := ev.(*effects.Replied)
	_, failed := ev.(*effects.Unanswered)
	_, lost := ev.(*effects.ConnLost)
	if my.excused = failed || lost; !answered {
		my.answered = 0
	}
}

// replied records a reply that the next step receives. A reply is no reason to close the connection.
func (or *sharedOracle) replied(n *world.Node, c *world.Conn) {
	if or.at(n).answered = c.ID; c.Channel == effects.ChannelLookup {
		or.judged(checkSharedKept)
	}
}

// down records that a link is down. The connections that belong to the link end, too.
func (or *sharedOracle) down(n *world.Node) { or.at(n).excused = true }

// closing checks that a connection to a peer that shares is closed for a cause. Late replies on the connection bring
// leases that must be given back, and the next lookup need not connect again.
func (or *sharedOracle) closing(n *world.Node, e *effects.Close) {
	c, my := or.w.ConnOf(uint64(e.Conn)), or.at(n)
	if c == nil || c.Channel != effects.ChannelLookup {
		return
	}
	if my.excused {
		or.void(checkSharedGhost)
		return
	}
	waits, oldest := 0, effects.Duration(0)
	for i := range c.Asked {
		q := &c.Asked[i] // The node waits for the reply of a lookup that has ended, too.
		if oldest = max(oldest, or.w.Clock(n).Sub(q.Asked)); !q.Ended {
			waits++
		}
	}
	if or.judged(checkSharedGhost); oldest >= pd.Its(n).Cfg.ReplyTimeout {
		return // The machine no longer waits for the reply.
	}
	if my.answered == c.ID {
		or.fail(checkSharedKept, "node %d closes connection %d on which it is answered", n.It(), oracle.Conn(c.ID))
		return
	}
	if waits > 0 {
		or.fail(checkSharedGhost, "node %d closes connection %d on which %d questions wait, the oldest for %d ns",
			n.It(), oracle.Conn(c.ID), waits, oldest)
	}
}

// saying checks a done message when the message is sent: all reads under the lease must have ended.
func (or *sharedOracle) saying(n *world.Node, c *world.Conn, body []byte) {
	m := &or.word
	if c.Channel != effects.ChannelLookup || m.Decode(body, &pd.WireLimits) != nil || !m.HasExt {
		return
	}
	or.judged(checkSharedDone, checkSharedNamed)
	if !pd.IsNameOf(n, effects.Incarnation(m.Ext.Incarnation)) {
		or.fail(checkSharedNamed, "node %d says that grant %d has ended in a name that is not its own",
			n.It(), n.ItsGrant(effects.GrantID(m.Ext.Grant)))
		return
	}
	or.all().kept.returned(n, m)
	if t := or.lastWord(n, m.Ext.To, m.Ext.Grant); t != nil {
		or.fail(checkSharedDone, "node %d says that grant %d has ended while transfer %d may still read",
			n.It(), n.ItsGrant(t.Grant), oracle.Transfer(t.ID))
	}
}

// heard handles a message on the lookup channel at the owner. A done message of the reader ends the lease. A lookup is
// recorded until the node replies.
func (or *sharedOracle) heard(n *world.Node, request uint64, body []byte) {
	or.get.HasExt = false
	if m := &or.get; m.Decode(body, &pd.WireLimits) == nil {
		if m.HasExt && !m.PullMode {
			my := or.at(n)
			my.came = append(my.came, camePush{questionOf(n, request, m), effects.GrantID(m.Ext.Grant)})
		}
		if m.HasExt && m.PullMode && n.Arena > 0 {
			or.all().arena.heard(n, request, body)
		}
		return
	}
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

// answering checks a reply when the reply is sent. The reply is to the lookup of this step, or to a lookup for which
// chunks were copied.
func (or *sharedOracle) answering(n *world.Node, request uint64, body []byte) {
	q, m, r := &or.get, &or.reply, &or.w.Requests[request-1]
	if n.Arena > 0 && r.Channel == effects.ChannelLookup {
		if asked := or.all().arena.answered(n, request, body); asked != nil && q.Decode(asked, &pd.WireLimits) != nil {
			return
		}
	}
	if r.Channel != effects.ChannelLookup || m.Decode(body, &pd.WireLimits) != nil || m.Ext.Grant == 0 || !q.HasExt {
		return
	}
	or.judged(checkSharedSame, checkSharedPrefix)
	if or.loans.answered(&or.judge, n, &prefixTold{
		asking: asking{n.ID, n.Life, effects.Incarnation(q.Ext.Incarnation), q.Ext.Operation}, keys: q.Keys,
		id: effects.GrantID(m.Ext.Grant), lease: effects.Duration(m.LeaseNS()), indexes: or.placesOf(n, m),
	}, func(format string, args ...any) { or.fail(checkSharedSame, format, args...) },
		func(format string, args ...any) { or.fail(checkSharedPrefix, format, args...) }) {
		or.shares(n)
	}
}

// placesOf returns the indexes of the pages that a reply names.
func (or *sharedOracle) placesOf(n *world.Node, m *protocol.AscendBatchedLookupAndGetRetMsg) []int64 {
	or.named = or.named[:0]
	for i, index := range m.RemoteIndexes {
		or.named = append(or.named, int64(n.Pool.At(effects.BufferID(m.RemoteUUIDs[i]), uint32(index))))
	}
	return or.named
}

// shares checks that peers may read no more than a configured share of the pool. Pages of an arena do not count.
func (or *sharedOracle) shares(n *world.Node) {
	lent, cfg := 0, &pd.Its(n).Cfg
	for _, g := range n.Pool.Lent {
		if !g.Loan.Asked || !or.w.Standing(n, g) {
			continue
		}
		for _, p := range g.Pages {
			if !n.InArena(p.Index) {
				lent++
			}
		}
	}
	if or.judged(checkSharedLent); lent > int(cfg.Share(cfg.LoanSharePct)) {
		or.fail(checkSharedLent, "node %d lets peers read %d pages, of a pool of %d, of which they may %d%%",
			n.It(), lent, n.Engines(), cfg.LoanSharePct)
	}
}
