package ledger

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// What is judged here.
var (
	checkSharedSame   = oracle.NewCheck("S24", "lookups asked again")
	checkSharedPrefix = oracle.NewCheck("S2", "prefixes that are lent to peers")
	checkSharedDone   = oracle.NewCheck("S19", "dones of lookups")
	checkSharedNamed  = oracle.NewCheck("L2", "dones of lookups by name")
	checkSharedGhost  = oracle.NewCheck("L2", "lookup connections closed while answers may come")
	checkSharedLent   = oracle.NewCheck("S18", "what peers may read of a pool")
	checkSharedKept   = oracle.NewCheck("L2", "lookup connections kept")
)

// sharedOracle follows what is lent to peers: the lookup channel, from both ends.
type sharedOracle struct {
	judge
	perLife[sharedLife]
	loans prefixes
	get   protocol.AscendBatchedLookupAndGetMsg     `snap:"scratch"` // as it comes, and is answered in the same step
	reply protocol.AscendBatchedLookupAndGetRetMsg  `snap:"scratch"`
	ask   protocol.AscendBatchedLookupAndGetMsg     `snap:"scratch"` // as it leaves
	told  protocol.AscendBatchedLookupAndGetRetMsg  `snap:"scratch"` // as it arrives
	done  protocol.AscendBatchedLookupAndGetDoneMsg `snap:"scratch"` // as it comes
	word  protocol.AscendBatchedLookupAndGetDoneMsg `snap:"scratch"` // as it is said

	places []uint32 `snap:"scratch"` // of pages that a question names
	named  []int64  `snap:"scratch"` // of those that an answer does
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

// sharedLife is the step that a life is in.
type sharedLife struct {
	answered uint64      `snap:"skip"` // the connection on which it is answered
	excused  bool        `snap:"skip"` // it is given what ends connections
	asked    []askedPush `snap:"skip"`
	came     []camePush  `snap:"skip"`
	landed   []landedFor `snap:"scratch"`
	gave     bool        `snap:"scratch"` // it gives an outcome
}

func (s *sharedLife) empty() {
	*s = sharedLife{asked: s.asked[:0], came: s.came[:0], landed: s.landed[:0]}
}

// begin empties it for a run.
func (or *sharedOracle) reset(int) { or.loans.begin() }

// step notes what a step is about.
func (or *sharedOracle) step(n *world.Node, ev effects.Event) {
	my := or.at(n)
	_, answered := ev.(*effects.Replied)
	_, failed := ev.(*effects.Unanswered)
	_, lost := ev.(*effects.ConnLost)
	if my.excused = failed || lost; !answered {
		my.answered = 0
	}
}

// replied notes an answer that the next step is given. It leaves the connection as it is.
func (or *sharedOracle) replied(n *world.Node, c *world.Conn) {
	if or.at(n).answered = c.ID; c.Channel == effects.ChannelLookup {
		or.judged(checkSharedKept)
	}
}

// down notes that a link is, whose connections go with it.
func (or *sharedOracle) down(n *world.Node) { or.at(n).excused = true }

// closing checks that a connection to a peer that shares is closed for a cause: late answers on it bring loans that are
// to be given back, and the next question need not connect anew.
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
		q := &c.Asked[i] // One that has ended stays until its answer is heard: till then it is waited for.
		if oldest = max(oldest, or.w.Clock(n).Sub(q.Asked)); !q.Ended {
			waits++
		}
	}
	if or.judged(checkSharedGhost); oldest >= pd.Its(n).Cfg.ReplyTimeout {
		return // Its answer is not waited for any more.
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

// saying notes a last word as it leaves: it comes after all that reads under the loan.
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

// heard notes that an owner is told, by the reader itself, that a loan is finished with. A question it remembers until
// it is answered.
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

// answering checks an answer as it leaves. It is to what the step was given, or to what was copied.
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

// placesOf are the numbers of the pages that an answer names.
func (or *sharedOracle) placesOf(n *world.Node, m *protocol.AscendBatchedLookupAndGetRetMsg) []int64 {
	or.named = or.named[:0]
	for i, index := range m.RemoteIndexes {
		or.named = append(or.named, int64(n.Pool.At(effects.BufferID(m.RemoteUUIDs[i]), uint32(index))))
	}
	return or.named
}

// shares checks that what peers may read leaves the rest of the pool to others. What is of an arena is none of that.
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
