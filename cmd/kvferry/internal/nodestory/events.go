package nodestory

import (
	"cmp"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/sim/trace"
)

// addEvent adds the event of a step.
func (s *Story) addEvent(event effects.Event) {
	const noCause = -1
	switch e := event.(type) {
	case *effects.Tick:
		s.add(trace.Fact, noCause, nil, "a deadline is over")
	case *effects.Command:
		c := &trace.Command{Ticket: uint64(e.Ticket), Node: laneNode, Kind: commandName(e.Body), Given: s.now, Delivered: trace.Never,
			Returned: trace.Never, Refs: s.commandRefs(e)}
		s.commands, s.tickets[e.Ticket] = append(s.commands, c), c
		s.add(trace.Engine, noCause, c.Refs, "the engine gives the command %s, ticket %d", c.Kind, e.Ticket)
	case *effects.Received:
		m := s.addMessage(false, e.Channel, e.Body, []int{s.ref("request %d of a peer", e.Request), s.ref("conn %d", e.Conn)})
		if e.Request != 0 {
			s.received[e.Request] = m
		}
		s.add(trace.Control, noCause, m.Refs, "%s arrives on the %s channel, %d bytes", m.Kind, e.Channel, len(e.Body))
	case *effects.Opened:
		s.conns[e.Conn] = s.opening[e.Corr]
		delete(s.opening, e.Corr)
		s.add(trace.Control, noCause, []int{s.ref("conn %d", e.Conn)}, "connection %d of the %s channel: %s", e.Conn, s.conns[e.Conn], e.Code)
	case *effects.ConnLost:
		s.add(trace.Control, noCause, []int{s.ref("conn %d", e.Conn)}, "connection %d is lost", e.Conn)
	case *effects.Replied:
		refs := s.answer(e.Corr)
		m := s.addMessage(false, effects.ChannelOther, e.Body, refs)
		s.add(trace.Control, noCause, refs, "%s arrives as a reply, %d bytes", m.Kind, len(e.Body))
	case *effects.Unanswered:
		refs := []int(nil)
		if m := s.sent[e.Corr]; m != nil {
			m.Lost, refs = true, m.Refs
			delete(s.sent, e.Corr)
		}
		s.add(trace.Control, noCause, refs, "a request will not be answered: %s", e.Code)
	case *effects.SendDone:
		s.add(trace.Control, noCause, s.answer(e.Corr), "a message was handed to the transport: %s", e.Code)
	case *effects.Imported:
		s.add(trace.Control, noCause, []int{s.ref("link %d", e.Link), s.ref("corr %d", e.Corr)}, "the data plane's link %d: %s", e.Link, e.Code)
	case *effects.LinkLost:
		s.add(trace.Data, noCause, []int{s.ref("link %d", e.Link), s.peerRef(e.Peer)}, "link %d to peer %x is lost", e.Link, e.Peer[:4])
	case *effects.TransferDone:
		refs := []int{s.ref("corr %d", e.Corr)}
		if t := s.moving[e.Corr]; t != nil {
			t.Ended, t.Code, refs = s.now, e.Code.String(), t.Refs
			s.settle(e.Corr, e.Settled)
		}
		s.add(trace.Data, noCause, refs, "a transfer ends: %s, settled: %t", e.Code, e.Settled)
	case *effects.CopyDone:
		s.add(trace.Data, noCause, []int{s.ref("corr %d", e.Corr)}, "a copy ends: %s, settled: %t", e.Code, e.Settled)
	case *effects.Settled:
		refs := []int{s.ref("corr %d", e.Corr)}
		if t := s.moving[e.Corr]; t != nil {
			refs = t.Refs
		}
		s.settle(e.Corr, true)
		s.add(trace.Data, noCause, refs, "a transfer is settled: %s", e.Code)
	case *effects.Landed:
		if g := s.granted[e.Grant]; g != nil && e.Complete {
			s.endGrant(e.Grant)
		}
		s.add(trace.Data, noCause, s.pageRefs([]int{s.ref("grant %d", e.Grant), s.peerRef(e.Peer)}, e.Pages),
			"%d pages of grant %d have landed, complete: %t, corrupt: %d", len(e.Pages), e.Grant, e.Complete, e.Corrupt)
	case *effects.Verified:
		s.add(trace.Data, noCause, s.pageRefs([]int{s.ref("corr %d", e.Corr)}, e.Pages), "%d pages have their checksum, %d have not",
			len(e.Pages), e.Corrupt)
	case *effects.Scattered:
		s.add(trace.Engine, noCause, []int{s.ref("corr %d", e.Corr)}, "the engine's device code has read pages: %s", e.Code)
	case *effects.Revoked:
		s.endGrant(e.Grant)
		s.add(trace.Memory, noCause, []int{s.ref("grant %d", e.Grant)}, "grant %d is revoked: nothing can touch its pages any more", e.Grant)
	case *effects.Dropped:
		s.add(trace.Control, noCause, []int{s.ref("link %d", e.Link)}, "link %d is dropped", e.Link)
	}
}

