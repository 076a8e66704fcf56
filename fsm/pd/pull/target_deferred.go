package pull

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/deferred"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/flow"
	"github.com/kvferry/kvferry/fsm/kernel"
	"github.com/kvferry/kvferry/fsm/lease"
	"github.com/kvferry/kvferry/fsm/link"
	"github.com/kvferry/kvferry/fsm/pending"
	"github.com/kvferry/kvferry/fsm/table"
)

// Offers that are deferred: how they come, are answered, prolonged and told that they ended.

// postpone keeps t.offer for later, and acknowledges it.
func (t *Target) postpone(v *env.Env, r *flow.Rooms, l *link.Links, ev *effects.Received, class int) {
	m, who := &t.offer, flow.Asker{To: ev.Request, Conn: ev.Conn, Class: class}
	may, known := t.rightOf(v, r, l, class)
	switch {
	case !known || v.Now.Add(r.Cfg.LeadMin) > may.Until:
		v.Out.Mark(flow.MarkOfferTooLate)
		t.refuseOffer(v, r, who, effects.Expired, flow.TooLate())
		return
	case !r.Deferred.MayKeep(&r.Store, class, len(m.Keys)):
		v.Out.Mark(flow.MarkOffersFull)
		t.refuseOffer(v, r, who, effects.TooMany, pending.TooMany("offers kept", int(r.Cfg.OffersMax)))
		return
	}
	request := r.Store.RequestHash(m.Ext.Request)
	p := r.Landings.Plan(&r.Store, class, m.Keys, m.LastChunkTokens, true)
	p.Unplan(v, &r.Store) // It began fills, and there will be none.
	t.already = p.ClaimReady(v, &r.Store, class, request, t.already[:0])
	if p.Fresh() == 0 {
		t.rememberDone(v, class, effects.Incarnation(m.Ext.Incarnation), m.Ext.Operation, effects.OK, may.Over)
		t.acknowledge(v, r, ev.Request, t.heard(), t.already, false)
		return
	}
	peer := effects.Incarnation(m.Ext.Incarnation)
	h := r.Deferred.Keep(deferred.Kept{
		Class: class, Peer: peer, Us: t.heard().us, Operation: m.Ext.Operation, Pull: m.PullID, Grant: m.Ext.Grant,
		Request: request, What: p.What(m.LastChunkTokens), Right: may,
		Address: t.Notices.Promise(v, class, m.SenderDoneURL),
	}, t.already)
	for i := range p.Spots {
		at := &p.Spots[i]
		if !at.Fills() {
			continue
		}
		r.Deferred.Add(&r.Store, h, p.Hashes[i], m.Keys[i], p.Lengths[at.Page], effects.RemotePage{
			Buffer: effects.BufferID(m.SenderUUIDs[i]), Index: uint32(m.SenderIndexes[i]),
			Generation: effects.Generation(m.Ext.Generations[i]),
		})
	}
	renews := t.Renewers.Announced(v, class, m.Ext.Renew)
	t.Renew(v, r, class)
	r.Deferred.Watch(v, h, renews)
	l.Reach(v, class) // So that the link is there when it is wanted.
	t.acknowledge(v, r, ev.Request, t.heard(), t.already, true)
}

// postponed answers a retry of an offer that is kept, or of which fetches still read though its chunks have left.
func (t *Target) postponed(
	v *env.Env, r *flow.Rooms, who flow.Asker, peer effects.Incarnation, operation, request uint64,
) bool {
	o := r.Deferred.Find(peer, operation)
	if o == nil {
		return false
	}
	if o.Request != request || o.What != r.Named(t.offer.Keys, t.offer.LastChunkTokens) {
		t.refuseOther(v, r, who)
		return true
	}
	v.Out.Mark(flow.MarkOfferedAgain)
	if o.Left == 0 && o.Code != effects.OK {
		t.fail(v, r, who.To, true, t.heard(), o.Code, flow.WhyEnded(o.Code), true)
	} else {
		t.acknowledge(v, r, who.To, t.heard(), o.Already, true)
	}
	return true
}

