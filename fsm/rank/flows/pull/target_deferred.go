package pull

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/deferred"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/peers/lease"

	"github.com/kvferry/kvferry/fsm/table"
)

// Offers that are deferred: how they come, are answered, prolonged and told that they ended.

// postpone keeps t.offer for later, and acknowledges it.
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
	p.Unplan(&e.Env, &e.Store) // It began fills, and there will be none.
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
	e.Links.Reach(&e.Env, class) // So that the link is there when it is wanted.
	t.acknowledge(e, ev.Request, t.heard(), t.already, true)
}

// postponed answers a retry of an offer that is kept, or of which fetches still read though its chunks have left.
func (t *Target) postponed(
	e *flow.Env, who flow.Asker, peer effects.Incarnation, operation, request uint64,
) bool {
	h, o := e.Deferred.Find(peer, operation)
	if o != nil && o.Left > 0 && o.Until <= e.Now { // Its time is over, and its deadline waits behind others.
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

// offerDue handles an offer whose time is over, or should be prolonged.
func (t *Target) offerDue(e *flow.Env, h table.Handle) {
	if class, renew := e.Deferred.Due(&e.Env, h); renew {
		t.renewers.Want(class)
		t.renew(e, class)
		return
	}
	e.Out.Mark(flow.Marks.OfferExpired)
	t.drop(e, h, effects.Expired)
}

// renew asks a sender for more time, if that is wanted and nothing else is under way. What is left of a round may have
// ended since it began: then the next one begins.
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

// renewUnanswered handles a renewal that got no answer.
func (t *Target) renewUnanswered(e *flow.Env, ref kernel.Ref) {
	if t.renewers.Completed(&e.Env, ref) {
		t.renewers.Unanswered(&e.Env, int(ref.Subject))
	}
	t.renew(e, int(ref.Subject))
}

// renewAnswered handles the answer to a renewal.
func (t *Target) renewAnswered(e *flow.Env, ref kernel.Ref, body []byte) {
	class := int(ref.Subject)
	if t.renewers.Completed(&e.Env, ref) {
		if asked, ns, ok := t.renewers.Answered(&e.Env, class, body); ok {
			t.renewed(e, class, asked.Add(e.Stated(ns)-e.Cfg.LeaseGuard))
		}
	}
	t.renew(e, class)
}

// renewed notes what the last answer says of a class's offers. It looks at each of tables.offers once, and each that is
// prolonged costs as little. Those that are gone end in this step as far as it has work; the sender is asked again for
// the others, and says so again.
func (t *Target) renewed(e *flow.Env, class int, until effects.Time) {
	for slot := range e.Deferred.Slots() {
		h, o := e.Deferred.At(slot)
		if h == 0 || o.Class != class {
			continue
		}
		switch {
		case e.Now < o.Until && t.renewers.Prolongs(o.Grant, o.Peer):
			// One whose time was over by our clock is over: its chunks were given up already.
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

// rightOf is the right that t.offer gives us, if we know when it began.
func (t *Target) rightOf(e *flow.Env, class int) (is lease.Right, known bool) {
	ext := &t.offer.Ext
	since, known := e.Links.Anchor(&e.Env, class, ext.Stamps, ext.GrantedNS)
	return lease.Right{
		Since: since, Until: since.Add(e.Stated(ext.LeaseNS) - e.Cfg.LeaseGuard), Over: t.leaseOver(e),
	}, known
}

// leaseOver is when t.offer, whenever it began, will not be read any more if it comes again.
func (t *Target) leaseOver(e *flow.Env) effects.Time {
	return e.Now.Add(e.Stated(t.offer.Ext.LeaseNS))
}

// offersFull says that one peer's offers, or the chunks of them, are as many as are kept for it.
func offersFull(most uint32, key string) *effects.Why {
	return &effects.Why{
		Field: "offers kept", Ours: flow.Number(most) + ", and chunks of four times " + key + ", of which one peer has no " +
			"more than it leaves to others,",
		Theirs: "that many in use", Remedy: "retry when some were fetched, or enlarge " + key + " of the receiver",
	}
}
