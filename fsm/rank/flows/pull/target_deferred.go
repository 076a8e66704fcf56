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

// keepOffer keeps t.offer for later fetches and acknowledges it, or refuses it if its lease is too short or the
// tables are full.
func (t *Target) keepOffer(e *flow.Env, ev *effects.Received, class int) {
	m, from := &t.offer, flow.Sender{Request: ev.Request, Conn: ev.Conn, Class: class}
	right, known := t.offerRight(e, class)
	switch {
	case !known || e.Now.Add(t.cfg.LeadMin) > right.Until:
		e.Out.Mark(flow.Marks.OfferTooLate)
		t.refuseOffer(e, from, effects.Expired, flow.TooLateReason())
		return
	case !e.Deferred.HasRoom(&e.Store, class, len(m.Keys)):
		e.Out.Mark(flow.Marks.OffersFull)
		t.refuseOffer(e, from, effects.TooMany, offersFullReason(t.cfg.OffersMax, e.Pool.ConfigKey()))
		return
	}
	request := e.Store.HashRequest(m.Ext.Request)
	p := e.Landings.PlanKeys(&e.Env, &e.Store, class, m.Keys, m.Ext.Sums, m.LastChunkTokens, true)
	p.EndFills(&e.Env, &e.Store) // The plan began fills, which nothing would complete.
	t.presentIndexes = p.ClaimReady(&e.Env, &e.Store, class, request, t.presentIndexes[:0])
	if p.PagesNeeded() == 0 {
		t.addDoneRecord(e, class, effects.Incarnation(m.Ext.Incarnation), m.Ext.Operation, effects.OK, right.ExpiresAt)
		t.sendAck(e, ev.Request, t.offerEcho(), t.presentIndexes, false)
		return
	}
	peerID := effects.Incarnation(m.Ext.Incarnation)
	h := e.Deferred.AddOffer(deferred.Offer{
		Class: class, Peer: peerID, SelfID: t.offerEcho().selfID, Operation: m.Ext.Operation, Pull: m.PullID, Grant: m.Ext.Grant,
		Request: request, BatchHash: p.ContentHash(m.LastChunkTokens), Right: right,
		Address: t.notices.ReserveAddress(&e.Env, class, m.SenderDoneURL),
	}, t.presentIndexes)
	for i := range p.Keys {
		at := &p.Keys[i]
		if !at.NeedsPage() {
			continue
		}
		e.Deferred.AddChunk(&e.Store, h, p.Hashes[i], m.Keys[i], p.Lengths[at.Page], effects.RemotePage{
			Buffer: effects.BufferID(m.SenderUUIDs[i]), Index: uint32(m.SenderIndexes[i]),
			Sum: effects.SumAt(m.Ext.Sums, i), Generation: effects.Generation(m.Ext.Generations[i]),
		})
	}
	renews := t.renewers.SetAddress(&e.Env, class, m.Ext.Renew)
	t.renewLeases(e, class)
	e.Deferred.SetDeadline(&e.Env, h, renews)
	e.Links.ReachPeer(&e.Env, class) // The link is established now, for the fetch.
	t.sendAck(e, ev.Request, t.offerEcho(), t.presentIndexes, true)
}

// handleKeptRepeat answers the retry of an offer that is kept, or that fetches still read although its chunks have
// left, and returns false if there is no such offer.
func (t *Target) handleKeptRepeat(
	e *flow.Env, from flow.Sender, peerID effects.Incarnation, operation, request uint64,
) bool {
	h, o := e.Deferred.FindOffer(peerID, operation)
	if o != nil && o.ChunksLeft > 0 && o.Until <= e.Now { // The time of the lease is over, and the timer has not fired yet.
		e.Out.Mark(flow.Marks.OfferExpired)
		t.dropOfferChunks(e, h, effects.Expired)
		_, o = e.Deferred.FindOffer(peerID, operation)
	}
	if o == nil {
		return false
	}
	if o.Request != request || o.BatchHash != e.HashBatch(from.Class, t.offer.Keys, t.offer.LastChunkTokens) {
		t.refuseReusedOperation(e, from)
		return true
	}
	e.Out.Mark(flow.Marks.OfferedAgain)
	if o.ChunksLeft == 0 && o.Code != effects.OK {
		t.sendRefusal(e, from.Request, true, t.offerEcho(), o.Code, flow.EndReason(o.Code), true)
	} else {
		t.recordBatch(e, from.Class, request)
		t.sendAck(e, from.Request, t.offerEcho(), o.PresentChunks, true)
	}
	return true
}

