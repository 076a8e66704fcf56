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

// What is remembered of offers that had our last word, and what they are answered who come again.

// wasEnded answers t.offer if it had our last word, or may have had it.
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
	// By this word the sender has its pages back. A copy of the offer that comes later may be tied to our clock by an
	// anchor that proves more, and begin after the watermark.
	t.rememberRefused(e, class, effects.Expired)
	t.fail(e, to, true, t.heard(), effects.Expired, flow.TooLate(), false)
	return true
}

// rememberRefused remembers that t.offer was refused.
func (t *Target) rememberRefused(e *flow.Env, class int, code effects.Code) {
	m := &t.offer
	if class == 0 || !m.HasExt || m.Ext.Operation == 0 || code == effects.Stale {
		return // Nobody that we know offered it, or offered it to us: that word ends no loan.
	}
	t.tombstones.Say(replies.Said{
		Class: class, Peer: effects.Incarnation(m.Ext.Incarnation), Operation: m.Ext.Operation, Attempt: m.Ext.Attempt,
		Code: code, When: e.Now, Over: t.leaseOver(e),
	})
}

// rememberDone remembers that an offer's end was told, or will be.
func (t *Target) rememberDone(
	e *flow.Env, class int, peer effects.Incarnation, operation uint64, code effects.Code, over effects.Time,
) {
	t.tombstones.Say(replies.Said{
		Class: class, Peer: peer, Operation: operation, Done: true, Code: code, When: e.Now, Over: over,
	})
}

// notify has a sender told that its offer is not read any more: its pages are its own again from then on.
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

// tellEnded tells the senders of offers that have ended. It follows each call that may end one.
func (t *Target) tellEnded(e *flow.Env) {
	for _, x := range e.Deferred.Over() {
		t.rememberDone(e, x.Class, x.To, x.Operation, x.Code, x.Over)
		t.notify(e, x.Address, x.Class, x.Done)
	}
	e.Deferred.HeardOver()
}

// drop takes out all chunks of an offer that are left.
func (t *Target) drop(e *flow.Env, h table.Handle, code effects.Code) {
	e.Work.Spend(1 + e.Deferred.ChunksOf(h))
	e.Deferred.Drop(&e.Env, &e.Store, h, code)
	t.tellEnded(e)
}

// dropOffer drops an offer, and ends what still wants to read it. Of what a request abandons only its own fetches end:
// another's goes on, as the lease stands until its done. Of no request (0) all do. It says whether all of that is done:
// as many fetches as there are may want to read one offer. If not, it is called again in the next step.
func (t *Target) dropOffer(e *flow.Env, h table.Handle, code effects.Code, request uint64) (done bool) {
	told := code
	if code == effects.Cancelled && request == 0 {
		told = effects.Withdrawn // Its sender took it back: as a read says that meets it.
	}
	done = e.Fetches.Withdraw(&e.Env, &e.Store, &e.Deferred, h, told, request)
	t.tellEnded(e)
	if done {
		e.Out.Mark(flow.Marks.OfferDropped)
		t.drop(e, h, code)
	}
	return done
}

// GoOn goes on with what ends because its link is lost, or its sender has taken an offer back, while there is work.
func (t *Target) GoOn(e *flow.Env) {
	e.Fetches.EndLost(&e.Env, &e.Store, &e.Deferred)
	t.tellEnded(e)
	for h, code := e.Deferred.Condemned(); h != 0 && e.Work.Left(); h, code = e.Deferred.Condemned() {
		if t.dropOffer(e, h, code, 0) {
			e.Deferred.Executed(h)
		}
	}
}
