package register

import (
	"bytes"
	"cmp"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// Errands: messages to producers about requests without a registration, to keep a request, or to say that nobody
// needs it. A single message to a peer is in flight at a time. A heartbeat names all requests that the peer is to keep;
// if there are more than NamesMax, it is a round of several messages, one after the other.

// A keepCommand is an Expect or NotNeeded: an errand to each of its peers.
type keepCommand struct {
	ticket effects.Ticket
	// id is the name of the transfer if present, otherwise the name of the request.
	id         []byte
	isSkip     bool
	entries    []table.Handle
	unfinished uint32
	timer      kernel.TimerID `snap:"set"`
}

// A keepEntry is the information for a single peer in a wish.
type keepEntry struct {
	command    table.Handle
	peer       table.Handle
	sentCount  uint32
	isInFlight bool   // the message in flight contains this errand
	namedRound uint64 // the latest round of heartbeats that named this errand, or began before the errand did
}

type keepTable struct {
	commands table.Slab[keepCommand]
	byID     table.Index
	entries  table.Slab[keepEntry]
	message  protocol.PushKeep `snap:"scratch"`
}

func (x *keepTable) recycle(cfg *Settings) keepTable {
	return keepTable{
		commands: x.commands.Recycle(int(cfg.ExpectedMax)), byID: x.byID.Recycle(), entries: x.entries.Recycle(int(cfg.ExpectedMax)),
		message: x.message,
	}
}

// startKeep starts an Expect, or a NotNeeded if skip is set. An invalid command is refused at once.
func (c *Consumer) startKeep(e *flow.Env, t effects.Ticket, request, transfer []byte, peers []Peer,
	timeout effects.Duration, skip bool) {
	x := &c.keeps
	code, why := checkNames(e, request, transfer, timeout)
	if code == effects.OK {
		code, why = checkPeers(peers)
	}
	switch {
	case code != effects.OK:
	case len(peers) == 0 || len(peers) > int(c.cfg.ProducersMax):
		code, why = effects.Invalid, &effects.Why{
			Field: "Producers", Theirs: flow.FormatCount(len(peers)), Ours: "1 to " + flow.FormatCount(c.cfg.ProducersMax),
			Remedy: "name each rank of the producer that has the request, or raise register.producers",
		}
	case x.commands.Full() || x.entries.Len()+len(peers) > x.entries.Max():
		e.Out.Mark(Marks.ErrandsFull)
		code, why = effects.TooMany, &effects.Why{
			Field: "register.expected", Ours: flow.FormatCount(x.entries.Max()) + ", less what is expected already",
			Theirs: flow.FormatCount(len(peers)) + " more",
			Remedy: "retry when one has ended, or raise register.expected",
		}
	case !hasPeerRoom(e, peers):
		code, why = effects.TooMany, noPeerReason(e)
	}
	if code != effects.OK {
		engine.RefuseCommand(&e.Env, t, code, why)
		return
	}
	id := transfer
	if len(id) == 0 {
		id = request
	}
	h, w := x.commands.Add()
	*w = keepCommand{ticket: t, id: append(w.id[:0], id...), isSkip: skip, entries: w.entries[:0]}
	x.byID.Add(e.Store.HashKey(w.id), h)
	e.Tickets.Add(t, consumerRef(timerKeepCommand, h))
	e.Timers.Set(&w.timer, e.Now.Add(cmp.Or(timeout, c.cfg.RegisterTimeout)), consumerRef(timerKeepCommand, h))
	for _, at := range peers {
		peer := e.Links.AcquirePeer(&e.Env, at.addr())
		eh, r := x.entries.Add()
		l := &c.peerQueues[peer.Slot()]
		*r = keepEntry{command: h, peer: peer, namedRound: l.keepRound}
		w.entries, w.unfinished = append(w.entries, eh), w.unfinished+1
		if x.entries.PushBack(&l.keepEntries, eh); !skip {
			l.beginKeepRound() // The producer's lease may have begun long ago.
		}
	}
	for _, eh := range w.entries {
		if r := x.entries.Get(eh); r != nil {
			c.sendKeep(e, r.peer)
		}
	}
}

// beginKeepRound begins a round of heartbeats, which names all errands.
func (l *peerQueue) beginKeepRound() {
	l.keepRound++
	l.keepUnsent = l.keepEntries.Len()
}

// finishExpects ends the Expects of a request for which a Register has arrived.
func (x *keepTable) finishExpects(e *flow.Env, c *Consumer, request, transfer []byte) {
	id := transfer
	if len(id) == 0 {
		id = request
	}
	for {
		var found table.Handle
		for at := x.byID.Find(e.Store.HashKey(id)); at.Found(); at = x.byID.Next(at) {
			if w := x.commands.Get(at.Handle()); !w.isSkip && bytes.Equal(w.id, id) {
				found = at.Handle()
			}
		}
		if found == 0 {
			return
		}
		c.finishKeep(e, found, effects.OK, nil)
	}
}

// finishKeep delivers the outcome of a wish and removes it.
func (c *Consumer) finishKeep(e *flow.Env, h table.Handle, code effects.Code, why *effects.Why) {
	x := &c.keeps
	w := x.commands.Get(h)
	for _, eh := range w.entries {
		if r := x.entries.Get(eh); r != nil && r.command == h {
			c.removeKeepEntry(e, eh, r)
		}
	}
	e.Timers.Stop(&w.timer)
	x.byID.Remove(e.Store.HashKey(w.id), h)
	e.Tickets.Remove(w.ticket)
	if code != effects.OK {
		if why == nil {
			why = endReason(code)
		}
		why.Stage = effects.StageAsk
	}
	e.Out.Deliver(effects.Deliver{Ticket: w.ticket, Code: code, Why: why})
	x.commands.Remove(h)
}

func (c *Consumer) removeKeepEntry(e *flow.Env, h table.Handle, r *keepEntry) {
	l := &c.peerQueues[r.peer.Slot()]
	c.keeps.entries.Unlink(&l.keepEntries, h)
	if r.namedRound < l.keepRound { // Otherwise the round would name another errand twice.
		l.keepUnsent--
	}
	if l.keepEntries.Len() == 0 && !l.keepInFlight {
		// Nothing holds the peer any more, so another peer may get its slot: the timer would be taken for that peer's.
		e.Timers.Stop(&l.keepTimer)
		l.keepUnsent = 0
	}
	e.Links.ReleasePeer(r.peer)
	c.keeps.entries.Remove(h)
}

// onKeepDeadline handles the deadline of a wish.
func (c *Consumer) onKeepDeadline(e *flow.Env, h table.Handle) {
	w := c.keeps.commands.Get(h)
	w.timer = 0
	c.finishKeep(e, h, effects.Expired, &effects.Why{
		Field: "Timeout", Theirs: flow.FormatCount(w.unfinished) + " of its peers", Ours: "informed in time, or registered",
		Remedy: "look whether these ranks answer, or raise Timeout",
	})
}

// sendKeep sends the due errands of a peer.
func (c *Consumer) sendKeep(e *flow.Env, peer table.Handle) {
	x, l := &c.keeps, &c.peerQueues[peer.Slot()]
	if l.keepInFlight || l.keepEntries.Len() == 0 {
		return
	}
	skips := false
	for h := l.keepEntries.Front(); h != 0; h = x.entries.Next(h) {
		skips = skips || x.commands.Get(x.entries.Get(h).command).isSkip
	}
	if l.keepUnsent == 0 && e.Now >= l.keepDueAt {
		l.beginKeepRound()
	}
	if l.keepUnsent == 0 && !skips {
		if l.keepTimer == 0 {
			e.Timers.Set(&l.keepTimer, l.keepDueAt, consumerRef(timerKeep, peer))
		}
		return
	}
	if g, _ := e.Links.Outbound(peer).Gate(); g != link.GateOpen {
		// The errands continue when the peer changes; otherwise each wish ends at the deadline.
		return
	}
	conn := e.Links.AcquireLane(&e.Env, peer, laneControl)
	if conn == 0 {
		return
	}
	remote := e.Links.IncarnationOf(peer)
	_, currentID := remote.Link()
	m := &x.message
	*m = protocol.PushKeep{
		Version: link.VersionMax, Incarnation: protocol.UUID(remote.SelfID()), To: protocol.UUID(currentID), Keep: m.Keep[:0],
		Skip: m.Skip[:0],
	}
	// Errands that are sent move behind the remaining ones. Between two heartbeats only NotNeeded is sent, so that
	// requests which the last message of a round did not name keep their place.
	h := l.keepEntries.Front()
	for n, named := l.keepEntries.Len(), 0; n > 0 && named < int(c.cfg.NamesMax); n-- {
		next := x.entries.Next(h)
		r := x.entries.Get(h)
		if w := x.commands.Get(r.command); w.isSkip || r.namedRound < l.keepRound {
			if w.isSkip {
				m.Skip = append(m.Skip, w.id)
			} else {
				m.Keep = append(m.Keep, w.id)
			}
			named++
			if r.namedRound < l.keepRound {
				r.namedRound = l.keepRound
				l.keepUnsent--
				// A message that only says what is not needed does not postpone the next heartbeat.
				l.keepDueAt = e.Now.Add(c.cfg.interval())
			}
			r.isInFlight = true
			r.sentCount++
			x.entries.Unlink(&l.keepEntries, h)
			x.entries.PushBack(&l.keepEntries, h)
		}
		h = next
	}
	l.keepInFlight, l.keepConn, l.peerID = true, conn, currentID
	// The reference keeps the peer's slot, and so its line, until the reply.
	e.Links.AcquirePeer(&e.Env, e.Links.Outbound(peer).Addr())
	e.Timers.Stop(&l.keepTimer)
	e.Timers.Set(&l.keepTimer, e.Now.Add(e.Cfg.ReplyTimeout), consumerRef(timerKeep, peer))
	e.Out.Send(effects.Send{
		Corr: e.Corrs.Open(consumerRef(kindKeep, peer)), Conn: conn, Body: e.Out.Cut(m.Append(e.Out.Arena())),
	})
}

// onKeepTimer handles the time of the next errand message to a peer, or the deadline of the reply.
func (c *Consumer) onKeepTimer(e *flow.Env, peer table.Handle) {
	l := &c.peerQueues[peer.Slot()]
	l.keepTimer = 0
	if l.keepInFlight {
		e.Links.CloseLane(&e.Env, peer, laneControl, l.keepConn)
		return
	}
	c.sendKeep(e, peer)
}

// onKeepReplied handles the reply to an errand message, or the lack of a reply.
func (c *Consumer) onKeepReplied(e *flow.Env, peer table.Handle, body []byte, code effects.Code) {
	x, l := &c.keeps, &c.peerQueues[peer.Slot()]
	if e.Timers.Stop(&l.keepTimer); code == effects.OK {
		e.Links.ReleaseLane(&e.Env, peer, laneControl, l.keepConn)
		if code = effects.Malformed; c.endMessage.Decode(body, &e.Cfg.Wire) == nil {
			code = effects.CodeFromWire(c.endMessage.Code)
		}
	} else {
		e.Links.CloseLane(&e.Env, peer, laneControl, l.keepConn)
	}
	l.keepInFlight, l.keepConn = false, 0
	if code != effects.OK {
		e.Out.Mark(Marks.KeepFailed)
	}
	if code == effects.Stale {
		c.repeatHandshake(e, peer, l.peerID)
	}
	for h := l.keepEntries.Front(); h != 0; {
		next := x.entries.Next(h)
		r := x.entries.Get(h)
		wasInFlight := r.isInFlight
		r.isInFlight = false
		w := x.commands.Get(r.command)
		command := r.command
		switch {
		case !wasInFlight || !w.isSkip:
		case code == effects.OK:
			c.removeKeepEntry(e, h, r)
			if w.unfinished--; w.unfinished == 0 {
				c.finishKeep(e, command, effects.OK, nil)
			}
		case code == effects.Forbidden:
			c.finishKeep(e, command, code, &effects.Why{
				Field: "Producers", Ours: "each informed", Theirs: "one forbids this node to inform it",
				Remedy: "none is needed: the producer's lease ends in any case",
			})
			next = l.keepEntries.Front() // More rows of this list may have been removed.
		case r.sentCount >= e.Cfg.AttemptsMax:
			c.finishKeep(e, command, effects.Unreachable, &effects.Why{
				Field: "Producers", Ours: "each informed", Theirs: "one does not reply",
				Remedy: "none is needed: the producer's lease ends in any case",
			})
			next = l.keepEntries.Front() // More rows of this list may have been removed.
		}
		h = next
	}
	e.Links.ReleasePeer(peer)
	c.sendKeep(e, peer)
}
