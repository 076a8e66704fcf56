package ledger

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// When an engine registers blocks, the registration request grants the blocks to the peer that is to write the blocks.
// The reply says that nothing writes any more: on leased planes the reply frees the pages. An engine lends the blocks
// that are finished.

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkBlocksGranted  = oracle.NewCheck("S25", "pages that registrations name")
	checkBlocksOnce     = oracle.NewCheck("S14", "registrations under one grant each")
	checkBlocksAnswered = oracle.NewCheck("S3", "answers to registrations, of who writes")
	checkBlocksHeard    = oracle.NewCheck("S3", "answers to registrations, of what is written")
	checkWriteOnce      = oracle.NewCheck("S14", "writes of a registration")
	checkWriteLent      = oracle.NewCheck("S14", "writes of what is lent")
	checkAnswerOnce     = oracle.NewCheck("L8", "registrations that wait for nothing")
	checkBlocksShare    = oracle.NewCheck("S18", "shares of registrations")
)

// registeredOracle judges the grants of registered blocks.
type registeredOracle struct {
	judge
	perLife[registeredLife]
	reg protocol.PushRegistration `snap:"scratch"`
	off protocol.PushWithdrawal   `snap:"scratch"`
	end protocol.PushEnd          `snap:"scratch"`
}

func (*registeredOracle) listen(l *oracle.Listen[registeredOracle]) {
	oracle.On(l, func(o *registeredOracle, _ *oracle.Call, e world.Received) {
		if effects.Channel(e.Delivery.B) == effects.ChannelRegister {
			o.heard(e.Node, e.Delivery.C, e.Delivery.Body)
		}
	})
	oracle.On(l, func(o *registeredOracle, _ *oracle.Call, e world.Replied) {
		o.replied(e.Node, e.Conn, e.Corr, e.Body)
	})
	oracle.On(l, func(o *registeredOracle, _ *oracle.Call, e world.Sending) {
		if e.Conn.Channel == effects.ChannelRegister {
			o.asking(e.Node, e.Conn, e.Corr, e.Body)
		}
	})
	oracle.On(l, func(o *registeredOracle, _ *oracle.Call, e world.Replying) { o.answering(e.Node, e.Request, e.Body) })
	oracle.On(l, func(o *registeredOracle, _ *oracle.Call, e world.Publishing) {
		if o.w.Flows.Alone() != nil {
			o.published(e.Node, e.Pages)
		}
	})
	oracle.On(l, func(o *registeredOracle, _ *oracle.Call, e world.Transferring) {
		if o.w.Flows.Alone() != nil {
			o.transferring(e.Node, e.Transfer)
		}
	})
	oracle.On(l, func(o *registeredOracle, _ *oracle.Call, e counted) { o.afterStep(e.node) })
}

// registeredLife records the registrations of an incarnation of a node, as a sender and as a receiver.
type registeredLife struct {
	asked    []registeredAsk     // requests in flight
	came     []registeredCame    // received registrations without a reply
	written  []registeredWrite   // grants under which this incarnation wrote
	grants   []registeredGrant   // of this incarnation
	newest   effects.Incarnation // the peer whose registration arrived in this step, if the peer is known
	question uint64              `snap:"request"` // the message of that registration
}

func (s *registeredLife) startReply() {
	*s = registeredLife{asked: s.asked[:0], came: s.came[:0], written: s.written[:0], grants: s.grants[:0]}
}

// registeredAsk is a request without a reply. The reply ends a grant.
type registeredAsk struct {
	conn      uint64
	corr      effects.Corr
	operation uint64
}

// registeredCame is a registration without a reply, as recorded at the receiver.
type registeredCame struct {
	request   uint64 `snap:"request"`
	peer      effects.Incarnation
	operation uint64
	grant     effects.GrantID
}

// registeredWrite records that blocks were written to a peer under a grant.
type registeredWrite struct {
	to    effects.Incarnation
	grant effects.GrantID
}

// registeredGrant is the grant of an operation.
type registeredGrant struct {
	operation uint64
	grant     effects.GrantID
}

