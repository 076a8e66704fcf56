package p2p

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// queueGet appends a get to the queue of its peer. A get that was sent before goes to the front: it is the same
// operation, sent again.
func (f *Requester) queueGet(e *flow.Env, h table.Handle, r *getRow) {
	r.phase, r.conn, r.linkAttempt = getLinking, 0, e.Links.Outbound(r.peer).AttemptNumber()
	if q := &f.queueOf(r).requests; r.attempt > 0 {
		e.Out.Mark(Marks.AskAgain)
		f.gets.PushFront(q, h)
	} else {
		f.gets.PushBack(q, h)
	}
	f.sendQueued(e, r.peer)
}

// sendQueued sends the queued requests and done messages of a peer, as far as the shared connection permits.
func (f *Requester) sendQueued(e *flow.Env, peer table.Handle) {
	l := &f.peerQueues[peer.Slot()]
	for {
		h, g := l.doneMessages.Front(), link.Gate(0)
		var cause effects.Code
		sendsDone := h != 0
		if !sendsDone {
			h = l.requests.Front()
		}
		if h == 0 {
			return
		}
		r := f.gets.Get(h)
		if g, cause = e.Links.Outbound(peer).Gate(); g == link.GateOpen {
			conn := e.Links.AcquireLane(&e.Env, peer, link.LaneAlloc)
			if conn == 0 {
				return
			}
			if r.conn = conn; sendsDone {
				f.gets.Unlink(&l.doneMessages, h)
				f.sendDone(e, h, r)
			} else {
				f.gets.Unlink(&l.requests, h)
				f.sendRequest(e, h, r)
			}
			continue
		}
		if sendsDone { // The owner ends the loan by time as well.
			e.Out.Mark(Marks.DoneGivenUp)
			f.gets.Unlink(&l.doneMessages, h)
			f.removeGet(e, h, r)
			continue
		}
		if g == link.GateShut || g == link.GateAbsent && r.linkAttempt == e.Links.Outbound(peer).AttemptNumber() {
			return
		}
		r.setSharedReason(cause, e.Links.Outbound(peer).FailureReason())
		f.failGet(e, h, r, cause)
	}
}

// setSharedReason calls setReason with the reason that the link room knows, if there is one.
func (r *getRow) setSharedReason(code effects.Code, why *effects.Why) {
	if why != nil {
		r.setReason(code, *why)
	}
}

// sendRequest sends the request. The right to read counts from this instant, which provably precedes the loan (M4).
func (f *Requester) sendRequest(e *flow.Env, h table.Handle, r *getRow) {
	remote := e.Links.IncarnationOf(r.peer)
	_, r.peerID = remote.Link()
	if why := remote.CheckOwner(&e.Env, effects.Tenant(protocol.TenantOf(r.keyAt(0)))); why != nil {
		e.Links.ReturnLane(r.peer, link.LaneAlloc, r.conn)
		r.setReason(effects.Forbidden, *why)
		f.finishUnsent(e, h, r, effects.Forbidden)
		return
	}
	if conn, peer := r.conn, r.peer; r.mode == Push && !f.grantPages(e, h, r) {
		e.Links.ReturnLane(peer, link.LaneAlloc, conn)
		return
	}
	r.selfID, r.phase, r.sentAt = remote.SelfID(), getRequesting, e.Now
	if r.attempt++; r.attempt == 1 {
		r.firstSentAt = e.Now
	}
	m := &f.request
	*m = protocol.AscendBatchedLookupAndGetMsg{
		LookupID: r.lookupID, ReceiverID: []byte(f.cfg.ReceiverID), Keys: m.Keys[:0], PullMode: true, HasExt: true,
		MemIndexes: m.MemIndexes[:0], BufferUUIDs: m.BufferUUIDs[:0],
		Ext: protocol.P2PGetExt{
			Version: link.VersionMax, Generations: m.Ext.Generations[:0], Incarnation: protocol.UUID(r.selfID),
			To: protocol.UUID(r.peerID), Operation: r.operation,
			Attempt: r.attempt, PatienceNS: uint64(max(0, r.deadline.Sub(e.Now))),
			Trace: r.trace.Wire(),
		},
	}
	for i := int(r.presentCount); i < r.keyCount(); i++ {
		m.Keys = append(m.Keys, r.keyAt(i))
	}
	if r.mode == Push {
		f.listGrantedPages(e, r)
	}
	e.Out.Send(effects.Send{Corr: e.Corrs.Open(getRef(kindRequest, h)), Conn: r.conn,
		Body: e.Out.Cut(m.Append(e.Out.Arena()))})
	e.Timers.Set(&r.replyTimer, e.Now.Add(f.cfg.LookupTimeout), getRef(timerReply, h))
}