// commandRefs returns the things that a command names.
func (s *Story) commandRefs(e *effects.Command) []int {
	refs := []int{s.ref("ticket %d", e.Ticket)}
	switch b := e.Body.(type) {
	case *engine.Put:
		refs = s.pageRefs(append(refs, s.ref("request %s", b.Request)), b.Pages)
	case *engine.Get:
		refs = append(refs, s.ref("request %s", b.Request))
	case *engine.Release:
		refs = append(refs, s.ref("ticket %d", b.Reserved))
	case *engine.Unpin:
		refs = append(refs, s.ref("ticket %d", b.Got))
	case *engine.Abort:
		refs = append(refs, s.ref("ticket %d", b.Target))
	default: // The ticket is enough to find the others.
	}
	return refs
}

// answer ends a message that this node sent, and returns what the message concerned.
func (s *Story) answer(c effects.Corr) []int {
	m := s.sent[c]
	if m == nil {
		return []int{s.ref("corr %d", c)}
	}
	m.Arrived = s.now
	delete(s.sent, c)
	return m.Refs
}

func (s *Story) settle(c effects.Corr, settled bool) {
	if t := s.moving[c]; t != nil && settled {
		t.Settled = s.now
		delete(s.moving, c)
	}
}

func (s *Story) endGrant(id effects.GrantID) {
	if g := s.granted[id]; g != nil {
		g.Unusable = s.now
		delete(s.granted, id)
	}
}

// addEffect adds an effect of the event with the index cause.
func (s *Story) addEffect(effect effects.Effect, cause int) {
	switch e := effect.(type) {
	case *effects.Open:
		s.opening[e.Corr] = e.Channel
		s.add(trace.Control, cause, []int{s.ref("address %s:%d", e.Addr.Host, e.Addr.Port)}, "opens a connection of the %s channel to %s:%d",
			e.Channel, e.Addr.Host, e.Addr.Port)
	case *effects.Close:
		delete(s.conns, e.Conn)
		s.add(trace.Control, cause, []int{s.ref("conn %d", e.Conn)}, "closes connection %d", e.Conn)
	case *effects.Send:
		s.addSend(e.Corr, e.Conn, e.Body, cause)
	case *effects.Post:
		s.addSend(e.Corr, e.Conn, e.Body, cause)
	case *effects.Reply:
		refs := []int{s.ref("request %d of a peer", e.Request)}
		channel := effects.ChannelOther.String()
		if m := s.received[e.Request]; m != nil {
			refs, channel = m.Refs, m.Channel
			delete(s.received, e.Request)
		}
		m := s.addMessage(true, effects.ChannelOther, e.Body, refs)
		m.Channel, m.Arrived = channel, s.now // Nobody says when the reply arrives.
		s.add(trace.Control, cause, refs, "replies %s, %d bytes", m.Kind, len(e.Body))
	case *effects.Import:
		s.add(trace.Control, cause, []int{s.peerRef(e.Peer), s.ref("corr %d", e.Corr)}, "connects the plane %s to peer %x", e.Plane, e.Peer[:4])
	case *effects.Drop:
		s.add(trace.Control, cause, []int{s.ref("link %d", e.Link)}, "drops link %d", e.Link)
	case *effects.Publish:
		s.add(trace.Memory, cause, s.pageRefs(nil, e.Pages), "gives %d pages new generations", len(e.Pages))
	case *effects.Grant:
		s.addGrant(e, cause)
	case *effects.Revoke:
		if g := s.granted[e.Grant]; g != nil {
			g.Revoked = s.now
		}
		s.add(trace.Memory, cause, []int{s.ref("grant %d", e.Grant)}, "revokes grant %d", e.Grant)
	case *effects.Transfer:
		s.addTransfer(e, cause)
	case *effects.Copy:
		s.add(trace.Data, cause, []int{s.ref("corr %d", e.Corr)}, "copies %d pages within the node", len(e.Pairs))
	case *effects.Store:
		s.add(trace.Data, cause, s.pageRefs(nil, []effects.Page{e.Page}), "stores %d bytes of the message into page %d", len(e.Bytes),
			e.Page.Index)
	case *effects.Verify:
		s.add(trace.Data, cause, s.pageRefs([]int{s.ref("corr %d", e.Corr)}, e.Pages), "compares %d pages with their checksums", len(e.Pages))
	case *effects.Cancel:
		s.add(trace.Data, cause, []int{s.ref("corr %d", e.Corr)}, "hastens the end of a transfer")
	case *effects.Confirm:
		s.add(trace.Data, cause, nil, "confirms landing %d: %s", e.Landing, e.Code)
	case *effects.Scatter:
		s.add(trace.Engine, cause, s.pageRefs([]int{s.ref("ticket %d", e.Ticket), s.ref("corr %d", e.Corr)}, e.Pages),
			"hands %d pages to the engine's device code", len(e.Pages))
	case *effects.Deliver:
		refs := []int{s.ref("ticket %d", e.Ticket)}
		kind := "command"
		if c := s.tickets[e.Ticket]; c != nil {
			c.Delivered, c.Code, refs, kind = s.now, e.Code.String(), c.Refs, c.Kind
			if !e.Held {
				delete(s.tickets, e.Ticket)
			}
		}
		s.add(trace.Engine, cause, s.pageRefs(refs, e.Pages), "the %s of ticket %d ends: %s, %d pages%s", kind, e.Ticket, e.Code, len(e.Pages),
			describeWhy(e.Why))
	case *effects.Return:
		if c := s.tickets[e.Ticket]; c != nil {
			c.Returned = s.now
			delete(s.tickets, e.Ticket)
		}
		s.add(trace.Engine, cause, []int{s.ref("ticket %d", e.Ticket)}, "returns the memory of ticket %d", e.Ticket)
	case *effects.Observe:
		refs := []int(nil)
		if e.Peer != (effects.Incarnation{}) {
			refs = append(refs, s.peerRef(e.Peer))
		}
		s.add(trace.Fact, cause, refs, "%s: %s, count %d, id %08x%s", e.Fact, e.Code, e.Count, uint32(e.ID), describeWhy(e.Why))
	}
}