// grantOf returns the grant of an operation, and whether the operation was registered.
func (s *registeredLife) grantOf(operation uint64) (effects.GrantID, bool) {
	for i := range s.grants {
		if s.grants[i].operation == operation {
			return s.grants[i].grant, true
		}
	}
	return 0, false
}

// published records the pages that an engine lends, when the machine publishes the generation of the pages.
func (or *registeredOracle) published(n *world.Node, pages []effects.Page) {
	for _, p := range pages {
		pg := &n.Pool.Pages[p.Index]
		pg.Reserved, pg.Last = or.w.Flows.Alone().Lender(or.w, n, p.Index), p.Generation
		n.Pool.Touch(p.Index)
	}
}

// asking checks a registration or a withdrawal when the message is sent.
func (or *registeredOracle) asking(n *world.Node, c *world.Conn, corr effects.Corr, body []byte) {
	my := or.at(n)
	if or.off.Decode(body, &pd.WireLimits) == nil {
		my.asked = append(my.asked, registeredAsk{c.ID, corr, or.off.Operation})
		return
	}
	m := &or.reg
	if m.Decode(body, &pd.WireLimits) != nil || !m.HasExt {
		return
	}
	or.judged(checkBlocksGranted, checkBlocksOnce)
	id := effects.GrantID(m.Ext.Grant)
	or.all().queue.grantAsks(n, id)
	if was, known := my.grantOf(m.Ext.Operation); known && was != id {
		or.fail(checkBlocksOnce, "node %d registers under grant %d what it registered under grant %d", n.It(),
			n.ItsGrant(id), n.ItsGrant(was))
		return
	}
	my.grants = append(my.grants, registeredGrant{m.Ext.Operation, id})
	my.asked = append(my.asked, registeredAsk{c.ID, corr, m.Ext.Operation})
	if id == 0 {
		return
	}
	g := n.Grants[id]
	if g == nil || g.Read || m.Ext.Attempt == 1 && !standsUnder(n.Pool, g) || len(g.Pages) != len(m.Ext.Generations) {
		or.fail(checkBlocksGranted, "node %d registers blocks under grant %d, which does not stand, or is of other pages",
			n.It(), n.ItsGrant(id))
		return
	}
	g.Shared = g.Shared[:0]
	for i := range g.Pages {
		if m.Ext.Generations[i] != uint64(g.Pages[i].Generation) {
			or.fail(checkBlocksGranted, "node %d registers page %d in another life than that which it granted", n.It(),
				n.ItsPage(g.Pages[i].Index))
			return
		}
		g.Shared = append(g.Shared, 0)
	}
}

// heard records a registration at the receiver.
func (or *registeredOracle) heard(n *world.Node, request uint64, body []byte) {
	m := &or.reg
	if m.Decode(body, &pd.WireLimits) == nil && m.HasExt && // Strangers may send the same message, and are refused.
		pd.Believes(n, effects.Incarnation(m.Ext.Incarnation), effects.Incarnation(m.Ext.To)) {
		my := or.at(n)
		my.newest, my.question = effects.Incarnation(m.Ext.Incarnation), request
		my.came = append(my.came, registeredCame{request, my.newest, m.Ext.Operation, effects.GrantID(m.Ext.Grant)})
	}
}

// afterStep checks that a registration which arrived, and got no reply at once, may wait: no peer has more rows of the
// table than the peer leaves free.
func (or *registeredOracle) afterStep(n *world.Node) {
	my := or.at(n)
	newest := my.newest
	if newest == (effects.Incarnation{}) {
		return
	}
	my.newest = effects.Incarnation{}
	if n := len(my.came); n == 0 || my.came[n-1].request != my.question || slices.ContainsFunc(my.came[:n-1],
		my.came[n-1].asksAgain) {
		return // The registration got a reply, or is a retry: peers may have used free rows since the first attempt.
	}
	or.judged(checkBlocksShare)
	its, all := 0, 0
	for i := range my.came {
		x := &my.came[i]
		if slices.ContainsFunc(my.came[:i], x.asksAgain) {
			continue
		}
		if all++; x.peer == newest {
			its++
		}
	}
	if most := int(pd.Its(n).Cfg.RegistrationsMax); its > 0 && its+all > most+1 {
		or.fail(checkBlocksShare, "node %d has %d registrations of one peer wait, and %d in all, in a table of %d",
			n.It(), its, all, most)
	}
}