// sendDone sends the done message, addressed to the incarnation of the peer that gave the loan.
func (f *Requester) sendDone(e *flow.Env, h table.Handle, r *getRow) {
	r.phase = getDoneSent
	r.doneAttempts++
	f.doneMessage = protocol.AscendBatchedLookupAndGetDoneMsg{
		LookupID: r.lookupID, HasExt: true, Ext: protocol.P2PDoneExt{
			Version: link.VersionMax, Incarnation: protocol.UUID(r.selfID), To: protocol.UUID(r.peerID), Operation: r.operation,
			Attempt: r.attempt, Grant: r.readGrant,
		},
	}
	e.Out.Send(effects.Send{Corr: e.Corrs.Open(getRef(kindDone, h)), Conn: r.conn,
		Body: e.Out.Cut(f.doneMessage.Append(e.Out.Arena()))})
	e.Timers.Set(&r.replyTimer, e.Now.Add(e.Cfg.ReplyTimeout), getRef(timerReply, h))
}

// onReplyOverdue handles the deadline of a reply. A get without a reply in time is a miss, and its request stays open,
// because a late reply may name a loan. When the deadline of such a request or of a done message is over, the
// connection is closed, so that no reply can arrive.
func (f *Requester) onReplyOverdue(e *flow.Env, h table.Handle, r *getRow) {
	e.Out.Mark(Marks.AnswerOverdue)
	if r.phase == getRequesting && !r.delivered {
		f.breakers.Trip(e.Now, r.peerAddr, effects.Expired, "", true, 0)
		why := link.NoReplyReason(f.cfg.LookupTimeout)
		r.setReason(effects.Expired, why)
		f.deliverBeforeReply(e, h, r, effects.Expired)
		return
	}
	e.Links.CloseLane(&e.Env, r.peer, link.LaneAlloc, r.conn)
}

// deliverBeforeReply delivers the outcome of a get with a request in flight, and leaves the request open for a late
// reply.
func (f *Requester) deliverBeforeReply(e *flow.Env, h table.Handle, r *getRow, code effects.Code) {
	f.deliverOutcome(e, r, code)
	e.Timers.Set(&r.replyTimer, e.Now.Add(e.Cfg.ReplyTimeout), getRef(timerReply, h))
}

// onUnanswered handles a request without a reply. Its connection is closed, with everything in flight on it.
func (f *Requester) onUnanswered(e *flow.Env, kind uint8, h table.Handle, code effects.Code) {
	r := f.gets.Get(h)
	peer := r.peer
	e.Timers.Stop(&r.replyTimer)
	e.Links.CloseLane(&e.Env, peer, link.LaneAlloc, r.conn)
	r.conn = 0
	switch {
	case kind == kindRequest:
		// This node closed the connection, because of another request without a reply.
		if code == effects.Closed {
			code = effects.PeerLost
		}
		f.retryOrFail(e, h, r, code, link.ConnEndedReason(code, e.Cfg.ReplyTimeout))
	case r.doneAttempts < e.Cfg.AttemptsMax:
		e.Out.Mark(Marks.DoneAgain)
		r.phase = getDoneQueued
		f.gets.PushFront(&f.queueOf(r).doneMessages, h)
		f.sendQueued(e, peer)
	// The owner ends the loan by time as well.
	default:
		e.Out.Mark(Marks.DoneGivenUp)
		f.removeGet(e, h, r)
	}
}

// retryOrFail sends the request again, or ends the get with the given reason after the last attempt. A loan that the
// owner may have given ends by time.
func (f *Requester) retryOrFail(e *flow.Env, h table.Handle, r *getRow, code effects.Code, why effects.Why) {
	switch {
	case r.delivered:
		f.removeGet(e, h, r)
	case r.attempt < e.Cfg.AttemptsMax:
		f.queueGet(e, h, r)
	default:
		r.setReason(code, why)
		f.deliverOutcome(e, r, code)
		f.removeGet(e, h, r)
	}
}

// onReplied handles a reply. The connection has room for another request from now on.
func (f *Requester) onReplied(e *flow.Env, kind uint8, h table.Handle, body []byte) {
	r := f.gets.Get(h)
	e.Timers.Stop(&r.replyTimer)
	e.Links.ReleaseLane(&e.Env, r.peer, link.LaneAlloc, r.conn)
	r.conn = 0
	f.breakers.Close(r.peerAddr)
	// The content does not matter: nothing of this node reads under the loan.
	if kind == kindDone {
		f.removeGet(e, h, r)
		return
	}
	f.handleReply(e, h, r, body)
}
