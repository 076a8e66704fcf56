package pull

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/protocol"
)

// refuseOffer replies that nothing of t.offer will be read, with the code and the reason, and records the refusal
// for retries.
func (t *Target) refuseOffer(e *flow.Env, from flow.Sender, code effects.Code, why *effects.Why) {
	t.addRefusalRecord(e, from.Class, code)
	if why != nil && why.Stage == effects.StageNone {
		why.Stage = effects.StageOffer
	}
	t.reportRefusal(e, from, code, why)
	t.sendRefusal(e, from.Request, t.offer.HasExt, t.offerEcho(), code, why, false)
}

// forbidOffer refuses t.offer because of the identity of its sender, and records nothing. The sender's offer may be read
// at the time: it was accepted when the identity had its role, or came from the peer in whose name this one was sent.
// Therefore the refusal leaves the lease in force (M6).
func (t *Target) forbidOffer(e *flow.Env, from flow.Sender, why *effects.Why) {
	why.Stage = effects.StageOffer
	t.reportRefusal(e, from, effects.Forbidden, why)
	t.sendRefusal(e, from.Request, t.offer.HasExt, t.offerEcho(), effects.Forbidden, why, true)
}

// reportRefusal reports that t.offer is refused.
func (t *Target) reportRefusal(e *flow.Env, from flow.Sender, code effects.Code, why *effects.Why) {
	if t.offer.HasExt {
		from.Trace, from.ArrivedAt = effects.TraceFromWire(t.offer.Ext.Trace), t.arrivedAt
	}
	e.ReportRefusal(from, t.offer.Ext.Incarnation, code, len(t.offer.Keys), why)
}

// A replyEcho holds what the reply to an offer repeats: the sender's clock reading, and the incarnation of this rank
// that the sender addressed.
type replyEcho struct {
	clock  int64
	selfID effects.Incarnation
}

func (t *Target) offerEcho() replyEcho {
	return replyEcho{clock: t.offer.Ext.Stamps.ClockNS, selfID: effects.Incarnation(t.offer.Ext.To)}
}

// sendRefusal replies that nothing of an offer will be used. If stillReading is true, a read of the offer may still be
// in progress, and a done message reports its end later (M6).
func (t *Target) sendRefusal(
	e *flow.Env, to effects.Request, extended bool, echo replyEcho, code effects.Code, why *effects.Why,
	stillReading bool,
) {
	if !extended && flow.IsPermanent(code) {
		flow.SendEmptyReply(&e.Env, to)
		return
	}
	m := &t.ack
	m.AlreadySent, m.AllocFailed, m.HasExt = m.AlreadySent[:0], true, extended
	m.Ext = protocol.PullAckExt{
		Version: link.VersionMax, Incarnation: protocol.UUID(echo.selfID), Code: uint32(code), Delayed: stillReading,
		Stamps: protocol.Stamps{ClockNS: int64(e.Now), EchoNS: echo.clock},
	}
	if why != nil {
		m.Ext.Reason = why.Reason()
	}
	if code == effects.NoMemory || code == effects.TooMany {
		m.Ext.RetryNS = uint64(e.Cfg.AllocTimeout)
	}
	e.Out.Reply(effects.Reply{Request: to, Body: e.Out.Cut(m.Append(e.Out.Arena()))})
}

// sendAck replies that the chunks of an offer have been read or were here before. With delayed, the reply
// says that the chunks will be read when the engine fetches them.
func (t *Target) sendAck(e *flow.Env, to effects.Request, echo replyEcho, present []int64, delayed bool) {
	m := &t.ack
	m.AlreadySent, m.AllocFailed, m.HasExt = append(m.AlreadySent[:0], present...), false, true
	m.Ext = protocol.PullAckExt{
		Version: link.VersionMax, Incarnation: protocol.UUID(echo.selfID),
		Stamps:  protocol.Stamps{ClockNS: int64(e.Now), EchoNS: echo.clock},
		Delayed: delayed,
	}
	e.Out.Reply(effects.Reply{Request: to, Body: e.Out.Cut(m.Append(e.Out.Arena()))})
}

// onReachOutcome handles the result of an attempt to reach the pages of a class's sender, for which its offers waited.
// If the sender cannot be reached, its offers are condemned at once, so that the sender's engine learns at once,
// and not only when it relies on the chunks, that the chunks will not be read.
func (t *Target) onReachOutcome(e *flow.Env, class int, code effects.Code) {
	e.Deferred.MarkChanged()
	if code == effects.OK {
		e.Pending.RequeueLinked(class)
		return
	}
	e.Deferred.CondemnClass(class)
	e.Pending.CondemnLinking(class)
}

// handleWithdrawal handles a sender's message that takes offers back. A read in progress is useless from now on: on
// fenced planes the read fails by itself, on leased planes it is stopped here.
func (t *Target) handleWithdrawal(e *flow.Env, from flow.Sender, peerID effects.Incarnation) {
	// The reply repeats fields of t.offer, which a refusal below overwrites.
	m, echo := &t.offer, t.offerEcho()
	operation, pullID := m.Ext.Operation, m.Ext.Withdraw[0]
	e.ReportReturned(from.Class, peerID, len(m.Ext.Withdraw), effects.StageOffer, m.Ext.Code, m.Ext.Reason)
	if x := e.Landings.FindOperation(&e.Env, peerID, operation); x != nil && x.IsOwnRead() && t.readOf(x).pullID == pullID {
		e.Out.Mark(flow.Marks.OfferWithdrawn)
		t.cancelRead(e, x, effects.Cancelled)
	}
	if h, q := e.Pending.FindOperation(peerID, operation); h != 0 && q.Owner == kernel.OwnerPullTarget && q.OfferID == pullID {
		e.Out.Mark(flow.Marks.OfferWithdrawn)
		t.refuseWaiting(e, h, effects.Cancelled, flow.EndReason(effects.Cancelled))
	}
	if h, o := e.Deferred.FindOffer(peerID, operation); h != 0 && o.Pull == pullID && !t.dropOffer(e, h, effects.Cancelled, 0) {
		e.Deferred.CondemnOffer(h, effects.Cancelled)
	}
	t.sendAck(e, from.Request, echo, nil, false)
}