// asksAgain reports whether two messages are attempts of the same registration.
func (x *registeredCame) asksAgain(other registeredCame) bool {
	return x.peer == other.peer && x.operation == other.operation
}

// transferring checks a write when the write starts: each registration is written once, from pages that are lent (S14).
func (or *registeredOracle) transferring(n *world.Node, t *world.Transfer) {
	or.judged(checkWriteOnce)
	my, x := or.at(n), registeredWrite{t.Link.Peer, t.Grant}
	if slices.Contains(my.written, x) {
		or.fail(checkWriteOnce, "node %d writes a second time under grant %d", n.It(), t.Remote.Node.ItsGrant(t.Grant))
		return
	}
	my.written = append(my.written, x)
	or.judged(checkWriteLent)
	for _, p := range t.Pairs {
		if lent := n.Pool.Pages[p.Local.Index].Reserved; lent == 0 || or.w.Commands[lent-1].Over {
			or.fail(checkWriteLent, "node %d writes its page %d, of a request that has ended", n.It(),
				n.ItsPage(p.Local.Index))
			return
		}
	}
	if !slices.ContainsFunc(my.came, func(c registeredCame) bool { return c.grant == t.Grant }) {
		or.fail(checkWriteOnce, "node %d writes under grant %d, for which it has no registration that waits", n.It(),
			t.Remote.Node.ItsGrant(t.Grant))
	}
}

// answering checks a reply when the reply is sent: nothing writes under the grant any more (S3).
func (or *registeredOracle) answering(n *world.Node, request uint64, body []byte) {
	my := or.at(n)
	i := slices.IndexFunc(my.came, func(x registeredCame) bool { return x.request == request })
	if i < 0 {
		return
	}
	x := my.came[i]
	my.came = slices.DeleteFunc(my.came, x.asksAgain) // Retries share one reply.
	or.judged(checkBlocksAnswered)
	for _, t := range or.w.Going.Transfers.Some {
		if !t.Read && t.Reading && t.Local == n.Pool && t.Grant == x.grant && t.Link.Peer == x.peer {
			or.fail(checkBlocksAnswered, "node %d answers a registration while its transfer %d may still write under grant %d",
				n.It(), oracle.Transfer(t.ID), t.Remote.Node.ItsGrant(x.grant))
			return
		}
	}
}

// replied handles a reply at the peer that granted the pages: on leased planes nothing writes the pages any more (S3).
func (or *registeredOracle) replied(n *world.Node, c *world.Conn, corr effects.Corr, body []byte) {
	my := or.at(n)
	i := slices.IndexFunc(my.asked, func(x registeredAsk) bool { return x.conn == c.ID && x.corr == corr })
	if i < 0 {
		return
	}
	operation := my.asked[i].operation
	my.asked = slices.Delete(my.asked, i, i+1)
	id, _ := my.grantOf(operation)
	m, g := &or.end, n.Grants[id]
	if !or.w.Setting.Leased || g == nil || m.Decode(body, &pd.WireLimits) != nil || m.Operation != operation ||
		m.Incarnation != protocol.UUID(g.Peer) || effects.CodeFromWire(m.Code) == effects.Stale {
		return // A writer that does not know the owner says nothing of the writes of an earlier incarnation.
	}
	or.judged(checkBlocksHeard)
	g.Late = or.w.Clock(n) > g.Ends
	for _, p := range g.Pages {
		pg := &n.Pool.Pages[p.Index]
		if pg.Granted != id {
			continue
		}
		if pg.Writers > 0 {
			or.fail(checkBlocksHeard, "node %d is answered under grant %d while a store into page %d is under way",
				n.It(), n.ItsGrant(id), n.ItsPage(p.Index))
			return
		}
		pg.Granted = 0
		n.Pool.Touch(p.Index)
	}
}

// rests checks that no registration is left at a node when nothing is in flight.
func (or *registeredOracle) rests(n *world.Node, stats int) {
	or.judged(checkAnswerOnce)
	if stats > 0 {
		or.fail(checkAnswerOnce, "node %d has %d registrations or requests left that it finished, and nothing is under way",
			n.It(), stats)
	}
}
