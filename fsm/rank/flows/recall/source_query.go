package recall

import (
	"bytes"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// sendQuery sends the query. The lease counts from this step: the instant provably precedes the reply (M4).
func (f *Source) sendQuery(e *flow.Env, h table.Handle) {
	r := f.rows.Get(h)
	remote := e.Links.IncarnationOf(r.peer)
	_, r.peerID = remote.Link()
	r.selfID = remote.SelfID()
	if !remote.AnswersRecalls() {
		r.SetReason(effects.Unsupported, notServedReason())
		f.deliverOutcome(e, r, effects.Unsupported, false)
		f.removeRecall(e, h, r)
		return
	}
	if why := remote.CheckOwner(&e.Env, effects.Tenant(protocol.TenantOf(r.keyAt(0)))); why != nil {
		r.SetReason(effects.Forbidden, *why)
		f.deliverOutcome(e, r, effects.Forbidden, false)
		f.removeRecall(e, h, r)
		return
	}
	r.phase, r.sentAt = recallQuerying, e.Now
	if r.attempt++; r.attempt == 1 {
		r.firstSentAt = e.Now
	}
	m := &f.query
	m.Keys = m.Keys[:0]
	for i := range r.keyCount() {
		m.Keys = append(m.Keys, r.keyAt(i))
	}
	f.sendMessage(e, h, r, kindQuery)
}

// sendDone sends the done message to the incarnation of the peer that gave the lease (M2).
func (f *Source) sendDone(e *flow.Env, h table.Handle) {
	r := f.rows.Get(h)
	r.phase = recallDoneSent
	r.attempt++
	f.query.Keys = f.query.Keys[:0]
	f.sendMessage(e, h, r, kindDone)
}

// sendMessage sends f.query on the recall's connection, which must be free.
func (f *Source) sendMessage(e *flow.Env, h table.Handle, r *recallRow, kind uint8) {
	m, w := &f.query, f.conns.Get(r.peerConn)
	m.HasExt = true
	m.Ext = protocol.CacheQueryExt{
		Version: link.VersionMax, Incarnation: protocol.UUID(r.selfID), To: protocol.UUID(r.peerID), Operation: r.operation,
		Attempt: r.attempt, Done: m.Ext.Done[:0],
	}
	if kind == kindQuery {
		m.Ext.PatienceNS, m.Ext.Request = uint64(max(0, r.Deadline.Sub(e.Now))), r.requestID
		m.Ext.Trace = r.trace.Wire()
	} else {
		m.Ext.Done = append(m.Ext.Done, uint64(r.readGrant))
	}
	r.conn = w.conn.ID()
	w.conn.Send(&e.Env, e.Corrs.Open(sourceRef(kind, h)), e.Out.Cut(m.Append(e.Out.Arena())))
	e.Timers.Set(&r.replyTimer, e.Now.Add(e.Cfg.ReplyTimeout), sourceRef(timerReply, h))
}

// onUnanswered handles the end of a query or a done message to which no reply came.
func (f *Source) onUnanswered(e *flow.Env, ref kernel.Ref, code effects.Code) {
	h := ref.Subject
	r := f.rows.Get(h)
	connHandle := r.peerConn
	e.Timers.Stop(&r.replyTimer)
	f.closeConn(e, r)
	switch {
	case ref.Kind == kindQuery:
		f.retryOrFail(e, h, r, noReplyCode(code), link.ConnEndedReason(code, e.Cfg.ReplyTimeout))
	case r.attempt < e.Cfg.AttemptsMax:
		e.Out.Mark(Marks.DoneAgain)
		r.phase = recallDoneQueued
		f.rows.PushFront(&f.conns.Get(r.peerConn).doneMessages, h)
	default: // The end of the lease's time has the same effect.
		e.Out.Mark(Marks.DoneGivenUp)
		f.removeRecall(e, h, r)
	}
	f.sendQueued(e, connHandle)
}

// retryOrFail sends the query again, or ends the recall with a reason when its attempts are used up. A lease that the
// lost reply may have named ends with its time.
func (f *Source) retryOrFail(e *flow.Env, h table.Handle, r *recallRow, code effects.Code, why effects.Why) {
	switch {
	case r.IsDelivered():
		f.removeRecall(e, h, r)
	case r.attempt < e.Cfg.AttemptsMax:
		f.requeueRecall(e, h, r)
	default:
		r.SetReason(code, why)
		f.deliverOutcome(e, r, code, false)
		f.removeRecall(e, h, r)
	}
}

// noReplyCode returns the code for the engine: if this rank closed the connection, that was because the time for a
// reply was over.
func noReplyCode(code effects.Code) effects.Code {
	if code == effects.Closed {
		return effects.Expired
	}
	return code
}

// onReplied handles a reply, after which the connection is free for the next message.
func (f *Source) onReplied(e *flow.Env, ref kernel.Ref, body []byte) {
	h := ref.Subject
	r := f.rows.Get(h)
	connHandle := r.peerConn
	e.Timers.Stop(&r.replyTimer)
	// Otherwise the reply was in the mailbox when the connection was closed.
	if w := f.conns.Get(connHandle); r.conn != 0 && w.conn.ID() == r.conn {
		w.conn.OnReplied(e.Now)
	}
	if ref.Kind == kindDone { // The reply's content has no effect: nothing here reads under the lease.
		f.removeRecall(e, h, r)
	} else {
		f.handleReply(e, h, r, body)
	}
	f.sendQueued(e, connHandle)
}

// handleReply handles the reply to a query.
func (f *Source) handleReply(e *flow.Env, h table.Handle, r *recallRow, body []byte) {
	m := &f.reply
	if err := m.Decode(body, &e.Cfg.Wire); err != nil {
		e.Out.Mark(Marks.AnswerMalformed)
		f.failInvalidReply(e, h, r, link.DecodeReason(err))
		return
	}
	if m.HasExt {
		r.readGrant = effects.GrantID(m.Ext.Grant)
	}
	switch {
	case m.HasExt && m.Ext.Code != 0:
		f.handleRefusal(e, h, r)
	case r.IsDelivered():
		e.Out.Mark(Marks.AnswerAfterOutcome)
		f.queueDone(e, h, r)
	case !f.isStillLinked(e, r):
		// The link was lost while the reply was in the mailbox, so no read can use it. The next attempt finds the
		// same lease, if the peer's incarnation is the same.
		e.Out.Mark(Marks.AnswerAfterLink)
		r.readGrant = 0
		f.retryOrFail(e, h, r, effects.Stale, effects.Why{Field: "incarnation", Theirs: "different from that of the request"})
	case !f.planPairs(e, r):
		e.Out.Mark(Marks.AnswerSenseless)
		f.failInvalidReply(e, h, r, effects.Why{
			Field: "CacheQueryResponse", Ours: "a prefix of " + formatCount(r.keyCount()) + " keys, under a grant",
			Theirs: formatCount(len(m.CachedKeys)) + " keys that are none, or without a page, generation or length for each",
		})
	case r.hits == 0:
		e.Out.Mark(Marks.NothingThere)
		f.deliverOutcome(e, r, effects.OK, false)
		f.queueDone(e, h, r)
	default:
		f.startRead(e, h, r, effects.Duration(min(m.Ext.LeaseNS, uint64(e.Cfg.ReadLeaseMax))))
	}
}

// isStillLinked reports whether the link is up to the incarnation that was asked.
func (f *Source) isStillLinked(e *flow.Env, r *recallRow) bool {
	g, _ := e.Links.Outbound(r.peer).Gate()
	_, currentID := e.Links.IncarnationOf(r.peer).Link()
	return g == link.GateOpen && currentID == r.peerID
}

// planPairs pairs each chunk that the reply names with its page and sets the page's length. It returns false if the
// reply does not fit the query.
func (f *Source) planPairs(e *flow.Env, r *recallRow) bool {
	m, remote := &f.reply, e.Links.IncarnationOf(r.peer)
	n := len(m.CachedKeys)
	if f.pairs = f.pairs[:0]; n > r.keyCount() || !m.HasExt || n > 0 && (m.Ext.Grant == 0 || len(m.Ext.Generations) != n) {
		return false
	}
	buffer, _ := remote.FindBuffer(remote.FirstBuffer())
	for i, key := range m.CachedKeys {
		length, index := e.Cfg.PageBytes, m.CachedIndexes[i]
		if len(m.Ext.Lengths) > 0 {
			length = m.Ext.Lengths[i]
		}
		if !bytes.Equal(key, r.keyAt(i)) || index < 0 || index >= int64(buffer.Pages) ||
			length == 0 || length > e.Cfg.PageBytes {
			return false
		}
		r.Pages[i].Length, r.Pages[i].Sum = uint32(length), effects.SumAt(m.Ext.Sums, i)
		f.pairs = append(f.pairs, effects.Pair{Local: r.Pages[i], Remote: effects.RemotePage{
			Buffer: buffer.ID, Index: uint32(index), Sum: r.Pages[i].Sum, Generation: effects.Generation(m.Ext.Generations[i]),
		}})
	}
	r.hits = uint32(n)
	return true
}

// handleRefusal handles a reply that refuses the query.
func (f *Source) handleRefusal(e *flow.Env, h table.Handle, r *recallRow) {
	code, why := effects.CodeFromWire(f.reply.Ext.Code), peerReason(f.reply.Ext.Reason)
	if code == effects.Stale { // The peer has restarted, or has no record of this rank: a new handshake follows.
		e.Out.Mark(Marks.AskedStale)
		e.Links.FailPeer(&e.Env, r.peer, effects.Stale, why)
		r.readGrant = 0
		f.retryOrFail(e, h, r, code, why)
		return
	}
	e.Out.Mark(Marks.AskRefused)
	if r.SetReason(code, why); !r.IsDelivered() {
		f.deliverOutcome(e, r, code, false)
	}
	f.queueDone(e, h, r)
}

// failInvalidReply ends a recall after a reply that does not fit the query.
func (f *Source) failInvalidReply(e *flow.Env, h table.Handle, r *recallRow, why effects.Why) {
	r.SetReason(effects.Malformed, why)
	why.Addr, why.Peer, why.Stage = r.peerAddr.InitAddr(), r.peerID, effects.StageAsk
	e.Out.Observe(effects.Observe{
		Fact: effects.FactMalformed, Code: effects.Malformed, ID: uint64(r.conn), Peer: r.peerID, Why: &why,
	})
	if !r.IsDelivered() {
		f.deliverOutcome(e, r, effects.Malformed, false)
	}
	f.queueDone(e, h, r)
}
