package sim

import (
	"encoding/binary"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/communicator"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
)

// commTarget is the target's end of all links to one life of a node, and the book of what was revoked.
type commTarget struct {
	m       communicator.Target
	out     communicator.TargetOut `snap:"scratch"`
	revokes []commRevoke           // all that ever were, by number
	book    []commRevoke           // the newest, of which peers are told
	forgot  []effects.Incarnation  // peers of whom older ones are not known any more
}

type commRevoke struct {
	grant effects.GrantID
	peer  effects.Incarnation
	waits []commName // epochs that could reach the pool then
}

type commName struct{ link, epoch uint64 }

// bookMax is how many revocations are remembered one by one: few, so that they are forgotten.
const bookMax = 4

// commLimits are those of each target.
func commLimits() communicator.Limits {
	return communicator.Limits{Sessions: 16, OfPeer: 4, Reserved: 8, Epochs: 8, Revokes: 1 << 16}
}

func newCommTarget(seed uint64) *commTarget {
	return &commTarget{m: communicator.NewTarget(commLimits(), seed)}
}

// tellTarget has a node's target take an event, and carries out what comes of it.
func (w *world) tellTarget(n *node, ev communicator.TargetEvent) {
	x := n.target
	x.out.Reset()
	x.m.Step(&ev, &x.out)
	for _, name := range x.out.Fences {
		w.sayInitiator(w.linkBy(name.Session), communicator.Fenced, name.Epoch, 0, nil)
	}
	for _, name := range x.out.Leaves {
		l := w.linkBy(name.Session)
		e := l.comm.epoch(name.Epoch)
		if e.leaves = true; e.made {
			w.leads(n, l, e)
		}
	}
	for _, id := range x.out.Lost {
		l := w.linkBy(id)
		w.inOrder(n, 0, delivery{kind: kindLinkLost, b: uint64(l.from), c: uint64(l.fromLife)})
	}
	for _, name := range x.out.Margins {
		w.forNode(n, commMargin, delivery{kind: kindCommMargin, a: w.linkBy(name.Session).id, b: name.Epoch})
	}
	for _, number := range x.out.Revoked {
		r := &x.revokes[number-1]
		w.oracles.onEpochsRevoked(n, r)
		n.grants[r.grant].gone = true
		w.inOrder(n, 0, delivery{kind: kindRevoked, a: uint64(r.grant)})
	}
	for _, id := range x.out.HangUps {
		if l := w.linkBy(id); !l.comm.closed && w.lives(l.from, l.fromLife) {
			w.forNode(w.nodes[l.from], w.commDraw(l).Heavy(w.plan.Net), delivery{kind: kindCommLost, a: l.id})
		}
	}
}

func (w *world) linkBy(id communicator.SessionID) *link {
	return w.links[binary.LittleEndian.Uint64(id[:])-1]
}

// sayInitiator sends a word to the initiator, behind all others.
func (w *world) sayInitiator(l *link, word communicator.Word, epoch uint64, code effects.Code, body []byte) {
	c := l.comm
	if c.closed || c.cut || !w.lives(l.from, l.fromLife) {
		return
	}
	c.heard = max(c.heard, w.now+int64(w.commDraw(l).Heavy(w.plan.Net)))
	w.queue.push(c.heard, delivery{kind: kindCommHear, node: l.from, life: l.fromLife, a: l.id, b: epoch,
		c: uint64(code)<<8 | uint64(word), body: body})
}

// targetHears takes a word of an initiator's.
func (w *world) targetHears(n *node, l *link, word communicator.Word, epoch uint64) {
	ev := communicator.TargetEvent{Session: session(l), Epoch: epoch}
	switch word {
	case communicator.Fenced:
		ev.Kind = communicator.SaysFenced
	case communicator.Gone:
		ev.Kind = communicator.SaysGone
	case communicator.Offer:
		ev.Kind = communicator.Offers
		w.tellTarget(n, ev)
		out := &n.target.out
		if out.Stale != 0 {
			w.fail("C3", "node %d offers epoch %d of link %d after %d",
				w.nodes[l.from].it(), epoch, oracle.Link(l.id), out.Stale)
			return
		}
		if out.Begun {
			e := l.comm.epoch(epoch)
			e.begun = true
			w.forNode(n, w.commDraw(l).Heavy(2*w.plan.Net), delivery{kind: kindCommMade, a: l.id, b: epoch})
		}
		w.sayInitiator(l, 0, epoch, out.Code, n.target.listed(w, l.us))
		return
	}
	w.tellTarget(n, ev)
}

