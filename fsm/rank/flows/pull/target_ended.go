package pull

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/deferred"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel/replies"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// This file holds the replay records of offers that have ended or were refused, and answers such offers if they
// arrive again.

// wasEnded answers t.offer if a done message or a refusal ended it, or may have ended it, and returns false
// otherwise.
func (t *Target) wasEnded(e *flow.Env, to effects.Request, class int) bool {
	m := &t.offer
	if x := t.tombstones.Find(effects.Incarnation(m.Ext.Incarnation), m.Ext.Operation, m.Ext.Attempt); x != nil {
		e.Out.Mark(flow.Marks.OfferRemembered)
		if x.Code == effects.OK {
			t.acknowledge(e, to, t.heard(), nil, false)
		} else {
			t.fail(e, to, true, t.heard(), x.Code, flow.WhyEnded(x.Code), false)
		}
		return true
	}
	watermark := t.tombstones.Watermark(class)
	if !e.Cfg.Leased || watermark == replies.Ever {
		return false
	}
	if began, known := e.Links.Anchor(&e.Env, class, m.Ext.Stamps, m.Ext.GrantedNS); known && began > watermark {
		return false
	}
	e.Out.Mark(flow.Marks.OfferRemembered)
	// This refusal returns the pages to the sender. A copy of the offer that arrives later may be compared with
	// this rank's clock by a better anchor, which places its beginning after the watermark; so the refusal is
	// recorded (M2).
	t.rememberRefused(e, class, effects.Expired)
	t.fail(e, to, true, t.heard(), effects.Expired, flow.TooLate(), false)
	return true
}

// rememberRefused records that t.offer was refused.
func (t *Target) rememberRefused(e *flow.Env, class int, code effects.Code) {
	m := &t.offer
	if class == 0 || !m.HasExt || m.Ext.Operation == 0 || code == effects.Stale {
		return // The sender is unknown, or addressed another incarnation: such a refusal ends no lease.
	}
	t.tombstones.Say(replies.Said{
		Class: class, Peer: effects.Incarnation(m.Ext.Incarnation), Operation: m.Ext.Operation, Attempt: m.Ext.Attempt,
		Code: code, When: e.Now, Over: t.leaseOver(e),
	})
}

// rememberDone records that the end of an offer was reported to its sender, or will be.
func (t *Target) rememberDone(
	e *flow.Env, class int, peer effects.Incarnation, operation uint64, code effects.Code, over effects.Time,
) {
	t.tombstones.Say(replies.Said{
		Class: class, Peer: peer, Operation: operation, Done: true, Code: code, When: e.Now, Over: over,
	})
}

// notify queues the done message of an offer to its sender. From then on the sender may reuse the pages, so
// nothing may read the pages any more.
func (t *Target) notify(e *flow.Env, to table.Handle, class int, d deferred.Done) {
	m := &t.done
	*m = protocol.PullDoneSignal{PullID: d.Pull, HasExt: true, Ext: protocol.PullDoneExt{
		Version: link.VersionMax, Incarnation: protocol.UUID(d.Us), To: protocol.UUID(d.To),
		Grant: d.Grant, Code: uint32(d.Code), Missing: d.Missing,
	}}
	if d.Code != effects.OK {
		m.Ext.Reason = flow.WhyEnded(d.Code).Reason()
	}
	t.word = m.Append(t.word[:0])
	t.notices.Notify(&e.Env, to, class, t.word)
}

// tellEnded notifies the senders of the deferred offers that have ended. It follows each call that may end one.
func (t *Target) tellEnded(e *flow.Env) {
	for _, x := range e.Deferred.Over() {
		t.rememberDone(e, x.Class, x.To, x.Operation, x.Code, x.Over)
		t.notify(e, x.Address, x.Class, x.Done)
	}
	e.Deferred.HeardOver()
}

// drop removes all remaining chunks of an offer.
func (t *Target) drop(e *flow.Env, h table.Handle, code effects.Code) {
	e.Work.Spend(1 + e.Deferred.ChunksOf(h))
	e.Deferred.Drop(&e.Env, &e.Store, h, code)
	t.tellEnded(e)
}

// dropOffer drops an offer and ends the fetches that read from the offer. If request is not 0, the engine has
// abandoned that request, and only the request's own fetches end; fetches of other requests go on, because the
// lease stands until the done message. If request is 0, all of them end. dropOffer returns false if some fetches
// are left, because any number of fetches may read one offer; then it is called again in the next step.
func (t *Target) dropOffer(e *flow.Env, h table.Handle, code effects.Code, request uint64) (done bool) {
	told := code
	if code == effects.Cancelled && request == 0 {
		told = effects.Withdrawn // The sender took the offer back: the code is that of a read that is withdrawn.
	}
	done = e.Fetches.Withdraw(&e.Env, &e.Store, &e.Deferred, h, told, request)
	t.tellEnded(e)
	if done {
		e.Out.Mark(flow.Marks.OfferDropped)
		t.drop(e, h, code)
	}
	return done
}

// GoOn continues, as far as the step has work, to end the fetches that have lost their link, and the offers that
// are condemned.
func (t *Target) GoOn(e *flow.Env) {
	e.Fetches.EndLost(&e.Env, &e.Store, &e.Deferred)
	t.tellEnded(e)
	for h, code := e.Deferred.Condemned(); h != 0 && e.Work.Left(); h, code = e.Deferred.Condemned() {
		if t.dropOffer(e, h, code, 0) {
			e.Deferred.Executed(h)
		}
	}
}
