package pull

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/flows/put"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// onDone handles a reader's done message: the reader has read the offered chunks, or will not read them. The done
// message is matched against the leases that stand. A message that is repeated or late, or that comes from
// another incarnation, matches none and has no effect (M2).
func (f *Source) onDone(e *flow.Env, ev *effects.Received) {
	m := &f.done
	if err := m.Decode(ev.Body, &e.Cfg.Wire); err != nil {
		e.Out.Mark(Marks.DoneMalformed)
		why := link.Undecodable(err)
		why.Stage = effects.StageOffer
		e.Out.Observe(effects.Observe{Fact: effects.FactMalformed, Code: effects.Malformed, ID: uint64(ev.Conn), Why: &why})
		return
	}
	h := f.pulls.find(&f.puts, m.PullID)
	p := f.puts.Get(h)
	if p == nil || !p.lease.Stands() || !p.spokenOf(m) {
		e.Out.Mark(Marks.DoneUnknown)
		return
	}
	if p.phase == sourceOffering || p.phase == sourceWaiting {
		e.Out.Mark(Marks.DoneEarly)
	}
	code := effects.OK
	if m.HasExt {
		code = effects.CodeFromWire(m.Ext.Code)
		if code != effects.OK {
			p.Blame(code, put.Said(m.Ext.Reason))
		}
	}
	p.read = code == effects.OK
	p.endLease(e)
	if p.phase == sourceWaiting {
		f.unqueue(p, h)
		f.finishUnanswered(e, h, p, code)
		return
	}
	f.answered(e, h, p)
}

// spokenOf reports whether a done message was sent by the incarnation to which the put was offered. A peer
// without our extensions states no incarnation, but it knows the put's id, which was sent to that peer alone.
func (p *outgoing) spokenOf(m *protocol.PullDoneSignal) bool {
	if p.Who == (effects.Incarnation{}) {
		return true
	}
	return m.HasExt && p.lease.SpokenOfBy(m.Ext.Incarnation, m.Ext.To, m.Ext.Grant)
}

// endLease ends a put's lease because the reader reported that it reads no more.
func (p *outgoing) endLease(e *flow.Env) {
	if p.lease.EndByWord(&e.Env, e.Cfg.Leased) {
		p.leaseOver(e)
	}
}

// leaseOver returns the memory if the outcome was delivered as held. Invariant: nothing reads the pages any more
// (M8).
func (p *outgoing) leaseOver(e *flow.Env) {
	if p.Held() {
		e.Work.Spend(p.Size())
		p.Return(e)
	}
}

// onLeaseOver ends an offer because the time of its lease is over.
func (f *Source) onLeaseOver(e *flow.Env, h table.Handle, p *outgoing) {
	e.Out.Mark(Marks.OfferOver)
	p.Blame(effects.Expired, effects.Why{Field: "pd_pull_pending_ttl", Ours: f.cfg.PullTTL.String(), Theirs: "no answer"})
	if p.lease.EndByTime(&e.Env, e.Cfg.Leased) {
		p.leaseOver(e)
	}
	switch {
	case p.Delivered():
		f.answered(e, h, p)
	case p.phase == sourceWaiting:
		f.stop(e, h, p, effects.Expired)
	default:
		p.deliver(e, effects.Expired)
	}
}

// finishUnanswered ends an offer that got no reply, after its lease has ended or has been given back by the
// reader.
func (f *Source) finishUnanswered(e *flow.Env, h table.Handle, p *outgoing, code effects.Code) {
	p.phase = sourceOffered
	p.deliver(e, p.orRead(e, code))
	f.answered(e, h, p)
}

// orRead returns the code with which a put ends: OK if the reader has read everything, whatever became of the
// reply, and the given code otherwise.
func (p *outgoing) orRead(e *flow.Env, code effects.Code) effects.Code {
	if !p.read {
		return code
	}
	e.Out.Mark(Marks.AckLost)
	p.Sent = uint32(p.Size())
	return effects.OK
}

// withdraw gives the put its outcome unless it has one, and takes the offer back as far as possible. On leased
// planes only the reader, which is notified, and time can end the lease (M4).
func (f *Source) withdraw(e *flow.Env, h table.Handle, p *outgoing, code effects.Code) {
	if !e.Cfg.Leased {
		p.endLease(e)
	}
	if p.Conn == 0 {
		p.phase = sourceOffered
	}
	p.withdrawn = p.withdrawn || !p.read
	if !p.Delivered() {
		p.deliver(e, p.orRead(e, code))
	}
	f.answered(e, h, p)
}

// answered advances a put that has its outcome and awaits no reply to its offer: it sends the withdrawal if the
// offer was taken back, waits for the end of the lease, and then removes the row.
func (f *Source) answered(e *flow.Env, h table.Handle, p *outgoing) {
	switch {
	case p.phase == sourceWithdrawing && p.Conn == 0:
		f.puts.Over(h, !p.lease.Out())
	case !p.Delivered() || p.phase == sourceWithdrawing || p.phase == sourceOffering && p.Conn != 0:
	case p.withdrawn && p.Listens && p.Attempt > 0:
		p.withdrawn = false
		e.Out.Mark(Marks.Withdrawn)
		f.becomeWithdrawing(e, h, p)
	default:
		f.finish(e, h, p)
	}
}

// finish removes a put that has no message left to send, as soon as none of its pages is leased.
func (f *Source) finish(e *flow.Env, h table.Handle, p *outgoing) {
	if p.lease.Out() {
		e.Timers.Stop(&p.Timer) // the timer of the withdrawal
		p.phase, p.Conn = sourceOffered, 0
		return
	}
	f.end(e, h, p)
}
