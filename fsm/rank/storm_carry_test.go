package rank

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/identity"
	"pgregory.net/rapid"
)

// serverConn is what a server calls the connection that a client calls id.
func serverConn(id effects.Conn) effects.Conn { return id | 1<<40 }

// executeEffect carries out one effect.
func (s *storm) executeEffect(n *stormNode, e effects.Effect) {
	switch e := e.(type) {
	case *effects.Open:
		s.open(n, *e)
	case *effects.Close:
		s.close(n, e.Conn)
	case *effects.Send:
		s.send(n, e)
	case *effects.Post:
		s.post(n, e)
	case *effects.Reply:
		s.reply(n, e)
	case *effects.Import:
		s.importPeer(n, e)
	case *effects.Drop:
		link := e.Link
		delete(n.links, link)
		n.drops++
		s.push(n, "Dropped", func() { n.drops--; s.step(n, &effects.Dropped{Link: link}) }, nil)
	case *effects.Revoke:
		id := e.Grant
		if n.grants[id] {
			s.t.Fatalf("%s revokes a grant twice", n.name)
		}
		n.grants[id] = true
		s.push(n, "Revoked", func() { delete(n.grants, id); s.step(n, &effects.Revoked{Grant: id}) }, nil)
	case *effects.Transfer:
		s.completeRead(n, *e)
	case *effects.Copy:
		corr := e.Corr
		s.completeTransfer(n, "copy", corr, func(code effects.Code, settled bool) effects.Event {
			return &effects.CopyDone{Corr: corr, Code: code, Settled: settled, At: s.clock(n)}
		})
	case *effects.Scatter:
		corr := e.Corr
		n.out[corr] = "scatter"
		s.complete(n, "Scattered", corr, func() effects.Event {
			return &effects.Scattered{Corr: corr, Code: s.drawCode(effects.OK, effects.Faulted)}
		})
	case *effects.Deliver:
		s.onDelivered(n, e)
	case *effects.Return:
		s.onReturned(n, e.Ticket)
	case *effects.Confirm, *effects.Publish, *effects.Grant, *effects.Cancel, *effects.Observe:
	}
}

// drawCode is well, or now and then one of the others, until faults cease.
func (s *storm) drawCode(well effects.Code, ill ...effects.Code) effects.Code {
	if s.calm || rapid.IntRange(1, s.faults).Draw(s.t, "fails") > 1 {
		return well
	}
	return rapid.SampledFrom(ill).Draw(s.t, "code")
}

func (s *storm) open(n *stormNode, e effects.Open) {
	n.out[e.Corr] = "send"
	s.complete(n, "Opened", e.Corr, func() effects.Event {
		code, c := s.drawCode(effects.OK, effects.Unreachable), &stormConn{channel: e.Channel, peer: s.nodeAt(e.Addr.Host)}
		if code != effects.OK || c.peer == nil && e.Channel != effects.ChannelProxy || s.dropsDone &&
			e.Channel == effects.ChannelDone {
			return &effects.Opened{Corr: e.Corr, Code: effects.Unreachable}
		}
		id := effects.Conn(s.id())
		if c.peer != nil {
			c.incarnation = c.peer.incarnation
		}
		n.conns[id] = c
		return &effects.Opened{Corr: e.Corr, Conn: id}
	})
}

func (s *storm) close(n *stormNode, id effects.Conn) {
	c := n.conns[id]
	if c == nil {
		s.t.Fatalf("%s closes a connection that it has not", n.name)
	}
	delete(n.conns, id)
	for _, a := range c.openAsks() {
		c.removeAsk(a)
		s.complete(n, "Unanswered", a.corr,
			func() effects.Event { return &effects.Unanswered{Corr: a.corr, Code: effects.Closed} })
	}
	if peer := c.peer; peer != nil {
		s.push(peer, "ConnLost", func() { s.step(peer, &effects.ConnLost{Conn: serverConn(id)}) }, func() {})
	}
}

func (s *storm) send(n *stormNode, e *effects.Send) {
	id, c := e.Conn, n.conns[e.Conn]
	window := 1
	if c != nil && c.channel == effects.ChannelLookup {
		window = int(n.cfg.Lookups)
	}
	if c == nil || len(c.asks) >= window {
		s.t.Fatalf("%s sends %s on a connection that is closed or waits", n.name, describe(e.Body))
	}
	body, request := s.outgoingBytes(n, e.Body), effects.Request(s.id())
	n.out[e.Corr], c.asks = "send", append(c.asks, &stormAsk{corr: e.Corr, request: request})
	s.sentMessages = append(s.sentMessages, sentMessage{to: c.peer, channel: c.channel, body: body})
	s.push(c.peer, describe(body), func() {
		if c.incarnation == c.peer.incarnation && !c.lost {
			c.peer.rankAsks(n, id, request)
			s.deliver(c.peer, serverConn(id), c.channel, body, request)
		}
	}, func() {})
}

// pendingReply says whose request it is that a node may answer.
type pendingReply struct {
	node *stormNode
	life int
	conn effects.Conn
}

func (n *stormNode) rankAsks(asker *stormNode, id effects.Conn, r effects.Request) {
	if n.engine.askers == nil {
		n.engine.askers = map[effects.Request]pendingReply{}
	}
	n.engine.askers[r] = pendingReply{asker, asker.incarnation, id}
}

