package sender

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/kernel"
	"github.com/kvferry/kvferry/fsm/lease"
	"github.com/kvferry/kvferry/fsm/link"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// becomeOffering sends the PullReadyNotif, and grants the lease before it unless it stands already: a reader's word
// that it has read can never come before there is something to end, however early it comes. A retry speaks of the
// same lease, which began with its first message whatever became of that.
func (f *pullSource) becomeOffering(e *step, h table.Handle, conn effects.Conn) {
	p := f.puts.Get(h)
	p.phase, p.conn = pullOffering, conn
	p.tries(&f.queues)
	if p.lease.Out() {
		p.lease.Spoke()
	} else {
		peer := p.meet(e)
		p.listens = peer.Withdrawals()
		to := lease.Reader{Who: p.who, Us: p.us, Keeps: peer.Leases()}
		p.lease.Grant(&e.Env, p.places(), to, e.cfg.PullTTL, timerRef(timerLease, h))
	}
	m := f.message(e, p)
	m.PullID, m.Shape, m.LastChunkTokens = p.id, p.shape(&e.cfg.Layout), p.lastTokens
	m.Ext.Attempt, m.Ext.Request = p.attempt, e.requests.Name(p.request)
	m.Ext.PatienceNS = uint64(max(0, min(e.cfg.AllocTimeout, p.Deadline.Sub(e.Now))))
	m.Ext.Grant, m.Ext.GrantedNS = p.lease.Terms()
	m.Ext.LeaseNS = uint64(e.cfg.PullTTL)
	m.Ext.Renew = e.cfg.RenewURL
	for i, page := range p.places() {
		m.Keys = append(m.Keys, p.key(i))
		m.SenderUUIDs = append(m.SenderUUIDs, e.cfg.Buffer)
		m.SenderIndexes = append(m.SenderIndexes, int64(page.Index))
		m.Ext.Generations = append(m.Ext.Generations, uint64(page.Generation))
	}
	f.send(e, h, p, kindOffer)
}

// sendWithdrawal says that the put's offer is taken back. (The reader of an eager offer learns it from its read.)
func (f *pullSource) sendWithdrawal(e *step, h table.Handle, conn effects.Conn) {
	p := f.puts.Get(h)
	p.conn = conn
	m := f.message(e, p)
	m.PullID, m.Shape, m.LastChunkTokens = protocol.PullID{}, e.cfg.Layout.Shape, 0
	m.Ext.Withdraw = append(m.Ext.Withdraw, p.id)
	m.Ext.Code, m.Ext.Reason = p.Reason()
	f.send(e, h, p, kindWithdraw)
}

// message begins one to the peer of a put, which offers nothing yet.
func (f *pullSource) message(e *step, p *pullPut) *protocol.PullReadyNotif {
	m := &f.offer
	m.SenderID, m.SenderDoneURL = e.cfg.SenderID, e.cfg.DoneURL
	m.Keys, m.SenderUUIDs, m.SenderIndexes = m.Keys[:0], m.SenderUUIDs[:0], m.SenderIndexes[:0]
	m.Format, m.Dtype = e.cfg.Layout.Format, e.cfg.Layout.Dtype
	m.HasExt = true
	m.Ext = protocol.PullReadyExt{
		Version: link.VersionMax, Incarnation: protocol.UUID(p.us), To: protocol.UUID(p.who), Operation: p.operation,
		Generations: m.Ext.Generations[:0], Withdraw: m.Ext.Withdraw[:0], Stamps: e.links.Of(p.peer).Stamps(e.Now),
	}
	return m
}

func (f *pullSource) send(e *step, h table.Handle, p *pullPut, kind uint8) {
	p.send(e, f.offer.Append(e.Out.Arena()), kindRef(kind, h), timerRef(timerPullAnswer, h))
}

// onUnanswered handles a question that got no answer.
func (f *pullSource) onUnanswered(e *step, ref kernel.Ref, code effects.Code) {
	h := ref.Subject
	p := f.puts.Get(h)
	e.Timers.Stop(&p.answer)
	p.hangUp(e, p.lane())
	if ref.Kind == kindWithdraw {
		p.conn = 0
		f.finish(e, h, p)
		return
	}
	p.charge(f.queues.at(p.peer))
	p.conn = 0
	switch {
	case p.Delivered():
		f.answered(e, h, p)
	case p.read || !p.lease.Stands():
		p.Blame(noAnswer(code), e.hungUp(code))
		f.finishUnanswered(e, h, p, noAnswer(code))
	case p.failed < attemptsMax:
		e.Out.Mark(MarkOfferAgain)
		f.becomeWaiting(e, h, p)
	default:
		p.Blame(noAnswer(code), e.hungUp(code))
		f.withdraw(e, h, p, noAnswer(code))
	}
}