// OfferDue handles an offer whose time is over, or should be prolonged.
func (t *Target) OfferDue(v *env.Env, r *flow.Rooms, h table.Handle) {
	if class, renew := r.Deferred.Due(v, h); renew {
		t.Renewers.Want(class)
		t.Renew(v, r, class)
		return
	}
	v.Out.Mark(flow.MarkOfferOver)
	t.Drop(v, r, h, effects.Expired)
}

// Renew asks a sender for more time, if that is wanted and nothing else is under way.
func (t *Target) Renew(v *env.Env, r *flow.Rooms, class int) {
	if t.Renewers.Ready(v, class) {
		grants, us, peer, more := r.Deferred.Renewing(v, class, t.Renewers.Most(), t.Renewers.List())
		t.Renewers.Ask(v, class, grants, us, peer, more)
	}
}

// RenewOpened handles the completion of the Open of a connection for renewals.
func (t *Target) RenewOpened(v *env.Env, r *flow.Rooms, ref kernel.Ref, ev *effects.Opened) {
	class := int(ref.Subject)
	current := t.Renewers.Completed(v, ref)
	if current {
		t.Renewers.Opened(v, class, ev)
	}
	t.Renew(v, r, class)
	if !current && ev.Code == effects.OK {
		v.Out.Close(ev.Conn)
	}
}

// RenewUnanswered handles a renewal that got no answer.
func (t *Target) RenewUnanswered(v *env.Env, r *flow.Rooms, ref kernel.Ref) {
	if t.Renewers.Completed(v, ref) {
		t.Renewers.Unanswered(v, int(ref.Subject))
	}
	t.Renew(v, r, int(ref.Subject))
}

// RenewAnswered handles the answer to a renewal.
func (t *Target) RenewAnswered(v *env.Env, r *flow.Rooms, ref kernel.Ref, body []byte) {
	class := int(ref.Subject)
	if t.Renewers.Completed(v, ref) {
		if asked, ns, ok := t.Renewers.Answered(v, class, body); ok {
			t.renewed(v, r, class, asked.Add(r.Stated(ns)-r.Cfg.LeaseGuard))
		}
	}
	t.Renew(v, r, class)
}

// renewed notes what the last answer says of a class's offers.
func (t *Target) renewed(v *env.Env, r *flow.Rooms, class int, until effects.Time) {
	for slot := range r.Deferred.Slots() {
		h, o := r.Deferred.At(slot)
		if h == 0 || o.Class != class {
			continue
		}
		switch {
		case v.Now < o.Until && t.Renewers.Prolongs(o.Grant, o.Peer):
			// One whose time was over by our clock is over: its chunks were given up already.
			v.Out.Mark(lease.MarkRenewed)
			r.Fetches.Extend(h, r.Deferred.Extend(v, h, until))
		case t.Renewers.Ends(o.Grant):
			v.Out.Mark(lease.MarkToldGone)
			t.Drop(v, r, h, effects.Expired)
		}
	}
}

// rightOf is the right that t.offer gives us, if we know when it began.
func (t *Target) rightOf(v *env.Env, r *flow.Rooms, l *link.Links, class int) (is lease.Right, known bool) {
	ext := &t.offer.Ext
	since, known := l.Anchor(v, class, ext.Stamps, ext.GrantedNS)
	return lease.Right{
		Since: since, Until: since.Add(r.Stated(ext.LeaseNS) - r.Cfg.LeaseGuard), Over: t.leaseOver(v, r),
	}, known
}

// leaseOver is when t.offer, whenever it began, will not be read any more if it comes again.
func (t *Target) leaseOver(v *env.Env, r *flow.Rooms) effects.Time {
	return v.Now.Add(r.Stated(t.offer.Ext.LeaseNS))
}
