package receiver

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/deferred"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/kernel"
	"github.com/kvferry/kvferry/fsm/lease"
	"github.com/kvferry/kvferry/fsm/link"
	"github.com/kvferry/kvferry/fsm/pending"
	"github.com/kvferry/kvferry/fsm/table"
)

// Offers that are deferred: how they come, are answered, prolonged and told that they ended.

// postpone keeps t.offer for later, and acknowledges it.
func (t *pullTarget) postpone(v *env.Env, r *rooms, l *link.Links, ev *effects.Received, class int) {
	m, who := &t.offer, asker{to: ev.Request, conn: ev.Conn, class: class}
	may, known := t.rightOf(v, r, l, class)
	switch {
	case !known || v.Now.Add(r.cfg.LeadMin) > may.Until:
		v.Out.Mark(MarkOfferTooLate)
		t.refuseOffer(v, r, who, effects.Expired, tooLate())
		return
	case !r.deferred.MayKeep(&r.Store, class, len(m.Keys)):
		v.Out.Mark(MarkOffersFull)
		t.refuseOffer(v, r, who, effects.TooMany, pending.TooMany("offers kept", int(r.cfg.OffersMax)))
		return
	}
	request := r.Store.RequestHash(m.Ext.Request)
	p := r.landings.Plan(&r.Store, class, m.Keys, m.LastChunkTokens, true)
	p.Unplan(v, &r.Store) // It began fills, and there will be none.
	t.already = p.ClaimReady(v, &r.Store, class, request, t.already[:0])
	if p.Fresh() == 0 {
		t.rememberDone(v, class, effects.Incarnation(m.Ext.Incarnation), m.Ext.Operation, effects.OK, may.Over)
		t.acknowledge(v, r, ev.Request, t.heard(), t.already, false)
		return
	}
	peer := effects.Incarnation(m.Ext.Incarnation)
	h := r.deferred.Keep(deferred.Kept{
		Class: class, Peer: peer, Us: t.heard().us, Operation: m.Ext.Operation, Pull: m.PullID, Grant: m.Ext.Grant,
		Request: request, What: p.What(m.LastChunkTokens), Right: may,
		Address: t.notices.Promise(v, class, m.SenderDoneURL),
	}, t.already)
	for i := range p.Spots {
		at := &p.Spots[i]
		if !at.Fills() {
			continue
		}
		r.deferred.Add(&r.Store, h, p.Hashes[i], m.Keys[i], p.Lengths[at.Page], effects.RemotePage{
			Buffer: effects.BufferID(m.SenderUUIDs[i]), Index: uint32(m.SenderIndexes[i]),
			Generation: effects.Generation(m.Ext.Generations[i]),
		})
	}
	renews := t.renewers.Announced(v, class, m.Ext.Renew)
	t.renew(v, r, class)
	r.deferred.Watch(v, h, renews)
	l.Reach(v, class) // So that the link is there when it is wanted.
	t.acknowledge(v, r, ev.Request, t.heard(), t.already, true)
}

// postponed answers a retry of an offer that is kept, or of which fetches still read though its chunks have left.
func (t *pullTarget) postponed(
	v *env.Env, r *rooms, who asker, peer effects.Incarnation, operation, request uint64,
) bool {
	o := r.deferred.Find(peer, operation)
	if o == nil {
		return false
	}
	if o.Request != request || o.What != r.named(t.offer.Keys, t.offer.LastChunkTokens) {
		t.refuseOther(v, r, who)
		return true
	}
	v.Out.Mark(MarkOfferedAgain)
	if o.Left == 0 && o.Code != effects.OK {
		t.fail(v, r, who.to, true, t.heard(), o.Code, ended(o.Code), true)
	} else {
		t.acknowledge(v, r, who.to, t.heard(), o.Already, true)
	}
	return true
}

// offerDue handles an offer whose time is over, or should be prolonged.
func (t *pullTarget) offerDue(v *env.Env, r *rooms, h table.Handle) {
	if class, renew := r.deferred.Due(v, h); renew {
		t.renewers.Want(class)
		t.renew(v, r, class)
		return
	}
	v.Out.Mark(MarkOfferOver)
	t.drop(v, r, h, effects.Expired)
}

// renew asks a sender for more time, if that is wanted and nothing else is under way.
func (t *pullTarget) renew(v *env.Env, r *rooms, class int) {
	if t.renewers.Ready(v, class) {
		grants, us, peer, more := r.deferred.Renewing(v, class, lease.RenewsMax, t.renewers.List())
		t.renewers.Ask(v, class, grants, us, peer, more)
	}
}

// renewOpened handles the completion of the Open of a connection for renewals.
func (t *pullTarget) renewOpened(v *env.Env, r *rooms, ref kernel.Ref, ev *effects.Opened) {
	class := int(ref.Subject)
	current := t.renewers.Completed(v, ref)
	if current {
		t.renewers.Opened(v, class, ev)
	}
	t.renew(v, r, class)
	if !current && ev.Code == effects.OK {
		v.Out.Close(ev.Conn)
	}
}

// renewUnanswered handles a renewal that got no answer.
func (t *pullTarget) renewUnanswered(v *env.Env, r *rooms, ref kernel.Ref) {
	if t.renewers.Completed(v, ref) {
		t.renewers.Unanswered(v, int(ref.Subject))
	}
	t.renew(v, r, int(ref.Subject))
}

// renewAnswered handles the answer to a renewal.
func (t *pullTarget) renewAnswered(v *env.Env, r *rooms, ref kernel.Ref, body []byte) {
	class := int(ref.Subject)
	if t.renewers.Completed(v, ref) {
		if asked, ns, ok := t.renewers.Answered(v, class, body); ok {
			t.renewed(v, r, class, asked.Add(r.stated(ns)-r.cfg.LeaseGuard))
		}
	}
	t.renew(v, r, class)
}

// renewed notes what the last answer says of a class's offers.
func (t *pullTarget) renewed(v *env.Env, r *rooms, class int, until effects.Time) {
	for slot := range r.deferred.Slots() {
		h, o := r.deferred.At(slot)
		if h == 0 || o.Class != class {
			continue
		}
		switch {
		case v.Now < o.Until && t.renewers.Prolongs(o.Grant, o.Peer):
			// One whose time was over by our clock is over: its chunks were given up already.
			v.Out.Mark(lease.MarkRenewed)
			r.fetches.Extend(h, r.deferred.Extend(v, h, until))
		case t.renewers.Ends(o.Grant):
			v.Out.Mark(lease.MarkToldGone)
			t.drop(v, r, h, effects.Expired)
		}
	}
}

// rightOf is the right that t.offer gives us, if we know when it began.
func (t *pullTarget) rightOf(v *env.Env, r *rooms, l *link.Links, class int) (is lease.Right, known bool) {
	ext := &t.offer.Ext
	since, known := l.Anchor(v, class, ext.Stamps, ext.GrantedNS)
	return lease.Right{
		Since: since, Until: since.Add(r.stated(ext.LeaseNS) - r.cfg.LeaseGuard), Over: t.leaseOver(v, r),
	}, known
}

// leaseOver is when t.offer, whenever it began, will not be read any more if it comes again.
func (t *pullTarget) leaseOver(v *env.Env, r *rooms) effects.Time {
	return v.Now.Add(r.stated(t.offer.Ext.LeaseNS))
}
