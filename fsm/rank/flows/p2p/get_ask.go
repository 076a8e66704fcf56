package p2p

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// becomeLinking appends a get to the queue of its peer. A get that was sent before goes to the front: it is the same
// operation, sent again.
func (f *Requester) becomeLinking(e *flow.Env, h table.Handle, r *get) {
	r.phase, r.conn, r.reached = linking, 0, e.Links.Outbound(r.peer).Attempt()
	if q := &f.line(r).asks; r.attempt > 0 {
		e.Out.Mark(Marks.AskAgain)
		f.gets.PushFront(q, h)
	} else {
		f.gets.PushBack(q, h)
	}
	f.pump(e, r.peer)
}

// pump sends the queued requests and done messages of a peer, as far as the shared connection permits.
func (f *Requester) pump(e *flow.Env, peer table.Handle) {
	l := &f.lines[peer.Slot()]
	for {
		h, g := l.words.Front(), link.Gate(0)
		var cause effects.Code
		word := h != 0
		if !word {
			h = l.asks.Front()
		}
		if h == 0 {
			return
		}
		r := f.gets.Get(h)
		if g, cause = e.Links.Outbound(peer).Gate(); g == link.GateOpen {
			conn := e.Links.Take(&e.Env, peer, link.LaneAlloc)
			if conn == 0 {
				return
			}
			if r.conn = conn; word {
				f.gets.Unlink(&l.words, h)
				f.becomeTelling(e, h, r)
			} else {
				f.gets.Unlink(&l.asks, h)
				f.becomeAsking(e, h, r)
			}
			continue
		}
		if word { // The owner ends the loan by time as well.
			e.Out.Mark(Marks.DoneGivenUp)
			f.gets.Unlink(&l.words, h)
			f.end(e, h, r)
			continue
		}
		if g == link.GateShut || g == link.GateAbsent && r.reached == e.Links.Outbound(peer).Attempt() {
			return
		}
		r.blameAs(cause, e.Links.Outbound(peer).Why())
		f.stop(e, h, r, cause)
	}
}

// blameAs calls blame with the reason that the link room knows, if there is one.
func (r *get) blameAs(code effects.Code, why *effects.Why) {
	if why != nil {
		r.blame(code, *why)
	}
}

// becomeAsking sends the request. The right to read counts from this instant, which provably precedes the loan (M4).
func (f *Requester) becomeAsking(e *flow.Env, h table.Handle, r *get) {
	of := e.Links.Of(r.peer)
	_, r.who = of.Link()
	if conn, peer := r.conn, r.peer; r.mode == Push && !f.grantPages(e, h, r) {
		e.Links.Untake(&e.Env, peer, link.LaneAlloc, conn)
		return
	}
	r.us, r.phase, r.asked = of.Us(), asking, e.Now
	if r.attempt++; r.attempt == 1 {
		r.since = e.Now
	}
	m := &f.ask
	*m = protocol.AscendBatchedLookupAndGetMsg{
		LookupID: r.lookup, ReceiverID: []byte(f.cfg.ReceiverID), Keys: m.Keys[:0], PullMode: true, HasExt: true,
		MemIndexes: m.MemIndexes[:0], BufferUUIDs: m.BufferUUIDs[:0],
		Ext: protocol.P2PGetExt{
			Version: link.VersionMax, Generations: m.Ext.Generations[:0], Incarnation: protocol.UUID(r.us),
			To: protocol.UUID(r.who), Operation: r.operation,
			Attempt: r.attempt, PatienceNS: uint64(max(0, r.deadline.Sub(e.Now))),
		},
	}
	for i := int(r.here); i < r.size(); i++ {
		m.Keys = append(m.Keys, r.key(i))
	}
	if r.mode == Push {
		f.nameGranted(e, r)
	}
	e.Out.Send(effects.Send{Corr: e.Corrs.Open(getRef(kindAsk, h)), Conn: r.conn,
		Body: e.Out.Cut(m.Append(e.Out.Arena()))})
	e.Timers.Set(&r.answer, e.Now.Add(f.cfg.LookupTimeout), getRef(timerAnswer, h))
}

