package pull

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/deferred"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/peers/lease"

	"github.com/kvferry/kvferry/fsm/table"
)

// This file handles deferred offers: how they arrive, are answered, are renewed and end.

// postpone keeps t.offer for later fetches and acknowledges it, or refuses it if its lease is too short or the
// tables are full.
func (t *Target) postpone(e *flow.Env, ev *effects.Received, class int) {
	m, who := &t.offer, flow.Asker{To: ev.Request, Conn: ev.Conn, Class: class}
	may, known := t.rightOf(e, class)
	switch {
	case !known || e.Now.Add(t.cfg.LeadMin) > may.Until:
		e.Out.Mark(flow.Marks.OfferTooLate)
		t.refuseOffer(e, who, effects.Expired, flow.TooLate())
		return
	case !e.Deferred.MayKeep(&e.Store, class, len(m.Keys)):
		e.Out.Mark(flow.Marks.OffersFull)
		t.refuseOffer(e, who, effects.TooMany, offersFull(t.cfg.OffersMax, e.Pool.Key()))
		return
	}
	request := e.Store.RequestHash(m.Ext.Request)
	p := e.Landings.Plan(&e.Store, class, m.Keys, m.LastChunkTokens, true)
	p.Unplan(&e.Env, &e.Store) // The plan began fills, which nothing would complete.
	t.already = p.ClaimReady(&e.Env, &e.Store, class, request, t.already[:0])
	if p.Fresh() == 0 {
		t.rememberDone(e, class, effects.Incarnation(m.Ext.Incarnation), m.Ext.Operation, effects.OK, may.Over)
		t.acknowledge(e, ev.Request, t.heard(), t.already, false)
		return
	}
	peer := effects.Incarnation(m.Ext.Incarnation)
	h := e.Deferred.Keep(deferred.Kept{
		Class: class, Peer: peer, Us: t.heard().us, Operation: m.Ext.Operation, Pull: m.PullID, Grant: m.Ext.Grant,
		Request: request, What: p.What(m.LastChunkTokens), Right: may,
		Address: t.notices.Promise(&e.Env, class, m.SenderDoneURL),
	}, t.already)
	for i := range p.Spots {
		at := &p.Spots[i]
		if !at.Fills() {
			continue
		}
		e.Deferred.Add(&e.Store, h, p.Hashes[i], m.Keys[i], p.Lengths[at.Page], effects.RemotePage{
			Buffer: effects.BufferID(m.SenderUUIDs[i]), Index: uint32(m.SenderIndexes[i]),
			Generation: effects.Generation(m.Ext.Generations[i]),
		})
	}
	renews := t.renewers.Announced(&e.Env, class, m.Ext.Renew)
	t.renew(e, class)
	e.Deferred.Watch(&e.Env, h, renews)
	e.Links.Reach(&e.Env, class) // The link is established now, for the fetch.
	t.acknowledge(e, ev.Request, t.heard(), t.already, true)
}

// postponed answers the retry of an offer that is kept, or that fetches still read although its chunks have left,
// and returns false if there is no such offer.
func (t *Target) postponed(
	e *flow.Env, who flow.Asker, peer effects.Incarnation, operation, request uint64,
) bool {
	h, o := e.Deferred.Find(peer, operation)
	if o != nil && o.Left > 0 && o.Until <= e.Now { // The time of the lease is over, and the timer has not fired yet.
		e.Out.Mark(flow.Marks.OfferExpired)
		t.drop(e, h, effects.Expired)
		_, o = e.Deferred.Find(peer, operation)
	}
	if o == nil {
		return false
	}
	if o.Request != request || o.What != e.Named(t.offer.Keys, t.offer.LastChunkTokens) {
		t.refuseOther(e, who)
		return true
	}
	e.Out.Mark(flow.Marks.OfferedAgain)
	if o.Left == 0 && o.Code != effects.OK {
		t.fail(e, who.To, true, t.heard(), o.Code, flow.WhyEnded(o.Code), true)
	} else {
		t.acknowledge(e, who.To, t.heard(), o.Already, true)
	}
	return true
}

// offerDue handles the deadline of an offer: the offer is renewed, or its time is over.
func (t *Target) offerDue(e *flow.Env, h table.Handle) {
	if class, renew := e.Deferred.Due(&e.Env, h); renew {
		t.renewers.Want(class)
		t.renew(e, class)
		return
	}
	e.Out.Mark(flow.Marks.OfferExpired)
	t.drop(e, h, effects.Expired)
}

