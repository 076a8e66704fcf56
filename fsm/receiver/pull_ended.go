package receiver

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/deferred"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/last"
	"github.com/kvferry/kvferry/fsm/link"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// What is remembered of offers that had our last word, and what they are answered who come again.

// wasEnded answers t.offer if it had our last word, or may have had it.
func (t *pullTarget) wasEnded(v *env.Env, r *rooms, l *link.Links, to effects.Request, class int) bool {
	m := &t.offer
	if x := t.tombstones.Find(v.Now, effects.Incarnation(m.Ext.Incarnation), m.Ext.Operation, m.Ext.Attempt); x != nil {
		v.Out.Mark(MarkOfferBuried)
		if x.Code == effects.OK {
			t.acknowledge(v, r, to, t.heard(), nil, false)
		} else {
			t.fail(v, r, to, true, t.heard(), x.Code, ended(x.Code), false)
		}
		return true
	}
	watermark := t.tombstones.Watermark(class)
	if !r.cfg.Leased || watermark == last.Ever {
		return false
	}
	if began, known := l.Anchor(v, class, m.Ext.Stamps, m.Ext.GrantedNS); known && began > watermark {
		return false
	}
	v.Out.Mark(MarkOfferBuried)
	t.fail(v, r, to, true, t.heard(), effects.Expired, tooLate(), false)
	return true
}

// rememberRefused remembers that t.offer was refused.
func (t *pullTarget) rememberRefused(v *env.Env, r *rooms, class int, code effects.Code) {
	m := &t.offer
	if class == 0 || !m.HasExt || m.Ext.Operation == 0 || code == effects.Stale {
		return // Nobody that we know offered it, or offered it to us: that word ends no loan.
	}
	t.tombstones.Say(last.Said{
		Class: class, Peer: effects.Incarnation(m.Ext.Incarnation), Operation: m.Ext.Operation, Attempt: m.Ext.Attempt,
		Code: code, When: v.Now, Over: t.leaseOver(v, r),
	})
}

// rememberDone remembers that an offer's end was told, or will be.
func (t *pullTarget) rememberDone(
	v *env.Env, class int, peer effects.Incarnation, operation uint64, code effects.Code, over effects.Time,
) {
	t.tombstones.Say(last.Said{
		Class: class, Peer: peer, Operation: operation, Done: true, Code: code, When: v.Now, Over: over,
	})
}

// notify has a sender told that its offer is not read any more: its pages are its own again from then on.
func (t *pullTarget) notify(v *env.Env, to table.Handle, class int, d deferred.Done) {
	m := &t.done
	*m = protocol.PullDoneSignal{PullID: d.Pull, HasExt: true, Ext: protocol.PullDoneExt{
		Version: link.VersionMax, Incarnation: protocol.UUID(d.Us), To: protocol.UUID(d.To),
		Grant: d.Grant, Code: uint32(d.Code), Missing: d.Missing,
	}}
	if d.Code != effects.OK {
		m.Ext.Reason = ended(d.Code).Reason()
	}
	t.word = m.Append(t.word[:0])
	t.notices.Notify(v, to, class, t.word)
}

// tellEnded tells the senders of offers that have ended. It follows each call that may end one.
func (t *pullTarget) tellEnded(v *env.Env, r *rooms) {
	for _, x := range r.deferred.Over() {
		t.rememberDone(v, x.Class, x.To, x.Operation, x.Code, x.Over)
		t.notify(v, x.Address, x.Class, x.Done)
	}
	r.deferred.HeardOver()
}

// drop takes out all chunks of an offer that are left.
func (t *pullTarget) drop(v *env.Env, r *rooms, h table.Handle, code effects.Code) {
	r.deferred.Drop(v, &r.Store, h, code)
	t.tellEnded(v, r)
}

// dropOffers drops the offers that match, and ends what still wants to read them. Of what a request abandons only its
// own fetches end: another's goes on, as the lease stands until its done.
func (t *pullTarget) dropOffers(v *env.Env, r *rooms, code effects.Code, which offersOf) {
	for slot := range r.deferred.Slots() {
		h, o := r.deferred.At(slot)
		if h == 0 || !which.has(o) {
			continue
		}
		v.Out.Mark(MarkOfferDropped)
		r.fetches.Withdraw(v, &r.Store, &r.deferred, h, code, which.request)
		t.tellEnded(v, r)
		t.drop(v, r, h, code)
	}
}

// offersOf says which offers: those of a class, of a request, or those that a peer withdrew.
type offersOf struct {
	class     int
	request   uint64
	withdrawn effects.Incarnation
	names     []protocol.PullID // of those that it withdrew, in their order
}

func (w offersOf) has(o *deferred.Kept) bool {
	return w.class != 0 && o.Class == w.class || w.request != 0 && o.Request == w.request ||
		w.withdrawn != effects.Incarnation{} && o.Peer == w.withdrawn && isWithdrawn(w.names, o.Pull)
}
