package receiver

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/kernel"
	"github.com/kvferry/kvferry/fsm/link"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// Offers that are deferred: how they come, are answered, prolonged and told that they ended.

// postpone keeps r.offer for later, and acknowledges it.
func (r *Receiver) postpone(v *env.Env, l *link.Links, ev *effects.Received, class int) {
	m, who := &r.offer, asker{to: ev.Request, conn: ev.Conn, class: class}
	may, known := r.rightOf(v, l, class)
	switch {
	case !known || v.Now.Add(r.cfg.LeadMin) > may.until:
		v.Out.Mark(MarkOfferTooLate)
		r.refuseOffer(v, who, effects.Expired, tooLate())
		return
	case !r.deferred.mayKeep(&r.Store, class, len(m.Keys)):
		v.Out.Mark(MarkOffersFull)
		r.refuseOffer(v, who, effects.TooMany, tooMany("offers kept", int(r.cfg.OffersMax)))
		return
	}
	request := requestHash(&r.Store, m.Ext.Request)
	p := r.landings.planFor(&r.Store, class, m.Keys, m.LastChunkTokens, true)
	p.unplan(v, &r.Store) // It began fills, and there will be none.
	r.already = p.claimReady(v, &r.Store, class, request, r.already[:0])
	if p.fresh() == 0 {
		r.rememberDone(v, class, effects.Incarnation(m.Ext.Incarnation), m.Ext.Operation, effects.OK, may.over)
		r.acknowledge(v, ev.Request, r.heard(), r.already, false)
		return
	}
	peer := effects.Incarnation(m.Ext.Incarnation)
	h := r.deferred.keep(deferredOffer{
		class: class, peer: peer, us: r.heard().us, operation: m.Ext.Operation, pull: m.PullID, grant: m.Ext.Grant,
		request: request, what: p.what(m.LastChunkTokens), right: may,
		address: r.notices.promise(v, class, m.SenderDoneURL),
	}, r.already)
	for i := range p.spots {
		at := &p.spots[i]
		if at.ready || at.repeat >= 0 {
			continue
		}
		r.deferred.add(&r.Store, h, p.hashes[i], m.Keys[i], p.lengths[at.page], effects.RemotePage{
			Buffer: effects.BufferID(m.SenderUUIDs[i]), Index: uint32(m.SenderIndexes[i]),
			Generation: effects.Generation(m.Ext.Generations[i]),
		})
	}
	renews := r.renewers.announced(v, class, m.Ext.Renew)
	r.renew(v, class)
	r.deferred.watch(v, h, renews)
	l.Reach(v, class) // So that the link is there when it is wanted.
	r.acknowledge(v, ev.Request, r.heard(), r.already, true)
}

// postponed answers a retry of an offer that is kept, or of which fetches still read though its chunks have left.
func (r *Receiver) postponed(v *env.Env, who asker, peer effects.Incarnation, operation, request uint64) bool {
	o := r.deferred.find(peer, operation)
	if o == nil {
		return false
	}
	if o.request != request || o.what != r.named(r.offer.Keys, r.offer.LastChunkTokens) {
		r.refuseOther(v, who, true)
		return true
	}
	v.Out.Mark(MarkOfferedAgain)
	if o.left == 0 && o.code != effects.OK {
		r.fail(v, who.to, true, r.heard(), o.code, ended(o.code), true)
	} else {
		r.acknowledge(v, who.to, r.heard(), o.already, true)
	}
	return true
}

// tellEnded tells the senders of offers that have ended. It follows each call that may end one.
func (r *Receiver) tellEnded(v *env.Env) {
	for _, x := range r.deferred.over() {
		r.rememberDone(v, x.class, x.to, x.operation, x.code, x.over)
		r.notify(v, x.address, x.class, x.done)
	}
	r.deferred.heardOver()
}

// drop takes out all chunks of an offer that are left.
func (r *Receiver) drop(v *env.Env, h table.Handle, code effects.Code) {
	r.deferred.drop(v, &r.Store, h, code)
	r.tellEnded(v)
}

// dropOffers drops the offers that match, and ends what still wants to read them. Of what a request abandons only its
// own fetches end: another's goes on, as the lease stands until its done.
func (r *Receiver) dropOffers(v *env.Env, code effects.Code, which offersOf) {
	for slot := range r.deferred.slots() {
		h, o := r.deferred.at(slot)
		if h == 0 || !which.has(o) {
			continue
		}
		v.Out.Mark(MarkOfferDropped)
		r.fetches.withdraw(v, &r.Store, &r.deferred, h, code, which.request)
		r.tellEnded(v)
		r.drop(v, h, code)
	}
}

// offersOf says which offers: those of a class, of a request, or those that a peer withdrew.
type offersOf struct {
	class     int
	request   uint64
	withdrawn effects.Incarnation
	names     []protocol.PullID // of those that it withdrew, in their order
}

func (w offersOf) has(o *deferredOffer) bool {
	return w.class != 0 && o.class == w.class || w.request != 0 && o.request == w.request ||
		w.withdrawn != effects.Incarnation{} && o.peer == w.withdrawn && isWithdrawn(w.names, o.pull)
}