// renew asks a sender for a renewal, if one is wanted and no other is in flight. The rest of a round of renewals
// may have ended since the round began; then the next round begins.
func (t *Target) renew(e *flow.Env, class int) {
	for t.renewers.Ready(&e.Env, class) {
		grants, us, peer, more := e.Deferred.Renewing(
			&e.Env, class, t.renewers.Most(), t.renewers.From(class), t.renewers.List())
		t.renewers.Ask(&e.Env, class, grants, us, peer, more)
	}
}

// renewOpened handles the completion of the Open of a connection for renewals.
func (t *Target) renewOpened(e *flow.Env, ref kernel.Ref, ev *effects.Opened) {
	class := int(ref.Subject)
	current := t.renewers.Completed(&e.Env, ref)
	if current {
		t.renewers.Opened(&e.Env, class, ev)
	}
	t.renew(e, class)
	if !current && ev.Code == effects.OK {
		e.Out.Close(ev.Conn)
	}
}

// renewUnanswered handles a renewal request that got no reply.
func (t *Target) renewUnanswered(e *flow.Env, ref kernel.Ref) {
	if t.renewers.Completed(&e.Env, ref) {
		t.renewers.Unanswered(&e.Env, int(ref.Subject))
	}
	t.renew(e, int(ref.Subject))
}

// renewAnswered handles the reply to a renewal request.
func (t *Target) renewAnswered(e *flow.Env, ref kernel.Ref, body []byte) {
	class := int(ref.Subject)
	if t.renewers.Completed(&e.Env, ref) {
		if asked, ns, ok := t.renewers.Answered(&e.Env, class, body); ok {
			t.renewed(e, class, asked.Add(e.Stated(ns)-e.Cfg.LeaseGuard))
		}
	}
	t.renew(e, class)
}

// renewed applies the last renewal reply to a class's offers. It looks at each of the tables.offers slots once,
// and extending one offer is as cheap as a look. Offers that the reply reports as gone end in this step as far as
// it has work; the sender is asked again about the others, and repeats its reply.
func (t *Target) renewed(e *flow.Env, class int, until effects.Time) {
	for slot := range e.Deferred.Slots() {
		h, o := e.Deferred.At(slot)
		if h == 0 || o.Class != class {
			continue
		}
		switch {
		case e.Now < o.Until && t.renewers.Prolongs(o.Grant, o.Peer):
			// An offer that is over by this rank's clock stays over: its chunks were given up already (M4).
			e.Out.Mark(lease.Marks.Renewed)
			e.Deferred.Extend(&e.Env, h, until)
		case t.renewers.Ends(o.Grant) && !e.Work.Left():
			e.Out.Mark(flow.Marks.GoneCut)
			t.renewers.Want(class)
		case t.renewers.Ends(o.Grant):
			e.Out.Mark(lease.Marks.ToldGone)
			t.drop(e, h, effects.Expired)
		}
	}
}

// rightOf returns the right to read that t.offer gives to this rank. known is false if this rank cannot tell when
// the lease began.
func (t *Target) rightOf(e *flow.Env, class int) (is lease.Right, known bool) {
	ext := &t.offer.Ext
	since, known := e.Links.Anchor(&e.Env, class, ext.Stamps, ext.GrantedNS)
	return lease.Right{
		Since: since, Until: since.Add(e.Stated(ext.LeaseNS) - e.Cfg.LeaseGuard), Over: t.leaseOver(e),
	}, known
}

// leaseOver returns the time from which on t.offer will not be read if it arrives again, whenever its lease
// began.
func (t *Target) leaseOver(e *flow.Env) effects.Time {
	return e.Now.Add(e.Stated(t.offer.Ext.LeaseNS))
}

// offersFull explains that as many offers, or chunks of offers, are kept for the peer as it may have.
func offersFull(most uint32, key string) *effects.Why {
	return &effects.Why{
		Field: "offers kept", Ours: flow.Number(most) + ", and chunks of four times " + key + ", of which one peer has no " +
			"more than it leaves to others,",
		Theirs: "that many in use", Remedy: "retry when some were fetched, or enlarge " + key + " of the receiver",
	}
}
