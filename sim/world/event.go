package world

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
)

// handleEvent converts a delivery into an event of n's machine and steps the machine. As in a real driver, an event is
// left out if its connection or link was closed in the meantime.
func (n *Node) handleEvent(w *World, d Delivery) {
	s := &n.events
	var ev effects.Event
	switch d.Kind {
	case KindTick:
		if d.A != n.TickGen {
			return
		}
		n.TickAt = 0
		ev = &s.tick
	case KindCommand:
		t := effects.Ticket(d.A)
		s.command = effects.Command{Ticket: t, Body: w.System.CommandBody(n, t)}
		ev = &s.command
	case KindReceived:
		proof := w.ClientProof(d.A)
		s.received = effects.Received{Conn: effects.Conn(d.A), Origin: w.OriginOf(n, d.A),
			Principal: proof.Principal, Roles: proof.Roles, Tenants: proof.Tenants, Realm: proof.Realm,
			Channel: effects.Channel(d.B), Request: effects.Request(d.C),
			Body: d.Body}
		if d.C > 0 {
			w.Requests[d.C-1].Tenants, w.Requests[d.C-1].Realm = proof.Tenants, proof.Realm
		}
		if ev = &s.received; len(w.SourcePlan.Topology.Identities) > 0 && !n.Custom {
			w.forbidden = w.System.ForbidMessage(n, &s.received)
		}
		if !w.forbidden.Is {
			OnMessageReceived.Report(&w.Panel, n.ID, MessageReceived{n, d})
		} else if d.C > 0 {
			w.Requests[d.C-1].isForbidden = true
		}
	case KindOpened:
		s.opened = effects.Opened{Corr: effects.Corr(d.A), Conn: effects.Conn(d.B), Code: effects.Code(d.C)}
		w.ConnOf(d.B).OpenReportedAt = w.Now
		if ev = &s.opened; s.opened.Code != effects.OK {
			s.opened.Conn = 0
		} else {
			w.ConnOf(d.B).OpenReported = true
		}
		if s.opened.Code == effects.Unreachable {
			n.reportUnreachable(w, d)
			return
		}
	case KindConnLost:
		if c := w.ConnOf(d.A); c != nil && c.Client == n.ID && c.Closed {
			return
		}
		OnConnLost.Report(&w.Panel, n.ID, ConnLost{n, d.A})
		s.connLost = effects.ConnLost{Conn: effects.Conn(d.A)}
		ev = &s.connLost
	case KindReplied:
		if w.Conns[d.B-1].Closed {
			OnReplyAfterClose.Report(&w.Panel, oracle.NoNode, ReplyAfterClose{})
		}
		w.Conns[d.B-1].handleReply(w, n, effects.Corr(d.A), d.Body)
		proof := w.ServerProof(w.Conns[d.B-1])
		s.replied = effects.Replied{Corr: effects.Corr(d.A), Principal: proof.Principal, Tenants: proof.Tenants, Realm: proof.Realm, Body: d.Body}
		ev = &s.replied
	case KindUnanswered:
		s.unanswered = effects.Unanswered{Corr: effects.Corr(d.A), Code: effects.Code(d.B)}
		ev = &s.unanswered
	case KindSendDone:
		s.sendDone = effects.SendDone{Corr: effects.Corr(d.A), Code: effects.Code(d.B)}
		ev = &s.sendDone
	case KindImported:
		if d.C != 0 {
			w.Links[d.C-1].ImportReported = true
		}
		OnImportEnded.Report(&w.Panel, n.ID, ImportEnded{n, effects.Corr(d.A), effects.Code(d.B)})
		s.imported = effects.Imported{Corr: effects.Corr(d.A), Code: effects.Code(d.B), Link: effects.Link(d.C)}
		ev = &s.imported
	case KindLinkLost:
		var peer effects.Incarnation
		if d.A != 0 {
			l := w.Links[d.A-1]
			if l.Dropped && n.nextDraw(w, draw.Mailbox).ChancePermille(500) {
				return // Otherwise the notification was in the mailbox when the machine emitted Drop.
			}
			peer = l.Peer
			l.LossReported = true
		} else {
			peer = n.importerIncarnation(w, int32(d.B), uint32(d.C))
		}
		OnLinkLost.Report(&w.Panel, n.ID, LinkLost{n, peer, d.A == 0})
		s.linkLost = effects.LinkLost{Link: effects.Link(d.A), Peer: peer}
		ev = &s.linkLost
	case KindTransferDone:
		t := w.Transfers[d.A-1]
		s.transferDone = effects.TransferDone{Corr: t.Corr, Code: effects.Code(d.B), Settled: d.C&1 == 1, At: n.ReadingAt(w.endTime(d))}
		OnTransferDone.Report(&w.Panel, n.ID, TransferDone{n, t, effects.Code(d.B), d.C&1 == 1, w.endTime(d)})
		if d.C&1 == 1 {
			OnTransferSettled.Report(&w.Panel, oracle.NoNode, TransferSettled{t})
		}
		w.Result.countCode(effects.Code(d.B))
		w.Journal.AddLine(w.Now, d.Kind, n.ID, uint64(t.Corr), d.B, d.C&1)
		n.stepMachine(w, d.Kind, &s.transferDone)
		return
	case kindCopyDone:
		c := w.Copies[d.A-1]
		if d.C&1 == 1 {
			OnCopySettled.Report(&w.Panel, oracle.NoNode, CopySettled{c})
		}
		s.copyDone = effects.CopyDone{Corr: c.corr, Code: effects.Code(d.B), Settled: d.C&1 == 1, At: n.ReadingAt(w.endTime(d))}
		w.Journal.AddLine(w.Now, d.Kind, n.ID, uint64(c.corr), d.B, d.C&1)
		n.stepMachine(w, d.Kind, &s.copyDone)
		return
	case KindSettled:
		var corr effects.Corr
		if d.C == settledIsCopy {
			c := w.Copies[d.A-1]
			OnCopySettled.Report(&w.Panel, oracle.NoNode, CopySettled{c})
			corr = c.corr
		} else {
			t := w.Transfers[d.A-1]
			OnTransferSettled.Report(&w.Panel, oracle.NoNode, TransferSettled{t})
			corr = t.Corr
		}
		s.settled = effects.Settled{Corr: corr, Code: effects.Code(d.B)}
		w.Journal.AddLine(w.Now, d.Kind, n.ID, uint64(corr), d.B, 0)
		n.stepMachine(w, d.Kind, &s.settled)
		return
	case KindLanded:
		t := w.Transfers[d.A-1]
		s.pages = append(s.pages[:0], t.Landed...)
		t.landing = landingReported
		s.landed = effects.Landed{Landing: effects.Landing(t.ID), Grant: t.Grant, Peer: t.Initiator, Pages: s.pages,
			Complete: len(t.Landed) == len(t.Pairs), Corrupt: t.corrupt}
		OnLandingReported.Report(&w.Panel, n.ID, LandingReported{n, t, s.landed.Complete})
		w.Journal.AddLine(w.Now, d.Kind, n.ID, t.ID, uint64(t.Grant), uint64(len(t.Landed)))
		n.stepMachine(w, d.Kind, &s.landed)
		for i := range s.pages {
			s.pages[i] = effects.Page{Index: 0xDBDBDBDB}
		}
		return
	case KindVerified:
		n.finishVerify(w, d)
		return
	case KindRevoked:
		OnGrantRevoked.Report(&w.Panel, n.ID, GrantRevoked{n, effects.GrantID(d.A)})
		s.revoked = effects.Revoked{Grant: effects.GrantID(d.A)}
		ev = &s.revoked
	case KindScattered:
		OnScatterEnded.Report(&w.Panel, n.ID, ScatterEnded{n, effects.Ticket(d.B), effects.Code(d.C)})
		ev = &effects.Scattered{Corr: effects.Corr(d.A), Code: effects.Code(d.C)}
	case KindDropped:
		s.dropped = effects.Dropped{Link: effects.Link(d.A)}
		ev = &s.dropped
	default:
		panic("BUG: no event for this kind of delivery")
	}
	w.Journal.AddLine(w.Now, d.Kind, n.ID, d.A, d.B, d.C)
	if d.Body != nil {
		w.Journal.addBytes(d.Body)
	}
	w.repeatUnreported = d.Kind == KindReceived && d.C > 0 && w.Requests[d.C-1].repeatsField
	n.stepMachine(w, d.Kind, ev)
	if w.repeatUnreported && n.Up && n.Incarnation == d.Incarnation {
		w.Fail("S26", "node %d accepts request %d, which repeats a field", n.AsSubject(), oracle.Message(d.C))
	}
	w.RecycleBody(d.Body)
}

// reportUnreachable reports to a machine that no server listens at the address to which it connects.
func (n *Node) reportUnreachable(w *World, d Delivery) {
	c, life := w.Conns[d.B-1], n.Incarnation
	OnServerUnreachable.Report(&w.Panel, n.ID, ServerUnreachable{n, c})
	w.Journal.AddLine(w.Now, d.Kind, n.ID, d.A, d.B, d.C)
	if n.stepMachine(w, d.Kind, &n.events.opened); n.Up && n.Incarnation == life {
		OnUnreachableReported.Report(&w.Panel, n.ID, UnreachableReported{n, c})
	}
}

// importerIncarnation returns the incarnation by which another node's incarnation has imported n.
func (n *Node) importerIncarnation(w *World, from int32, life uint32) effects.Incarnation {
	for _, l := range w.Links {
		if l.From == from && l.FromIncarnation == life && l.Target == n.Pool {
			return l.ImporterName
		}
	}
	panic("BUG: a link is lost that was never imported")
}
