package sender

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/kernel"
	"github.com/kvferry/kvferry/fsm/link"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// attemptsMax is how often a put is asked or offered before it fails.
const attemptsMax = 3

// becomeAsking sends the AllocRequest. The lease counts from here: the instant provably precedes the receiver's grant
// (rule M4).
func (f *pushSource) becomeAsking(e *step, h table.Handle, conn effects.Conn) {
	p := f.puts.Get(h)
	p.phase, p.conn, p.asked = pushAsking, conn, e.Now
	if p.tries(&f.queues); p.attempt == 1 {
		p.since = e.Now
	}
	p.listens = p.meet(e).Commits()
	m := &f.ask
	m.Keys = m.Keys[:0]
	for i := range p.size() {
		m.Keys = append(m.Keys, p.key(i))
	}
	m.Format, m.Shape, m.Dtype = e.cfg.Layout.Format, p.shape(&e.cfg.Layout), e.cfg.Layout.Dtype
	m.LastChunkTokens = p.lastTokens
	m.HasExt = true
	m.Ext = protocol.AllocExt{
		Version: link.VersionMax, Incarnation: protocol.UUID(p.us), To: protocol.UUID(p.who),
		Operation: p.operation, Attempt: p.attempt, Request: e.requests.Name(p.request),
		PatienceNS: uint64(max(0, min(e.cfg.AllocTimeout, p.Deadline.Sub(e.Now)))),
		Commit:     m.Ext.Commit[:0], Abort: m.Ext.Abort[:0],
	}
	f.send(e, h, p, kindAsk)
}

// becomeConfirming commits the grant, or gives it back. It speaks to the life of the peer that gave it: a restarted
// receiver numbers its grants anew, and would take the word for a grant of somebody else
// (testdata/commit_after_restart.txt).
func (f *pushSource) becomeConfirming(e *step, h table.Handle, conn effects.Conn) {
	p := f.puts.Get(h)
	p.phase, p.conn = pushConfirming, conn
	m := &f.ask
	m.Keys = m.Keys[:0]
	m.Format, m.Shape, m.Dtype = e.cfg.Layout.Format, e.cfg.Layout.Shape, e.cfg.Layout.Dtype
	m.LastChunkTokens = 0
	m.HasExt = true
	m.Ext = protocol.AllocExt{
		Version: link.VersionMax, Incarnation: protocol.UUID(p.us), To: protocol.UUID(p.who), Operation: p.operation,
		Commit: m.Ext.Commit[:0], Abort: m.Ext.Abort[:0],
	}
	if p.aborting {
		m.Ext.Abort = append(m.Ext.Abort, uint64(p.grant))
		m.Ext.Code, m.Ext.Reason = p.Reason()
	} else {
		m.Ext.Commit = append(m.Ext.Commit, uint64(p.grant))
	}
	f.send(e, h, p, kindCommit)
}

func (f *pushSource) send(e *step, h table.Handle, p *pushPut, kind uint8) {
	p.send(e, f.ask.Append(e.Out.Arena()), kindRef(kind, h), timerRef(timerPushAnswer, h))
}

// onUnanswered handles a question that got no answer.
func (f *pushSource) onUnanswered(e *step, ref kernel.Ref, code effects.Code) {
	h := ref.Subject
	p := f.puts.Get(h)
	e.Timers.Stop(&p.answer)
	p.hangUp(e, p.lane())
	if ref.Kind == kindAsk {
		p.charge(f.queues.at(p.peer))
	}
	p.conn = 0
	switch {
	case ref.Kind == kindAsk:
		f.unanswered(e, h, p, code, e.hungUp(code))
	case p.Delivered():
		f.end(e, h, p)
	default:
		// Committing is idempotent: again until the deadline.
		e.Out.Mark(MarkCommitAgain)
		f.becomeCommitting(e, h, p)
	}
}

// unanswered asks again, or ends the put and says why.
func (f *pushSource) unanswered(e *step, h table.Handle, p *pushPut, code effects.Code, why effects.Why) {
	switch {
	case p.Delivered():
		// Whatever was granted ends with its lease.
		f.end(e, h, p)
	case p.failed < attemptsMax:
		e.Out.Mark(MarkAskAgain)
		f.becomeWaiting(e, h, p)
	default:
		p.Blame(noAnswer(code), why)
		f.deliver(e, p, noAnswer(code))
		f.end(e, h, p)
	}
}

// noAnswer names the cause for the engine: we closed the lane because time was up.
func noAnswer(code effects.Code) effects.Code {
	if code == effects.Closed {
		return effects.Expired
	}
	return code
}

