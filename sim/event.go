package sim

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
)

// event turns a delivery into the event of n's machine and steps it. What was
// closed or cut meanwhile is left out here, as a driver would.
func (w *world) event(n *node, d delivery) {
	s := &n.events
	var ev effects.Event
	switch d.kind {
	case kindTick:
		if d.a != n.tickGen {
			return
		}
		n.tickAt = 0
		ev = &s.tick
	case kindCommand:
		t := effects.Ticket(d.a)
		s.command = effects.Command{Ticket: t, Body: w.system.engine.command(w, n, t)}
		ev = &s.command
	case kindReceived:
		w.oracles.onReceived(n, d)
		s.received = effects.Received{Conn: effects.Conn(d.a), Channel: effects.Channel(d.b), Request: effects.Request(d.c), Body: d.body}
		ev = &s.received
	case kindOpened:
		s.opened = effects.Opened{Corr: effects.Corr(d.a), Conn: effects.Conn(d.b), Code: effects.Code(d.c)}
		if ev = &s.opened; s.opened.Code != effects.OK {
			s.opened.Conn = 0
		} else {
			w.connOf(d.b).up = true
		}
		if s.opened.Code == effects.Unreachable {
			w.foundNobody(n, d)
			return
		}
	case kindConnLost:
		if c := w.connOf(d.a); c != nil && c.client == n.id && c.closed {
			return
		}
		w.oracles.onConnLost(n, d.a)
		s.connLost = effects.ConnLost{Conn: effects.Conn(d.a)}
		ev = &s.connLost
	case kindReplied:
		if w.conns[d.b-1].closed {
			w.result.met(AnsweredAfterClose)
		}
		w.answerHeard(n, w.conns[d.b-1], effects.Corr(d.a), d.body)
		s.replied = effects.Replied{Corr: effects.Corr(d.a), Body: d.body}
		ev = &s.replied
	case kindUnanswered:
		s.unanswered = effects.Unanswered{Corr: effects.Corr(d.a), Code: effects.Code(d.b)}
		ev = &s.unanswered
	case kindSendDone:
		s.sendDone = effects.SendDone{Corr: effects.Corr(d.a), Code: effects.Code(d.b)}
		ev = &s.sendDone
	case kindImported:
		if d.c != 0 {
			w.links[d.c-1].given = true
		}
		w.oracles.onImported(n, effects.Corr(d.a), effects.Code(d.b))
		s.imported = effects.Imported{Corr: effects.Corr(d.a), Code: effects.Code(d.b), Link: effects.Link(d.c)}
		ev = &s.imported
	case kindLinkLost:
		var peer effects.Incarnation
		if d.a != 0 {
			l := w.links[d.a-1]
			if l.dropped && w.draw(draw.Mailbox, n).Permille(500) {
				return // Else it was in the mailbox when the machine sent Drop.
			}
			peer = l.peer
			l.told = true
		} else {
			peer = w.importedAs(n, int32(d.b), uint32(d.c))
		}
		w.oracles.onLinkLost(n, peer)
		s.linkLost = effects.LinkLost{Link: effects.Link(d.a), Peer: peer}
		ev = &s.linkLost
	case kindTransferDone:
		t := w.transfers[d.a-1]
		s.transferDone = effects.TransferDone{Corr: t.corr, Code: effects.Code(d.b), Settled: d.c == 1, At: w.clock(n)}
		w.oracles.onTransferDone(n, t, effects.Code(d.b), d.c == 1)
		w.result.code(effects.Code(d.b))
		w.journal.note(w.now, d.kind, n.id, uint64(t.corr), d.b, d.c)
		w.step(n, d.kind, &s.transferDone)
		return
	case kindCopyDone:
		c := w.offloads[d.a-1]
		if d.c == 1 {
			w.oracles.onCopySettled(c)
		}
		s.copyDone = effects.CopyDone{Corr: c.corr, Code: effects.Code(d.b), Settled: d.c == 1, At: w.clock(n)}
		w.journal.note(w.now, d.kind, n.id, uint64(c.corr), d.b, d.c)
		w.step(n, d.kind, &s.copyDone)
		return
	case kindSettled:
		var corr effects.Corr
		if d.c == settledCopy {
			c := w.offloads[d.a-1]
			w.oracles.onCopySettled(c)
			corr = c.corr
		} else {
			t := w.transfers[d.a-1]
			w.oracles.onSettled(t)
			corr = t.corr
		}
		s.settled = effects.Settled{Corr: corr, Code: effects.Code(d.b)}
		w.journal.note(w.now, d.kind, n.id, uint64(corr), d.b, 0)
		w.step(n, d.kind, &s.settled)
		return
	case kindLanded:
		t := w.transfers[d.a-1]
		s.pages = append(s.pages[:0], t.landed...)
		t.landing = landingReported
		s.landed = effects.Landed{Landing: effects.Landing(t.id), Grant: t.grant, Peer: t.initiator, Pages: s.pages,
			Complete: len(t.landed) == len(t.pairs)}
		w.oracles.onLandedTold(n, t, s.landed.Complete)
		w.journal.note(w.now, d.kind, n.id, t.id, uint64(t.grant), uint64(len(t.landed)))
		w.step(n, d.kind, &s.landed)
		for i := range s.pages {
			s.pages[i] = effects.Page{Index: 0xDBDBDBDB}
		}
		return
	case kindRevoked:
		w.oracles.onRevoked(n, effects.GrantID(d.a))
		s.revoked = effects.Revoked{Grant: effects.GrantID(d.a)}
		ev = &s.revoked
	case kindScattered:
		w.oracles.onScattered(n, effects.Ticket(d.b), effects.Code(d.c))
		ev = &effects.Scattered{Corr: effects.Corr(d.a), Code: effects.Code(d.c)}
	case kindDropped:
		s.dropped = effects.Dropped{Link: effects.Link(d.a)}
		ev = &s.dropped
	default:
		panic("BUG: no event of that kind")
	}
	w.journal.note(w.now, d.kind, n.id, d.a, d.b, d.c)
	if d.body != nil {
		w.journal.heard(d.body)
	}
	w.unread = d.kind == kindReceived && d.c > 0 && w.requests[d.c-1].repeats
	w.step(n, d.kind, ev)
	if w.unread && n.up && n.life == d.life {
		w.fail("S26", "node %d takes request %d, which gives a field twice", n.it(), oracle.Message(d.c))
	}
	w.recycle(d.body)
}

// foundNobody tells a machine that nobody listens where it connects.
func (w *world) foundNobody(n *node, d delivery) {
	c, life := w.conns[d.b-1], n.life
	w.oracles.onUnreachable(n, c)
	w.journal.note(w.now, d.kind, n.id, d.a, d.b, d.c)
	if w.step(n, d.kind, &n.events.opened); n.up && n.life == life {
		w.oracles.afterUnreachable(n, c)
	}
}

// importedAs is the name by which a life of another node has imported n.
func (w *world) importedAs(n *node, from int32, life uint32) effects.Incarnation {
	for _, l := range w.links {
		if l.from == from && l.fromLife == life && l.target == n.pool {
			return l.us
		}
	}
	panic("BUG: a link is lost that nobody made")
}
