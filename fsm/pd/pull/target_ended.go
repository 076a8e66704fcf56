package pull

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/deferred"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/flow"
	"github.com/kvferry/kvferry/fsm/last"
	"github.com/kvferry/kvferry/fsm/link"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// What is remembered of offers that had our last word, and what they are answered who come again.

// wasEnded answers t.offer if it had our last word, or may have had it.
func (t *Target) wasEnded(v *env.Env, r *flow.Rooms, l *link.Links, to effects.Request, class int) bool {
	m := &t.offer
	if x := t.Tombstones.Find(v.Now, effects.Incarnation(m.Ext.Incarnation), m.Ext.Operation, m.Ext.Attempt); x != nil {
		v.Out.Mark(flow.MarkOfferBuried)
		if x.Code == effects.OK {
			t.acknowledge(v, r, to, t.heard(), nil, false)
		} else {
			t.fail(v, r, to, true, t.heard(), x.Code, flow.WhyEnded(x.Code), false)
		}
		return true
	}
	watermark := t.Tombstones.Watermark(class)
	if !r.Cfg.Leased || watermark == last.Ever {
		return false
	}
	if began, known := l.Anchor(v, class, m.Ext.Stamps, m.Ext.GrantedNS); known && began > watermark {
		return false
	}
	v.Out.Mark(flow.MarkOfferBuried)
	t.fail(v, r, to, true, t.heard(), effects.Expired, flow.TooLate(), false)
	return true
}

// rememberRefused remembers that t.offer was refused.
func (t *Target) rememberRefused(v *env.Env, r *flow.Rooms, class int, code effects.Code) {
	m := &t.offer
	if class == 0 || !m.HasExt || m.Ext.Operation == 0 || code == effects.Stale {
		return // Nobody that we know offered it, or offered it to us: that word ends no loan.
	}
	t.Tombstones.Say(last.Said{
		Class: class, Peer: effects.Incarnation(m.Ext.Incarnation), Operation: m.Ext.Operation, Attempt: m.Ext.Attempt,
		Code: code, When: v.Now, Over: t.leaseOver(v, r),
	})
}

// rememberDone remembers that an offer's end was told, or will be.
func (t *Target) rememberDone(
	v *env.Env, class int, peer effects.Incarnation, operation uint64, code effects.Code, over effects.Time,
) {
	t.Tombstones.Say(last.Said{
		Class: class, Peer: peer, Operation: operation, Done: true, Code: code, When: v.Now, Over: over,
	})
}

// notify has a sender told that its offer is not read any more: its pages are its own again from then on.
func (t *Target) notify(v *env.Env, to table.Handle, class int, d deferred.Done) {
	m := &t.done
	*m = protocol.PullDoneSignal{PullID: d.Pull, HasExt: true, Ext: protocol.PullDoneExt{
		Version: link.VersionMax, Incarnation: protocol.UUID(d.Us), To: protocol.UUID(d.To),
		Grant: d.Grant, Code: uint32(d.Code), Missing: d.Missing,
	}}
	if d.Code != effects.OK {
		m.Ext.Reason = flow.WhyEnded(d.Code).Reason()
	}
	t.word = m.Append(t.word[:0])
	t.Notices.Notify(v, to, class, t.word)
}

// TellEnded tells the senders of offers that have ended. It follows each call that may end one.
func (t *Target) TellEnded(v *env.Env, r *flow.Rooms) {
	for _, x := range r.Deferred.Over() {
		t.rememberDone(v, x.Class, x.To, x.Operation, x.Code, x.Over)
		t.notify(v, x.Address, x.Class, x.Done)
	}
	r.Deferred.HeardOver()
}

// Drop takes out all chunks of an offer that are left.
func (t *Target) Drop(v *env.Env, r *flow.Rooms, h table.Handle, code effects.Code) {
	r.Deferred.Drop(v, &r.Store, h, code)
	t.TellEnded(v, r)
}

// DropOffers drops the offers that match, and ends what still wants to read them. Of what a request abandons only its
// own fetches end: another's goes on, as the lease stands until its done.
func (t *Target) DropOffers(v *env.Env, r *flow.Rooms, code effects.Code, which OffersOf) {
	for slot := range r.Deferred.Slots() {
		h, o := r.Deferred.At(slot)
		if h == 0 || !which.has(o) {
			continue
		}
		v.Out.Mark(flow.MarkOfferDropped)
		r.Fetches.Withdraw(v, &r.Store, &r.Deferred, h, code, which.Request)
		t.TellEnded(v, r)
		t.Drop(v, r, h, code)
	}
}

// OffersOf says which offers: those of a class, of a request, or those that a peer withdrew.
type OffersOf struct {
	class     int
	Request   uint64
	withdrawn effects.Incarnation
	names     []protocol.PullID // of those that it withdrew, in their order
}

func (w OffersOf) has(o *deferred.Kept) bool {
	return w.class != 0 && o.Class == w.class || w.Request != 0 && o.Request == w.Request ||
		w.withdrawn != effects.Incarnation{} && o.Peer == w.withdrawn && isWithdrawn(w.names, o.Pull)
}
