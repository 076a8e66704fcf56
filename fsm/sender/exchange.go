package sender

import (
	"encoding/binary"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/kernel"
	"github.com/kvferry/kvferry/fsm/link"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// becomeAsking sends the AllocRequest. The lease counts from here: the instant
// provably precedes the receiver's grant (rule M4).
func (s *Sender) becomeAsking(v *env.Env, l *link.Links, h table.Handle, conn effects.Conn) {
	p := s.puts.Get(h)
	p.phase, p.conn, p.asked = asking, conn, v.Now
	if p.attempt++; p.attempt == 1 {
		p.since = v.Now
	}
	_, p.who = l.Of(p.peer).Link()
	p.us = l.Of(p.peer).Us()
	p.commits = l.Of(p.peer).Commits()
	m := &s.ask
	n := len(p.ends)
	m.Keys = m.Keys[:0]
	for i := range n {
		m.Keys = append(m.Keys, p.key(i))
	}
	m.Format, m.Shape, m.Dtype = s.cfg.Layout.Format, s.shape(p), s.cfg.Layout.Dtype
	m.LastChunkTokens = p.lastTokens
	m.HasExt = true
	m.Ext = protocol.AllocExt{
		Version: link.VersionMax, Incarnation: protocol.UUID(p.us), To: protocol.UUID(p.who),
		Operation: p.operation, Attempt: p.attempt, Request: s.requests.name(p.request),
		PatienceNS: uint64(max(0, min(s.cfg.AllocTimeout, p.deadline.Sub(v.Now)))),
		Commit:     m.Ext.Commit[:0], Abort: m.Ext.Abort[:0],
	}
	s.send(v, h, p, kindAsk)
}

// shape is what LMCache sends for a batch: that of its first object, which may be a short one.
func (s *Sender) shape(p *put) protocol.Shape {
	if len(p.ends) == 1 && p.lastTokens < s.cfg.Layout.Tokens() {
		if short, err := s.cfg.Layout.WithTokens(p.lastTokens); err == nil {
			return short.Shape
		}
	}
	return s.cfg.Layout.Shape
}

// becomeConfirming commits the grant, or gives it back. It speaks to the life of the
// peer that gave it: a restarted receiver numbers its grants anew, and would take
// the word for a grant of somebody else (testdata/commit_after_restart.txt).
func (s *Sender) becomeConfirming(v *env.Env, l *link.Links, h table.Handle, conn effects.Conn) {
	if s.cfg.Pull {
		s.becomeWithdrawing(v, l, h, conn)
		return
	}
	p := s.puts.Get(h)
	p.phase, p.conn = confirming, conn
	m := &s.ask
	m.Keys = m.Keys[:0]
	m.Format, m.Shape, m.Dtype = s.cfg.Layout.Format, s.cfg.Layout.Shape, s.cfg.Layout.Dtype
	m.LastChunkTokens = 0
	m.HasExt = true
	m.Ext = protocol.AllocExt{
		Version: link.VersionMax, Incarnation: protocol.UUID(p.us), To: protocol.UUID(p.who), Operation: p.operation,
		Commit: m.Ext.Commit[:0], Abort: m.Ext.Abort[:0],
	}
	if p.aborting {
		m.Ext.Abort = append(m.Ext.Abort, uint64(p.grant))
		m.Ext.Code, m.Ext.Reason = p.reason()
	} else {
		m.Ext.Commit = append(m.Ext.Commit, uint64(p.grant))
	}
	s.send(v, h, p, kindCommit)
}

func (s *Sender) send(v *env.Env, h table.Handle, p *put, kind uint8) {
	corr := v.Corrs.Open(kernel.Ref{Owner: kernel.OwnerSender, Kind: kind, Subject: h})
	v.Out.Send(effects.Send{Corr: corr, Conn: p.conn, Body: v.Out.Cut(s.ask.Append(v.Out.Arena()))})
	v.Timers.Set(&p.answer, v.Now.Add(s.cfg.ReplyTimeout), timerRef(timerAnswer, h))
}

// onAnswerOverdue closes the lane, so that a late answer can never be taken for
// the next one's; the Send then ends as Unanswered.
func (s *Sender) onAnswerOverdue(v *env.Env, l *link.Links, h table.Handle) {
	v.Out.Mark(MarkAnswerOverdue)
	p := s.puts.Get(h)
	l.CloseTaken(v, p.peer, laneOf(p), p.conn)
}

func laneOf(p *put) link.Lane {
	if p.phase == asking || p.phase == offering {
		return link.LaneAlloc
	}
	return link.LaneCommit
}

// OnUnanswered handles a Send of this room that got no answer.
func (s *Sender) OnUnanswered(v *env.Env, l *link.Links, ref kernel.Ref, code effects.Code) {
	p := s.puts.Get(ref.Subject)
	v.Timers.Stop(&p.answer)
	l.CloseTaken(v, p.peer, laneOf(p), p.conn)
	p.conn = 0
	switch {
	case ref.Kind == kindAsk:
		s.unanswered(v, l, ref.Subject, p, code, s.hungUp(code))
	case ref.Kind == kindOffer:
		s.onOfferUnanswered(v, l, ref.Subject, p, code)
	case p.delivered:
		s.finish(v, l, ref.Subject, p)
	default:
		// Committing is idempotent: again until the deadline.
		v.Out.Mark(MarkCommitAgain)
		s.becomeCommitting(v, l, ref.Subject, p)
	}
}

// unanswered asks again, or ends the put and says why.
func (s *Sender) unanswered(
	v *env.Env, l *link.Links, h table.Handle, p *put, code effects.Code, why effects.Why,
) {
	switch {
	case p.delivered:
		// Whatever was granted ends with its lease.
		s.end(v, l, h, p)
	case p.attempt < attemptsMax:
		v.Out.Mark(MarkAskAgain)
		s.becomeWaiting(v, l, h, p)
	default:
		p.blame(noAnswer(code), why)
		s.deliver(v, p, noAnswer(code))
		s.end(v, l, h, p)
	}
}

// noAnswer names the cause for the engine: we closed the lane because time was up.
func noAnswer(code effects.Code) effects.Code {
	if code == effects.Closed {
		return effects.Expired
	}
	return code
}

// becomeWaiting puts it back to the front of its queue, with the same operation.
func (s *Sender) becomeWaiting(v *env.Env, l *link.Links, h table.Handle, p *put) {
	p.phase, p.conn = waiting, 0
	s.puts.PushFront(&s.queues[p.peer.Slot()].alloc, h)
	s.queued(v, l, h, p)
}

// becomeCommitting queues it for the commit lane.
func (s *Sender) becomeCommitting(v *env.Env, l *link.Links, h table.Handle, p *put) {
	p.phase, p.conn = committing, 0
	s.puts.PushBack(&s.queues[p.peer.Slot()].commit, h)
	if p.delivered {
		v.Timers.Set(&p.timer, v.Now.Add(s.cfg.ReplyTimeout), timerRef(timerPut, h))
	}
	s.Pump(v, l, p.peer)
}

// OnReplied handles an answer on a lane.
func (s *Sender) OnReplied(v *env.Env, l *link.Links, ref kernel.Ref, body []byte) {
	p := s.puts.Get(ref.Subject)
	v.Timers.Stop(&p.answer)
	lane, conn, peer := laneOf(p), p.conn, p.peer
	l.Untake(peer, lane, conn)
	switch {
	case ref.Kind == kindAsk:
		s.onAllocReply(v, l, ref.Subject, p, body)
	case ref.Kind == kindOffer:
		p.conn = 0
		s.onAck(v, l, ref.Subject, p, body)
	case s.cfg.Pull:
		s.finish(v, l, ref.Subject, p) // Whatever it says to the withdrawal.
	default:
		s.onCommitReply(v, l, ref.Subject, p, body)
	}
}

func (s *Sender) onAllocReply(v *env.Env, l *link.Links, h table.Handle, p *put, body []byte) {
	if !met(l, p) {
		// The link went down while the answer was in the mailbox: it speaks of an
		// incarnation that we may not reach any more.
		v.Out.Mark(MarkReplyAfterLink)
		_, cause := l.Outbound(p.peer).State()
		why := effects.Why{}
		if w := l.Outbound(p.peer).Why(); w != nil {
			why = *w
		}
		if cause == effects.OK { // It is up again, to another life. Nothing was sent, so this is no success.
			cause, why = effects.Stale, effects.Why{Field: "life", Theirs: "another one than that which was asked"}
		}
		s.unanswered(v, l, h, p, cause, why)
		return
	}
	m := &s.reply
	if err := m.Decode(body, &s.cfg.Wire); err != nil {
		v.Out.Mark(MarkReplyMalformed)
		s.malformed(v, p, link.Undecodable(err))
		s.fail(v, l, h, p, effects.Malformed)
		return
	}
	if m.HasExt {
		p.grant = effects.GrantID(m.Ext.Grant)
	}
	// The synchronous upstream form has no word for a refusal; our code beside it has.
	if m.AllocFailed || m.HasExt && m.Ext.Code != 0 {
		s.onAllocFailed(v, l, h, p)
		return
	}
	if p.delivered {
		v.Out.Mark(MarkReplyAfterOutcome)
		s.giveBack(v, l, h, p)
		return
	}
	if !s.plan(l, p) {
		v.Out.Mark(MarkReplySenseless)
		s.malformed(v, p, effects.Why{
			Field: "AllocResponse", Ours: number(len(p.ends)) + " chunks asked for",
			Theirs: number(len(m.RemoteIndexes)) + " pages and " + number(len(m.AlreadySent)) + " chunks that do not fit them",
		})
		s.fail(v, l, h, p, effects.Malformed)
		return
	}
	if len(s.pairs) == 0 {
		v.Out.Mark(MarkAllSkipped)
		s.deliver(v, p, effects.OK)
		s.end(v, l, h, p)
		return
	}
	s.becomeMoving(v, l, h, p)
}

func (s *Sender) onAllocFailed(v *env.Env, l *link.Links, h table.Handle, p *put) {
	code := effects.NoMemory
	if s.reply.HasExt && s.reply.Ext.Code != 0 {
		code = effects.CodeFromWire(s.reply.Ext.Code)
	}
	if code == effects.Stale {
		v.Out.Mark(MarkAskedStale)
		l.Fail(v, p.peer, effects.Stale, atStage(effects.StageAsk, said(s.reply.Ext.Reason)))
		if !p.delivered && p.attempt < attemptsMax {
			s.becomeWaiting(v, l, h, p)
			return
		}
	}
	v.Out.Mark(MarkAllocFailed)
	words := effects.Words(s.reply.Ext.Reason)
	p.blame(code, refusalOf(words))
	if !p.delivered {
		s.deliver(v, p, code)
	}
	if full(code) {
		// Before a grant that came beside is given back, which lets the next one go.
		s.backOff(v, l, p.peer, code, words)
	}
	s.giveBack(v, l, h, p)
}

// fail gives the put this outcome unless it has one, then its grant back.
func (s *Sender) fail(v *env.Env, l *link.Links, h table.Handle, p *put, code effects.Code) {
	if !p.delivered {
		s.deliver(v, p, code)
	}
	s.giveBack(v, l, h, p)
}

// giveBack tells the receiver that a grant will not be used any more, so that it
// need not wait for the lease; a peer that takes no commits waits.
func (s *Sender) giveBack(v *env.Env, l *link.Links, h table.Handle, p *put) {
	if p.grant == 0 || !p.commits {
		s.end(v, l, h, p)
		return
	}
	p.aborting = true
	s.becomeCommitting(v, l, h, p)
}

// plan turns the reply into pairs, and says whether it made sense.
func (s *Sender) plan(l *link.Links, p *put) bool {
	s.pairs = s.pairs[:0]
	ok := s.match(l, p)
	if len(p.ends) == 1 {
		return ok // One key stands nowhere twice.
	}
	// In time that depends on the batch alone, however large an earlier one was.
	for i := range s.pairs {
		s.byPage.Remove(s.pageHash(&s.pairs[i].Remote), table.Handle(i+1))
	}
	return ok
}

// match gives each chunk the page that the reply has for it.
func (s *Sender) match(l *link.Links, p *put) bool {
	m := &s.reply
	n := len(p.ends)
	if len(m.AlreadySent) > n || len(m.RemoteIndexes)+len(m.AlreadySent) != n {
		return false
	}
	granted := m.HasExt && m.Ext.Grant != 0 && len(m.Ext.Generations) == len(m.RemoteIndexes)
	if l.Of(p.peer).Extended() && len(m.RemoteIndexes) > 0 && !granted {
		return false
	}
	sent, next := 0, 0
	for i := range n {
		if sent < len(m.AlreadySent) && m.AlreadySent[sent] == int64(i) {
			sent++
			continue
		}
		if next >= len(m.RemoteIndexes) {
			return false
		}
		index := m.RemoteIndexes[next]
		var id effects.BufferID // Upstream forms name none and mean the first.
		switch {
		case next < len(m.RemoteUUIDs):
			id = effects.BufferID(m.RemoteUUIDs[next])
		case m.Form == protocol.FormAscend:
			return false
		default:
			id = l.Of(p.peer).FirstBuffer()
		}
		buffer, ok := l.Of(p.peer).Buffer(id)
		if !ok || index < 0 || index >= int64(buffer.Pages) {
			return false
		}
		pair := effects.Pair{Local: p.pages[i], Remote: effects.RemotePage{Buffer: id, Index: uint32(index)}}
		if m.HasExt && next < len(m.Ext.Generations) {
			pair.Remote.Generation = effects.Generation(m.Ext.Generations[next])
		}
		next++
		if n == 1 || !s.planned(&pair.Remote) {
			s.pairs = append(s.pairs, pair)
		}
	}
	// Indexes that were out of order or out of range were never matched.
	if sent != len(m.AlreadySent) || next != len(m.RemoteIndexes) {
		return false
	}
	p.sent, p.skipped = uint32(next), uint32(sent)
	return true
}

// planned says whether a key that stands twice in the batch has its page already; if not, it has from now on.
func (s *Sender) planned(r *effects.RemotePage) bool {
	hash := s.pageHash(r)
	for q := s.byPage.Seek(hash); q.Found(); q = s.byPage.Next(q) {
		if s.pairs[q.Handle().Slot()].Remote == *r {
			return true
		}
	}
	s.byPage.Add(hash, table.Handle(len(s.pairs)+1))
	return false
}

// pageHash depends on our seed: a receiver cannot choose pages that collide.
func (s *Sender) pageHash(r *effects.RemotePage) uint64 {
	var b [28]byte
	copy(b[:], r.Buffer[:])
	binary.LittleEndian.PutUint32(b[16:], r.Index)
	binary.LittleEndian.PutUint64(b[20:], uint64(r.Generation))
	return table.Hash(s.seed, b[:])
}
