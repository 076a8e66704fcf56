package sim

import "github.com/kvferry/kvferry/effects"

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
		c := &w.commands[d.a-1]
		c.due, c.frozen, c.step = w.now+int64(n.slowest(c.patience)+grace), n.frozen, n.steps+1
		switch c.want {
		case wantGet, wantLook:
			n.seen.gets = append(n.seen.gets, effects.Ticket(d.a))
		case wantDrain:
			n.draining = true
		case wantFetch:
			w.ledger.fetchGiven(n, effects.Ticket(d.a))
		case wantContains:
			w.ledger.containing(n, c)
		case wantAbandon:
			w.ledger.abandoned(n, c.job)
		case wantAbort:
			w.commands[c.target-1].asked.excuse |= 1 << effects.Cancelled
		case wantReserve, wantPut, wantRelease, wantUnpin, wantConflict: // Nothing waits for those.
		}
		s.command = effects.Command{Ticket: effects.Ticket(d.a), Body: c.body}
		ev = &s.command
	case kindReceived:
		if effects.Channel(d.b) == effects.ChannelDone {
			w.ledger.doneHeard(n, d.body)
		} else {
			w.ledger.asked(n, d.c, effects.Channel(d.b), d.a, d.body)
			w.ledger.offerAt(n, d.c, d.body)
		}
		s.received = effects.Received{Conn: effects.Conn(d.a), Channel: effects.Channel(d.b), Request: effects.Request(d.c), Body: d.body}
		ev = &s.received
	case kindOpened:
		s.opened = effects.Opened{Corr: effects.Corr(d.a), Conn: effects.Conn(d.b), Code: effects.Code(d.c)}
		if ev = &s.opened; s.opened.Code != effects.OK {
			s.opened.Conn = 0
		}
		if s.opened.Code == effects.Unreachable {
			w.foundNobody(n, d)
			return
		}
	case kindConnLost:
		if c := w.connOf(d.a); c != nil && c.client == n.id && c.closed {
			return
		}
		w.ledger.askerLost(n, d.a)
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
		w.ledger.importEnded(n, effects.Corr(d.a), effects.Code(d.b))
		s.imported = effects.Imported{Corr: effects.Corr(d.a), Code: effects.Code(d.b), Link: effects.Link(d.c)}
		ev = &s.imported
	case kindLinkLost:
		var peer effects.Incarnation
		if d.a != 0 {
			l := w.links[d.a-1]
			if l.dropped && w.draw(drawMailbox, n).permille(500) {
				return // Else it was in the mailbox when the machine sent Drop.
			}
			peer = l.peer
			l.told = true
		} else {
			peer = w.importedAs(n, int32(d.b), uint32(d.c))
		}
		w.ledger.outOfReach(n, peer, effects.PeerLost)
		w.ledger.gone(n, peer)
		s.linkLost = effects.LinkLost{Link: effects.Link(d.a), Peer: peer}
		ev = &s.linkLost
	case kindTransferDone:
		t := w.transfers[d.a-1]
		s.transferDone = effects.TransferDone{Corr: t.corr, Code: effects.Code(d.b), Settled: d.c == 1, At: w.clock(n)}
		w.ledger.heardOf(t, effects.Code(d.b))
		w.ledger.readFailed(n, t, effects.Code(d.b))
		if t.read {
			w.ledger.readEnded(n, t)
		}
		if d.c == 1 {
			w.ledger.settled(t)
		}
		w.result.code(effects.Code(d.b))
		w.journal.note(w.now, d.kind, n.id, uint64(t.corr), d.b, d.c)
		w.step(n, d.kind, &s.transferDone)
		return
	case kindCopyDone:
		c := w.offloads[d.a-1]
		if d.c == 1 {
			w.ledger.copySettled(c)
		}
		s.copyDone = effects.CopyDone{Corr: c.corr, Code: effects.Code(d.b), Settled: d.c == 1, At: w.clock(n)}
		w.journal.note(w.now, d.kind, n.id, uint64(c.corr), d.b, d.c)
		w.step(n, d.kind, &s.copyDone)
		return
	case kindSettled:
		var corr effects.Corr
		if d.c == settledCopy {
			c := w.offloads[d.a-1]
			w.ledger.copySettled(c)
			corr = c.corr
		} else {
			t := w.transfers[d.a-1]
			w.ledger.settled(t)
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
		w.journal.note(w.now, d.kind, n.id, t.id, uint64(t.grant), uint64(len(t.landed)))
		w.step(n, d.kind, &s.landed)
		for i := range s.pages {
			s.pages[i] = effects.Page{Index: 0xDBDBDBDB}
		}
		return
	case kindRevoked:
		w.ledger.revoked(n, effects.GrantID(d.a))
		s.revoked = effects.Revoked{Grant: effects.GrantID(d.a)}
		ev = &s.revoked
	case kindScattered:
		w.ledger.scattered(n, effects.Ticket(d.b), effects.Code(d.c))
		w.commands[d.b-1].asked.excuse |= 1 << d.c
		ev = &effects.Scattered{Corr: effects.Corr(d.a), Code: effects.Code(d.c)}
	case kindDropped:
		s.dropped = effects.Dropped{Link: effects.Link(d.a)}
		ev = &s.dropped
	default:
		panic("BUG: no event of that kind")
	}
	w.journal.note(w.now, d.kind, n.id, d.a, d.b, d.c)
	if d.body != nil {
		w.journal.bytes(d.body)
	}
	w.step(n, d.kind, ev)
	w.recycle(d.body)
}