// onReplied handles an answer on a lane, which is free for the next question.
func (f *pullSource) onReplied(e *step, ref kernel.Ref, body []byte) {
	h := ref.Subject
	p := f.puts.Get(h)
	e.Timers.Stop(&p.answer)
	e.links.Untake(&e.Env, p.peer, p.lane(), p.conn)
	if ref.Kind == kindWithdraw {
		f.finish(e, h, p) // Whatever it says to the withdrawal.
		return
	}
	e.breakers.Answered(e.Now, p.where)
	p.conn = 0
	f.onAck(e, h, p, body)
}

// onAck handles the answer to an offer.
func (f *pullSource) onAck(e *step, h table.Handle, p *pullPut, body []byte) {
	m := &f.ack
	if err := m.Decode(body, &e.cfg.Wire); err != nil {
		e.Out.Mark(MarkReplyMalformed)
		p.malformed(e, p.stage(), link.Undecodable(err))
		f.withdraw(e, h, p, effects.Malformed)
		return
	}
	// A plain peer names no life; an extended one speaks for its own alone.
	its := m.HasExt && effects.Incarnation(m.Ext.Incarnation) == p.who || !m.HasExt && p.who == (effects.Incarnation{})
	if its && m.HasExt {
		if _, who := e.links.Of(p.peer).Link(); who == p.who {
			e.links.Of(p.peer).Seen(m.Ext.Stamps)
		}
	}
	code, why := effects.OK, effects.Why{}
	switch {
	case m.HasExt && m.Ext.Code != 0:
		code, why = effects.CodeFromWire(m.Ext.Code), refusalOf(effects.Words(m.Ext.Reason))
	case m.AllocFailed:
		code, why = effects.NoMemory, effects.Why{Field: "alloc_failed", Theirs: "true"}
	case !its:
		code, why = effects.Malformed, effects.Why{Field: "kvf_inc", Theirs: "not of the life that shook hands"}
	case !ascending(m.AlreadySent, p.size()):
		e.Out.Mark(MarkReplySenseless)
		code, its = effects.Malformed, false // Who says nonsense has not said that nothing will be read.
		why = effects.Why{
			Field: "already_sent_indexes", Ours: "below " + number(p.size()) + ", each beyond the one before,",
			Theirs: "others",
		}
	}
	if code != effects.OK {
		p.Blame(code, why)
		f.onRefused(e, h, p, code, its && !m.Ext.Delayed)
		return
	}
	p.phase = pullOffered
	p.skipped = uint32(len(m.AlreadySent))
	p.sent = uint32(p.size()) - p.skipped
	if p.sent == 0 {
		e.Out.Mark(MarkAllSkipped)
		p.endLease(e)
	}
	if p.Delivered() {
		e.Out.Mark(MarkReplyAfterOutcome)
		f.answered(e, h, p)
		return
	}
	f.deliver(e, p, effects.OK)
	f.answered(e, h, p)
}

// onRefused ends an offer of which nothing will come. Its lease ends, too, if its reader says that nothing reads:
// else with a done, or its time.
func (f *pullSource) onRefused(e *step, h table.Handle, p *pullPut, code effects.Code, its bool) {
	e.Out.Mark(MarkAllocFailed)
	peer, why := p.peer, atStage(effects.StageOffer, said(f.ack.Ext.Reason))
	if code == effects.Stale {
		// Whoever it was offered to is gone. Nobody can offer these pages to its successor before they are back.
		e.Out.Mark(MarkAskedStale)
		p.failLink(e, effects.Stale, why)
		code, its = effects.PeerLost, false
		p.Blame(code, effects.Why{Field: "life", Theirs: "new (it has restarted since the offer)", Said: why.Said})
	}
	if its && code == effects.Expired && !p.Delivered() && p.lease.Stands() && p.failed < attemptsMax {
		// What tied its clock to ours was too old, after an hour without a word. Now it has our newest stamp.
		e.Out.Mark(MarkOfferAgain)
		f.becomeWaiting(e, h, p)
		return
	}
	if full(code) {
		f.backOff(e, peer, code, why.Said) // Before the lane is free for the next one.
	}
	if !its {
		f.withdraw(e, h, p, code)
		return
	}
	if code == effects.Expired {
		// What ties its clock to ours may be too old for any offer: shaking hands makes it new.
		p.failLink(e, effects.Expired, why)
	}
	p.endLease(e)
	p.phase, p.withdrawn = pullOffered, false
	if !p.Delivered() {
		f.deliver(e, p, code)
	}
	f.answered(e, h, p)
}

// failLink gives up the link of which an answer to a put speaks. One that came late may find that link gone already:
// then another attempt is under way, which it knows nothing of, or has met another life.
func (p *pullPut) failLink(e *step, code effects.Code, why effects.Why) {
	if p.met(e) {
		e.links.Fail(&e.Env, p.peer, code, why)
	}
}

// ascending says whether indexes are below n and each beyond the one before.
func ascending(indexes []int64, n int) bool {
	last := int64(-1)
	for _, i := range indexes {
		if i <= last || i >= int64(n) {
			return false
		}
		last = i
	}
	return true
}