func (s *Story) addSend(c effects.Corr, conn effects.Conn, body []byte, cause int) {
	m := s.addMessage(true, s.conns[conn], body, []int{s.ref("conn %d", conn), s.ref("corr %d", c)})
	s.sent[c] = m
	s.add(trace.Control, cause, m.Refs, "sends %s, %d bytes", m.Kind, len(body))
}

func (s *Story) addGrant(e *effects.Grant, cause int) {
	verb := "write"
	if e.Read {
		verb = "read"
	}
	g := &trace.Grant{Ref: s.ref("grant %d", e.ID), Node: laneNode, Peer: lanePeers, From: s.now, Lease: trace.Never, Revoked: trace.Never,
		Unusable: trace.Never, Read: e.Read}
	g.Refs = s.pageRefs([]int{g.Ref, s.peerRef(e.Peer)}, e.Pages)
	for _, p := range e.Pages {
		g.Pages = append(g.Pages, int(p.Index))
	}
	s.grants, s.granted[e.ID] = append(s.grants, g), g
	s.add(trace.Memory, cause, g.Refs, "grants peer %x to %s %d pages, grant %d", e.Peer[:4], verb, len(e.Pages), e.ID)
}

func (s *Story) addTransfer(e *effects.Transfer, cause int) {
	verb := "writes"
	if e.Read {
		verb = "reads"
	}
	t := &trace.Transfer{ID: uint64(uint32(e.Corr)), From: laneNode, To: lanePeers, Grant: s.ref("grant %d", e.Grant), Started: s.now,
		Requested: trace.Never, Ended: trace.Never, Settled: trace.Never, NotAfter: int64(e.NotAfter.Sub(s.start))}
	t.Refs = []int{s.ref("corr %d", e.Corr), t.Grant, s.peerRef(e.Peer), s.ref("link %d", e.Link)}
	for _, p := range e.Pairs {
		t.Refs = s.pageRefs(t.Refs, []effects.Page{p.Local})
	}
	s.transfers, s.moving[e.Corr] = append(s.transfers, t), t
	s.add(trace.Data, cause, t.Refs, "%s %d pages of peer %x under grant %d", verb, len(e.Pairs), e.Peer[:4], e.Grant)
}

// describeWhy returns the details of a failure as a part of a sentence.
func describeWhy(w *effects.Why) string {
	if w == nil {
		return ""
	}
	return " (" + w.Stage.String() + ": " + cmp.Or(w.Field, "-") + ": peer " + cmp.Or(w.Theirs, "-") + ", here " + cmp.Or(w.Ours, "-") + ")"
}
