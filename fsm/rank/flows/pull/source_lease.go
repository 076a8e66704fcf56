package pull

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/flows/put"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// handleDone handles a reader's done message: the reader has read the offered chunks, or will not read them. The done
// message is matched against the leases that stand. A message that is repeated or late, or that comes from
// another incarnation, matches none and has no effect (M2).
func (f *Source) handleDone(e *flow.Env, ev *effects.Received) {
	m := &f.doneMessage
	if err := m.Decode(ev.Body, &e.Cfg.Wire); err != nil {
		e.Out.Mark(Marks.DoneMalformed)
		why := link.DecodeReason(err)
		why.Stage = effects.StageOffer
		e.Out.Observe(effects.Observe{Fact: effects.FactMalformed, Code: effects.Malformed, ID: uint64(ev.Conn), Why: &why})
		return
	}
	if why := link.CheckRole(&e.Env, ev); why != nil {
		e.ReportForbidden(ev, effects.StageOffer, why)
		return
	}
	h := f.pullIDs.findPut(&f.puts, m.PullID)
	p := f.puts.Get(h)
	if p == nil || !p.lease.IsInForce() || !p.isFromReader(ev, m) {
		e.Out.Mark(Marks.DoneUnknown)
		return
	}
	if p.phase == putOffering || p.phase == putWaiting {
		e.Out.Mark(Marks.DoneEarly)
	}
	code := effects.OK
	if m.HasExt {
		code = effects.CodeFromWire(m.Ext.Code)
		if code != effects.OK {
			p.SetReason(code, put.PeerReason(m.Ext.Reason))
		}
	}
	p.wasRead = code == effects.OK
	p.endLease(e)
	if p.phase == putWaiting {
		f.unqueuePut(p, h)
		f.finishUnreplied(e, h, p, code)
		return
	}
	f.continuePut(e, h, p)
}

// isFromReader reports whether a done message was sent by the incarnation to which the put was offered. A peer
// without our extensions states no incarnation, but it knows the put's id, which was sent to that peer alone.
func (p *putRow) isFromReader(ev *effects.Received, m *protocol.PullDoneSignal) bool {
	if p.PeerID == (effects.Incarnation{}) {
		return true
	}
	return m.HasExt && p.lease.IsHeldBy(ev.Principal, m.Ext.Incarnation, m.Ext.To, m.Ext.Grant)
}

// endLease ends a put's lease because the reader reported that it reads no more.
func (p *putRow) endLease(e *flow.Env) {
	if p.lease.EndByDone(&e.Env, e.Cfg.Leased) {
		p.returnHeldPages(e)
	}
}

// returnHeldPages returns the memory if the outcome was delivered as held. Invariant: nothing reads the pages any more
// (M8).
func (p *putRow) returnHeldPages(e *flow.Env) {
	if p.IsHeld() {
		e.Work.SpendRows(p.Size())
		p.ReturnPages(e)
	}
}

// onLeaseExpired ends an offer because the time of its lease is over.
func (f *Source) onLeaseExpired(e *flow.Env, h table.Handle, p *putRow) {
	e.Out.Mark(Marks.OfferOver)
	p.SetReason(effects.Expired, effects.Why{Field: "pd_pull_pending_ttl", Ours: f.cfg.PullTTL.String(), Theirs: "no answer"})
	if p.lease.EndByTime(&e.Env, e.Cfg.Leased) {
		p.returnHeldPages(e)
	}
	switch {
	case p.IsDelivered():
		f.continuePut(e, h, p)
	case p.phase == putWaiting:
		f.stopPut(e, h, p, effects.Expired)
	default:
		p.deliverOutcome(e, effects.Expired)
	}
}

// finishUnreplied ends an offer that got no reply, after its lease has ended or has been given back by the
// reader.
func (f *Source) finishUnreplied(e *flow.Env, h table.Handle, p *putRow, code effects.Code) {
	p.phase = putOffered
	p.deliverOutcome(e, p.finalCode(e, code))
	f.continuePut(e, h, p)
}

// finalCode returns the code with which a put ends: OK if the reader has read everything, whatever became of the
// reply, and the given code otherwise.
func (p *putRow) finalCode(e *flow.Env, code effects.Code) effects.Code {
	if !p.wasRead {
		return code
	}
	e.Out.Mark(Marks.AckLost)
	p.Sent = uint32(p.Size())
	return effects.OK
}

// withdrawOffer gives the put its outcome unless it has one, and takes the offer back as far as possible. On leased
// planes only the reader, which is notified, and time can end the lease (M4).
func (f *Source) withdrawOffer(e *flow.Env, h table.Handle, p *putRow, code effects.Code) {
	if !e.Cfg.Leased {
		p.endLease(e)
	}
	if p.Conn == 0 {
		p.phase = putOffered
	}
	p.withdrawalDue = p.withdrawalDue || !p.wasRead
	if !p.IsDelivered() {
		p.deliverOutcome(e, p.finalCode(e, code))
	}
	f.continuePut(e, h, p)
}

// continuePut advances a put that has its outcome and awaits no reply to its offer: it sends the withdrawal if the
// offer was taken back, waits for the end of the lease, and then removes the row.
func (f *Source) continuePut(e *flow.Env, h table.Handle, p *putRow) {
	switch {
	case p.phase == putWithdrawing && p.Conn == 0:
		f.puts.SetFinished(h, !p.lease.MayBeRead())
	case !p.IsDelivered() || p.phase == putWithdrawing || p.phase == putOffering && p.Conn != 0:
	case p.withdrawalDue && p.AcceptsFinal && p.Attempt > 0:
		p.withdrawalDue = false
		e.Out.Mark(Marks.Withdrawn)
		f.queueWithdrawal(e, h, p)
	default:
		f.removeIfUnleased(e, h, p)
	}
}

// removeIfUnleased removes a put that has no message left to send, as soon as none of its pages is leased.
func (f *Source) removeIfUnleased(e *flow.Env, h table.Handle, p *putRow) {
	if p.lease.MayBeRead() {
		e.Timers.Stop(&p.Timer) // the timer of the withdrawal
		p.phase, p.Conn = putOffered, 0
		return
	}
	f.removePut(e, h, p)
}