func isWithdrawn(names []protocol.PullID, id protocol.PullID) bool {
	_, ok := slices.BinarySearchFunc(names, id, comparePulls)
	return ok
}

// onOfferTimer handles an offer whose time is over, or should be prolonged.
func (r *Receiver) onOfferTimer(v *env.Env, h table.Handle) {
	if class, renew := r.deferred.due(v, h); renew {
		r.renewers.want(class)
		r.renew(v, class)
		return
	}
	v.Out.Mark(MarkOfferOver)
	r.drop(v, h, effects.Expired)
}

// renew asks a sender for more time, if that is wanted and nothing else is under way.
func (r *Receiver) renew(v *env.Env, class int) {
	if r.renewers.ready(v, class) {
		grants, us, peer, more := r.deferred.renewing(v, class, renewsMax, r.renewers.list())
		r.renewers.ask(v, class, grants, us, peer, more)
	}
}

// onRenewOpened handles the completion of the Open of a connection for renewals.
func (r *Receiver) onRenewOpened(v *env.Env, ref kernel.Ref, ev *effects.Opened) {
	class := int(ref.Subject)
	current := r.renewers.completed(v, ref)
	if current {
		r.renewers.opened(v, class, ev)
	}
	r.renew(v, class)
	if !current && ev.Code == effects.OK {
		v.Out.Close(ev.Conn)
	}
}

// OnUnanswered handles a renewal that got no answer.
func (r *Receiver) OnUnanswered(v *env.Env, ref kernel.Ref) {
	if r.renewers.completed(v, ref) {
		r.renewers.unanswered(v, int(ref.Subject))
	}
	r.renew(v, int(ref.Subject))
}

// OnRenewed handles the answer to a renewal.
func (r *Receiver) OnRenewed(v *env.Env, ref kernel.Ref, body []byte) {
	class := int(ref.Subject)
	if r.renewers.completed(v, ref) {
		if asked, ns, ok := r.renewers.answered(v, class, body); ok {
			r.renewed(v, class, asked.Add(r.stated(ns)-r.cfg.LeaseGuard))
		}
	}
	r.renew(v, class)
}

// renewed notes what the last answer says of a class's offers.
func (r *Receiver) renewed(v *env.Env, class int, until effects.Time) {
	for slot := range r.deferred.slots() {
		h, o := r.deferred.at(slot)
		if h == 0 || o.class != class {
			continue
		}
		switch {
		case v.Now < o.until && r.renewers.prolongs(o.grant, o.peer):
			// One whose time was over by our clock is over: its chunks were given up already.
			v.Out.Mark(MarkRenewed)
			r.fetches.extend(h, r.deferred.extend(v, h, until))
		case r.renewers.ends(o.grant):
			v.Out.Mark(MarkRenewGone)
			r.drop(v, h, effects.Expired)
		}
	}
}

// AdmitFetches lets fetches that are short of staging pages have what became free.
func (r *Receiver) AdmitFetches(v *env.Env) {
	r.fetches.admit(v, &r.Store, &r.deferred)
	r.tellEnded(v)
}

// StartFetches looks again at the fetches that wait, when something came that they may wait for.
func (r *Receiver) StartFetches(v *env.Env, l *link.Links) {
	s := &r.Store
	s.HeardLost() // By the Gets.
	if !r.deferred.stirred() {
		return
	}
	for h := r.fetches.firstWaiting(); h != 0; {
		next := r.fetches.nextWaiting(h)
		r.fetches.start(v, s, &r.deferred, l, h)
		r.tellEnded(v)
		h = next
	}
	r.gets.giveUp(v, s, &r.pending) // What fetches took with them.
	s.HeardLost()
}

// OnFetched handles the end of one of the pipeline's reads.
func (r *Receiver) OnFetched(v *env.Env, l *link.Links, ref kernel.Ref, ev *effects.TransferDone) {
	r.fetches.fetched(v, &r.Store, &r.deferred, l, ref, ev)
	r.tellEnded(v)
}

// OnFetchSettled handles the late word that one of the pipeline's reads touches nothing any more.
func (r *Receiver) OnFetchSettled(v *env.Env, ref kernel.Ref) {
	r.fetches.settled(v, &r.Store, &r.deferred, ref)
	r.tellEnded(v)
}

// OnScattered handles the end of a scatter.
func (r *Receiver) OnScattered(v *env.Env, ref kernel.Ref, ev *effects.Scattered) {
	r.fetches.scattered(v, &r.Store, &r.deferred, ref, ev)
	r.tellEnded(v)
}

// OnFetchTimer handles the deadlines of the pipeline.
func (r *Receiver) OnFetchTimer(v *env.Env, ref kernel.Ref) {
	r.fetches.pipeDue(v, &r.Store, &r.deferred, ref)
	r.tellEnded(v)
}

// OnLinkLost handles the end of a data-plane link: what is read over it fails, and what its sender still has for
// us is looked for at once over another one.
func (r *Receiver) OnLinkLost(v *env.Env, l *link.Links, lost effects.Link) {
	class := l.OnReachLost(v, lost)
	if class == 0 {
		return
	}
	r.fetches.linkLost(v, &r.Store, &r.deferred, lost)
	r.tellEnded(v)
	if r.deferred.keepsOf(class) {
		l.Reach(v, class)
	}
}