// becomeTelling sends the done message, addressed to the incarnation of the peer that gave the loan.
func (f *Requester) becomeTelling(e *flow.Env, h table.Handle, r *get) {
	r.phase = telling
	r.told++
	f.done = protocol.AscendBatchedLookupAndGetDoneMsg{
		LookupID: r.lookup, HasExt: true, Ext: protocol.P2PDoneExt{
			Version: link.VersionMax, Incarnation: protocol.UUID(r.us), To: protocol.UUID(r.who), Operation: r.operation,
			Attempt: r.attempt, Grant: r.grant,
		},
	}
	e.Out.Send(effects.Send{Corr: e.Corrs.Open(getRef(kindDone, h)), Conn: r.conn,
		Body: e.Out.Cut(f.done.Append(e.Out.Arena()))})
	e.Timers.Set(&r.answer, e.Now.Add(e.Cfg.ReplyTimeout), getRef(timerAnswer, h))
}

// overdue handles the deadline of a reply. A get without a reply in time is a miss, and becomes a ghost, because a
// late reply may name a loan. When the deadline of a ghost or of a done message is over, the connection is closed, so
// that no reply can arrive.
func (f *Requester) overdue(e *flow.Env, h table.Handle, r *get) {
	e.Out.Mark(Marks.AnswerOverdue)
	if r.phase == asking && !r.delivered {
		f.frozen.Open(e.Now, r.where, effects.Expired, "", true, 0)
		why := link.NoAnswer(f.cfg.LookupTimeout)
		r.blame(effects.Expired, why)
		f.haunt(e, h, r, effects.Expired)
		return
	}
	e.Links.CloseTaken(&e.Env, r.peer, link.LaneAlloc, r.conn)
}

// haunt delivers the outcome of a get with a request in flight, and leaves the request open as a ghost.
func (f *Requester) haunt(e *flow.Env, h table.Handle, r *get, code effects.Code) {
	f.deliver(e, r, code)
	e.Timers.Set(&r.answer, e.Now.Add(e.Cfg.ReplyTimeout), getRef(timerAnswer, h))
}

// unanswered handles a request without a reply. Its connection is closed, with everything in flight on it.
func (f *Requester) unanswered(e *flow.Env, kind uint8, h table.Handle, code effects.Code) {
	r := f.gets.Get(h)
	peer := r.peer
	e.Timers.Stop(&r.answer)
	e.Links.CloseTaken(&e.Env, peer, link.LaneAlloc, r.conn)
	r.conn = 0
	switch {
	case kind == kindAsk:
		// This node closed the connection, because of another request without a reply.
		if code == effects.Closed {
			code = effects.PeerLost
		}
		f.again(e, h, r, code, link.HungUp(code, e.Cfg.ReplyTimeout))
	case r.told < e.Cfg.AttemptsMax:
		e.Out.Mark(Marks.DoneAgain)
		r.phase = leaving
		f.gets.PushFront(&f.line(r).words, h)
		f.pump(e, peer)
	// The owner ends the loan by time as well.
	default:
		e.Out.Mark(Marks.DoneGivenUp)
		f.end(e, h, r)
	}
}

// again sends the request again, or ends the get with the given reason after the last attempt. A loan that the owner
// may have given ends by time.
func (f *Requester) again(e *flow.Env, h table.Handle, r *get, code effects.Code, why effects.Why) {
	switch {
	case r.delivered:
		f.end(e, h, r)
	case r.attempt < e.Cfg.AttemptsMax:
		f.becomeLinking(e, h, r)
	default:
		r.blame(code, why)
		f.deliver(e, r, code)
		f.end(e, h, r)
	}
}

// replied handles a reply. The connection has room for another request from now on.
func (f *Requester) replied(e *flow.Env, kind uint8, h table.Handle, body []byte) {
	r := f.gets.Get(h)
	e.Timers.Stop(&r.answer)
	e.Links.Untake(&e.Env, r.peer, link.LaneAlloc, r.conn)
	r.conn = 0
	f.frozen.Heard(r.where)
	// The content does not matter: nothing of this node reads under the loan.
	if kind == kindDone {
		f.end(e, h, r)
		return
	}
	f.answered(e, h, r, body)
}