// onOfferDeadline handles the deadline of an offer: the offer is renewed, or its time is over.
func (t *Target) onOfferDeadline(e *flow.Env, h table.Handle) {
	if class, renew := e.Deferred.OnTimer(&e.Env, h); renew {
		t.renewers.RequestRenewal(class)
		t.renewLeases(e, class)
		return
	}
	e.Out.Mark(flow.Marks.OfferExpired)
	t.dropOfferChunks(e, h, effects.Expired)
}

// renewLeases asks a sender for a renewal, if one is wanted and no other is in flight. The rest of a round of renewals
// may have ended since the round began; then the next round begins.
func (t *Target) renewLeases(e *flow.Env, class int) {
	for t.renewers.EnsureReady(&e.Env, class) {
		grants, selfID, peerID, more := e.Deferred.CollectRenewals(
			&e.Env, class, t.renewers.LeasesMax(), t.renewers.NextSlot(class), t.renewers.GrantBuffer())
		t.renewers.SendRequest(&e.Env, class, grants, selfID, peerID, more)
	}
}

// onRenewOpened handles the completion of the Open of a connection for renewals.
func (t *Target) onRenewOpened(e *flow.Env, ref kernel.Ref, ev *effects.Opened) {
	class := int(ref.Subject)
	current := t.renewers.CountsAsCurrent(&e.Env, ref)
	if current {
		t.renewers.OnOpened(&e.Env, class, ev)
	}
	t.renewLeases(e, class)
	if !current && ev.Code == effects.OK {
		e.Out.Close(ev.Conn)
	}
}

// onRenewUnanswered handles a renewal request that got no reply.
func (t *Target) onRenewUnanswered(e *flow.Env, ref kernel.Ref) {
	if t.renewers.CountsAsCurrent(&e.Env, ref) {
		t.renewers.OnUnanswered(&e.Env, int(ref.Subject))
	}
	t.renewLeases(e, int(ref.Subject))
}

// onRenewReplied handles the reply to a renewal request.
func (t *Target) onRenewReplied(e *flow.Env, ref kernel.Ref, body []byte) {
	class := int(ref.Subject)
	if t.renewers.CountsAsCurrent(&e.Env, ref) {
		if askedAt, ns, ok := t.renewers.HandleReply(&e.Env, class, body); ok {
			t.applyRenewal(e, class, e.AccessEnd(askedAt, e.StatedLease(ns)))
		}
	}
	t.renewLeases(e, class)
}

// applyRenewal applies the last renewal reply to a class's offers. It looks at each slot of the table of offers once,
// and extending one offer is as cheap as a look. Offers that the reply reports as gone end in this step as far as
// it has work; the sender is asked again about the others, and repeats its reply.
func (t *Target) applyRenewal(e *flow.Env, class int, until effects.Time) {
	for slot := range e.Deferred.CountSlots() {
		h, o := e.Deferred.OfferAt(slot)
		if h == 0 || o.Class != class {
			continue
		}
		switch {
		case e.Now < o.Until && t.renewers.IsExtended(o.Grant, o.Peer):
			// An offer that is over by this rank's clock stays over: its chunks were given up already (M4).
			e.Out.Mark(lease.Marks.Renewed)
			e.Deferred.ExtendOffer(&e.Env, h, until)
		case t.renewers.IsGone(o.Grant) && !e.Work.HasBudget():
			e.Out.Mark(flow.Marks.GoneCut)
			t.renewers.RequestRenewal(class)
		case t.renewers.IsGone(o.Grant):
			e.Out.Mark(lease.Marks.ToldGone)
			t.dropOfferChunks(e, h, effects.Expired)
		}
	}
}

// offerRight returns the right to read that t.offer gives to this rank. known is false if this rank cannot tell when
// the lease began.
func (t *Target) offerRight(e *flow.Env, class int) (right lease.Right, known bool) {
	ext := &t.offer.Ext
	since, known := e.Links.ConvertInstant(&e.Env, class, ext.Stamps, ext.GrantedNS)
	return lease.Right{
		Since: since, Until: e.AccessEnd(since, e.StatedLease(ext.LeaseNS)), ExpiresAt: t.offerReplayEnd(e),
	}, known
}

// offerReplayEnd returns the time from which on t.offer will not be read if it arrives again, whenever its lease
// began.
func (t *Target) offerReplayEnd(e *flow.Env) effects.Time {
	return e.Now.Add(e.StatedLease(t.offer.Ext.LeaseNS))
}

// offersFullReason explains that as many offers, or chunks of offers, are kept for the peer as it may have.
func offersFullReason(limit uint32, key string) *effects.Why {
	return &effects.Why{
		Field: "offers kept", Ours: flow.FormatCount(limit) + ", and chunks of four times " + key + ", of which one peer has no " +
			"more than it leaves to others,",
		Theirs: "that many in use", Remedy: "retry when some were fetched, or enlarge " + key + " of the receiver",
	}
}