// listed is what an accept says of grants that were taken back.
func (x *commTarget) listed(w *world, peer effects.Incarnation) []byte {
	more := byte(0)
	if slices.Contains(x.forgot, peer) {
		more = 1
	}
	body := append(w.body(nil), more)
	for _, r := range x.book {
		if r.peer == peer {
			body = binary.LittleEndian.AppendUint64(body, uint64(r.grant))
		}
	}
	return body
}

// made says that our end of an epoch is there, or cannot be made.
func (w *world) made(n *node, l *link, e *commEpoch) {
	switch {
	case w.struck(plan.FaultImport, l.subject(), 1<<32|e.number):
		e.failed, e.gone, e.led = true, true, true
		w.tellTarget(n, communicator.TargetEvent{
			Kind: communicator.EndLed, Session: session(l), Epoch: e.number, Failed: true, Gone: true,
		})
	default:
		if e.made = true; e.leaves {
			w.leads(n, l, e)
		}
	}
	w.met(l, e)
}

// leads has our end destroyed, which takes time.
func (w *world) leads(n *node, l *link, e *commEpoch) {
	at := w.commDraw(l).Heavy(2 * w.plan.Net)
	if s, yes := w.strikes(plan.FaultRevokeHeldUp, l.subject(), 1<<32|e.number); yes {
		at += s.Span(0, 2*effects.Second)
	}
	w.forNode(n, at, delivery{kind: kindCommLed, a: l.id, b: e.number})
}

// led says that our end is gone, or cannot be destroyed.
func (w *world) led(n *node, l *link, e *commEpoch) {
	e.led, e.gone = true, e.lied || !w.struck(plan.FaultEndStays, l.subject(), e.number)
	if e.gone && !l.comm.mapped {
		w.outOfReach(l, e)
	}
	w.tellTarget(n, communicator.TargetEvent{
		Kind: communicator.EndLed, Session: session(l), Epoch: e.number, Gone: e.gone,
	})
	w.needsOperator(n, l)
}

// channelEnds says how the connection of a link ended.
func (w *world) channelEnds(n *node, l *link, proves bool) {
	l.comm.heardEnd = true
	l.comm.unproven = !proves
	w.tellTarget(n, communicator.TargetEvent{Kind: communicator.LinkFails, Session: session(l)})
	w.tellTarget(n, communicator.TargetEvent{Kind: communicator.ChannelEnds, Session: session(l), Proves: proves})
	w.needsOperator(n, l)
}

// needsOperator has the process restarted where nothing will ever prove an epoch over.
func (w *world) needsOperator(n *node, l *link) {
	c := l.comm
	if !c.heardEnd || !c.unproven {
		return
	}
	for _, e := range c.epochs {
		if e.begun && e.led && !e.gone {
			w.callOperator(n)
			return
		}
	}
}

// expel takes a grant back: whoever has it is expelled, and what it was given is noted for who comes again.
func (w *world) expel(n *node, g *grant) {
	x := n.target
	r := commRevoke{grant: g.id, peer: g.peer}
	for _, l := range w.links {
		if l.comm == nil || l.target != n.pool || l.us != g.peer {
			continue
		}
		for _, e := range l.comm.epochs {
			if e.begun && !e.over {
				r.waits = append(r.waits, commName{l.id, e.number})
			}
		}
	}
	x.revokes = append(x.revokes, r)
	if g.peer != (effects.Incarnation{}) {
		if len(x.book) == bookMax {
			if !slices.Contains(x.forgot, x.book[0].peer) {
				x.forgot = append(x.forgot, x.book[0].peer)
			}
			x.book = append(x.book[:0], x.book[1:]...)
		}
		x.book = append(x.book, commRevoke{grant: g.id, peer: g.peer})
	}
	w.tellTarget(n, communicator.TargetEvent{
		Kind: communicator.Expels, Revoke: uint64(len(x.revokes)), Peer: g.peer,
	})
}
