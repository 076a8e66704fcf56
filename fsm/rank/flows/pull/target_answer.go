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
func (t *Target) refuseOffer(e *flow.Env, who flow.Asker, code effects.Code, why *effects.Why) {
	t.rememberRefused(e, who.Class, code)
	if why != nil && why.Stage == effects.StageNone {
		why.Stage = effects.StageOffer
	}
	e.Note(who, t.offer.Ext.Incarnation, code, len(t.offer.Keys), why)
	t.fail(e, who.To, t.offer.HasExt, t.heard(), code, why, false)
}

// A heard holds what the reply to an offer repeats: the sender's clock reading, and the incarnation of this rank
// that the sender addressed.
type heard struct {
	clock int64
	us    effects.Incarnation
}

func (t *Target) heard() heard {
	return heard{clock: t.offer.Ext.Stamps.ClockNS, us: effects.Incarnation(t.offer.Ext.To)}
}

// fail replies that nothing of an offer will be used. If reading is true, a read of the offer may still be in
// progress, and a done message reports its end later (M6).
func (t *Target) fail(
	e *flow.Env, to effects.Request, extended bool, what heard, code effects.Code, why *effects.Why,
	reading bool,
) {
	if !extended && flow.Never(code) {
		flow.RefuseForGood(&e.Env, to)
		return
	}
	m := &t.ack
	m.AlreadySent, m.AllocFailed, m.HasExt = m.AlreadySent[:0], true, extended
	m.Ext = protocol.PullAckExt{
		Version: link.VersionMax, Incarnation: protocol.UUID(what.us), Code: uint32(code), Delayed: reading,
		Stamps: protocol.Stamps{ClockNS: int64(e.Now), EchoNS: what.clock},
	}
	if why != nil {
		m.Ext.Reason = why.Reason()
	}
	if code == effects.NoMemory || code == effects.TooMany {
		m.Ext.RetryNS = uint64(e.Cfg.AllocTimeout)
	}
	e.Out.Reply(effects.Reply{Request: to, Body: e.Out.Cut(m.Append(e.Out.Arena()))})
}

// acknowledge replies that the chunks of an offer have been read or were here before. With delayed, the reply
// says that the chunks will be read when the engine fetches them.
func (t *Target) acknowledge(e *flow.Env, to effects.Request, what heard, already []int64, delayed bool) {
	m := &t.ack
	m.AlreadySent, m.AllocFailed, m.HasExt = append(m.AlreadySent[:0], already...), false, true
	m.Ext = protocol.PullAckExt{
		Version: link.VersionMax, Incarnation: protocol.UUID(what.us),
		Stamps:  protocol.Stamps{ClockNS: int64(e.Now), EchoNS: what.clock},
		Delayed: delayed,
	}
	e.Out.Reply(effects.Reply{Request: to, Body: e.Out.Cut(m.Append(e.Out.Arena()))})
}

// reached handles the result of an attempt to reach the pages of a class's sender, for which its offers waited.
// If the sender cannot be reached, its offers are condemned at once, so that the sender's engine learns at once,
// and not only when it relies on the chunks, that the chunks will not be read.
func (t *Target) reached(e *flow.Env, class int, code effects.Code) {
	e.Deferred.Stir()
	if code == effects.OK {
		e.Pending.Linked(class)
		return
	}
	e.Deferred.Lose(class)
	e.Pending.LoseWay(class)
}

// onWithdrawal handles a sender's message that takes offers back. A read in progress is useless from now on: on
// fenced planes the read fails by itself, on leased planes it is stopped here.
func (t *Target) onWithdrawal(e *flow.Env, who flow.Asker, peer effects.Incarnation) {
	// The reply repeats fields of t.offer, which a refusal below overwrites.
	m, heard := &t.offer, t.heard()
	operation, name := m.Ext.Operation, m.Ext.Withdraw[0]
	e.GivenBack(who.Class, peer, len(m.Ext.Withdraw), effects.StageOffer, m.Ext.Code, m.Ext.Reason)
	if x := e.Landings.Again(&e.Env, peer, operation); x != nil && x.Reads() && t.readingOf(x).id == name {
		e.Out.Mark(flow.Marks.OfferWithdrawn)
		t.stopReading(e, x, effects.Cancelled)
	}
	if h, q := e.Pending.Find(peer, operation); h != 0 && q.Owner == kernel.OwnerPullTarget && q.Pull == name {
		e.Out.Mark(flow.Marks.OfferWithdrawn)
		t.refuseWaiting(e, h, effects.Cancelled, flow.WhyEnded(effects.Cancelled))
	}
	if h, o := e.Deferred.Find(peer, operation); h != 0 && o.Pull == name && !t.dropOffer(e, h, effects.Cancelled, 0) {
		e.Deferred.Condemn(h, effects.Cancelled)
	}
	t.acknowledge(e, who.To, heard, nil, false)
}