func (s *storm) reply(n *stormNode, e *effects.Reply) {
	if !n.asked[e.Request] {
		s.t.Fatalf("%s answers what nobody asked, or twice (S10)", n.name)
	}
	delete(n.asked, e.Request)
	to, ok := n.engine.askers[e.Request]
	delete(n.engine.askers, e.Request)
	if !ok || to.node.incarnation != to.life {
		return
	}
	body, asker := s.outgoingBytes(n, e.Body), to.node
	c := asker.conns[to.conn]
	if c == nil || c.lost || c.findAsk(e.Request) == nil {
		return
	}
	a := c.findAsk(e.Request)
	if rapid.Bool().Draw(s.t, "in the mailbox") {
		a.answer = true // Then Close does not undo it.
		s.push(asker, "answer: "+describe(body), func() {
			c.removeAsk(a)
			s.completed(asker, a.corr, &effects.Replied{Corr: a.corr, Body: body})
		}, nil)
		return
	}
	s.push(asker, "answer: "+describe(body), func() {
		// Closed meanwhile, it had another completion.
		if asker.conns[to.conn] != c || c.findAsk(a.request) == nil {
			return
		}
		c.removeAsk(a)
		s.completed(asker, a.corr, &effects.Replied{Corr: a.corr, Body: body})
	}, func() {})
}

func (s *storm) post(n *stormNode, e *effects.Post) {
	c := n.conns[e.Conn]
	if c == nil {
		s.t.Fatalf("%s posts %s on a connection that is closed", n.name, describe(e.Body))
	}
	n.out[e.Corr] = "send"
	body, corr := s.outgoingBytes(n, e.Body), e.Corr
	if c.peer != nil {
		s.sentMessages = append(s.sentMessages, sentMessage{to: c.peer, channel: c.channel, body: body})
	}
	id := e.Conn
	s.complete(n, "SendDone", corr, func() effects.Event {
		code := s.drawCode(effects.OK, effects.Refused)
		if code == effects.OK && c.peer != nil {
			s.push(c.peer, describe(body), func() {
				if c.incarnation == c.peer.incarnation {
					s.deliver(c.peer, serverConn(id), c.channel, body, 0)
				}
			}, func() {})
		}
		return &effects.SendDone{Corr: corr, Code: code}
	})
}

func (s *storm) importPeer(n *stormNode, e *effects.Import) {
	n.out[e.Corr] = "send"
	corr, who, peer := e.Corr, e.Peer, s.nodeAt(string(e.Blob[:len(e.Blob)-tokenBytes]))
	s.complete(n, "Imported", corr, func() effects.Event {
		code := s.drawCode(effects.OK, effects.Unreachable)
		switch {
		case peer == nil:
			code = effects.Unreachable
		case !identity.SameIncarnation(peer.rank.Incarnation(), who):
			code = effects.Stale
		}
		if code != effects.OK {
			return &effects.Imported{Corr: corr, Code: code}
		}
		id := effects.Link(s.id())
		n.links[id] = &stormLink{peer: peer, who: who, incarnation: peer.incarnation}
		return &effects.Imported{Corr: corr, Link: id}
	})
}

// completeTransfer lets a copy or a read end, at once settled or not.
func (s *storm) completeTransfer(n *stormNode, what string, corr effects.Corr,
	ev func(code effects.Code, settled bool) effects.Event) {
	n.out[corr] = what
	s.push(n, what+" ends", func() {
		code := s.drawCode(effects.OK, effects.Faulted, effects.Cancelled, effects.PeerLost, effects.Withdrawn)
		if code == effects.OK || rapid.Bool().Draw(s.t, "settled") {
			s.completed(n, corr, ev(code, true))
			return
		}
		s.complete(n, "Settled", corr, func() effects.Event { return &effects.Settled{Corr: corr, Code: code} })
		s.step(n, ev(code, false))
	}, nil)
}

// completeRead lets a read end. What a plane that is watched would refuse is refused; on one that is not, the reads of
// honest readers find what was lent (S24, M2).
func (s *storm) completeRead(n *stormNode, e effects.Transfer) {
	pairs := append([]effects.Pair(nil), e.Pairs...)
	for _, pair := range pairs {
		if p := n.rank.PageState(pair.Local.Pool, pair.Local.Index); p.Generation != pair.Local.Generation {
			s.t.Fatalf("%s reads into page %d, which is in another life", n.name, pair.Local.Index)
		}
	}
	link := n.links[e.Link]
	s.completeTransfer(n, "read", e.Corr, func(code effects.Code, settled bool) effects.Event {
		done := &effects.TransferDone{Corr: e.Corr, Code: code, Settled: settled, At: s.clock(n)}
		if code != effects.OK {
			return done
		}
		switch {
		case link == nil || link.incarnation != link.peer.incarnation:
			done.Code = effects.PeerLost
		case !identity.SameIncarnation(link.peer.rank.Incarnation(), e.Peer):
			done.Code = effects.Stale
		case s.clock(n) > e.NotAfter:
			done.Code = effects.Expired
		case !link.peer.isLeased(e.Grant) && s.leased && link.peer != s.liar && n != s.liar:
			s.t.Fatalf("%s reads under grant %d of %s, which is over, and would believe it (S2)", n.name, e.Grant,
				link.peer.name)
		case !link.peer.isLeased(e.Grant):
			done.Code = effects.Withdrawn
		}
		return done
	})
}