// onReplied handles an answer on a lane, which is free for the next question.
func (f *pushSource) onReplied(e *step, ref kernel.Ref, body []byte) {
	h := ref.Subject
	p := f.puts.Get(h)
	e.Timers.Stop(&p.answer)
	e.links.Untake(&e.Env, p.peer, p.lane(), p.conn)
	if ref.Kind == kindAsk {
		e.breakers.Answered(e.Now, p.where)
		f.onGranted(e, h, p, body)
		return
	}
	f.onCommitted(e, h, p, body)
}

// onGranted handles the answer to an AllocRequest, which may also refuse.
func (f *pushSource) onGranted(e *step, h table.Handle, p *pushPut, body []byte) {
	if !p.met(e) {
		// The link went down while the answer was in the mailbox: it speaks of an
		// incarnation that we may not reach any more.
		e.Out.Mark(MarkReplyAfterLink)
		_, cause := e.links.Outbound(p.peer).State()
		why := effects.Why{}
		if w := e.links.Outbound(p.peer).Why(); w != nil {
			why = *w
		}
		if cause == effects.OK { // It is up again, to another life. Nothing was sent, so this is no success.
			cause, why = effects.Stale, effects.Why{Field: "life", Theirs: "another one than that which was asked"}
		}
		f.unanswered(e, h, p, cause, why)
		return
	}
	m := &f.reply
	if err := m.Decode(body, &e.cfg.Wire); err != nil {
		e.Out.Mark(MarkReplyMalformed)
		p.malformed(e, p.stage(), link.Undecodable(err))
		f.fail(e, h, p, effects.Malformed)
		return
	}
	if m.HasExt {
		p.grant = effects.GrantID(m.Ext.Grant)
	}
	// The synchronous upstream form has no word for a refusal; our code beside it has.
	if m.AllocFailed || m.HasExt && m.Ext.Code != 0 {
		f.onRefused(e, h, p)
		return
	}
	if p.Delivered() {
		e.Out.Mark(MarkReplyAfterOutcome)
		f.giveBack(e, h, p)
		return
	}
	if !f.plan(e.links.Of(p.peer), p) {
		e.Out.Mark(MarkReplySenseless)
		p.malformed(e, p.stage(), effects.Why{
			Field: "AllocResponse", Ours: number(p.size()) + " chunks asked for",
			Theirs: number(len(m.RemoteIndexes)) + " pages and " + number(len(m.AlreadySent)) + " chunks that do not fit them",
		})
		f.fail(e, h, p, effects.Malformed)
		return
	}
	if len(f.pairs) == 0 {
		e.Out.Mark(MarkAllSkipped)
		f.deliver(e, p, effects.OK)
		f.end(e, h, p)
		return
	}
	f.becomeMoving(e, h, p)
}

func (f *pushSource) onRefused(e *step, h table.Handle, p *pushPut) {
	code := effects.NoMemory
	if f.reply.HasExt && f.reply.Ext.Code != 0 {
		code = effects.CodeFromWire(f.reply.Ext.Code)
	}
	if code == effects.Stale {
		e.Out.Mark(MarkAskedStale)
		e.links.Fail(&e.Env, p.peer, effects.Stale, atStage(effects.StageAsk, said(f.reply.Ext.Reason)))
		if !p.Delivered() && p.failed < attemptsMax {
			f.becomeWaiting(e, h, p)
			return
		}
	}
	e.Out.Mark(MarkAllocFailed)
	words := effects.Words(f.reply.Ext.Reason)
	p.Blame(code, refusalOf(words))
	if !p.Delivered() {
		f.deliver(e, p, code)
	}
	if full(code) {
		// Before a grant that came beside is given back, which lets the next one go.
		f.backOff(e, p.peer, code, words)
	}
	f.giveBack(e, h, p)
}

// fail gives the put this outcome unless it has one, then its grant back.
func (f *pushSource) fail(e *step, h table.Handle, p *pushPut, code effects.Code) {
	if !p.Delivered() {
		f.deliver(e, p, code)
	}
	f.giveBack(e, h, p)
}

// giveBack tells the receiver that a grant will not be used any more, so that it need not wait for the lease; a peer
// that does not listen waits. Nothing of ours stores under the grant any more.
func (f *pushSource) giveBack(e *step, h table.Handle, p *pushPut) {
	if p.grant == 0 || !p.listens {
		f.end(e, h, p)
		return
	}
	p.aborting = true
	f.becomeCommitting(e, h, p)
}
