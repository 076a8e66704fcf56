package receiver

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/link"
	"github.com/kvferry/kvferry/protocol"
)

// onOffer handles a PullReadyNotif. An offer waits for the link to its pages, then for pages of ours as an
// AllocRequest does, and is answered when it has been read.
func (r *Receiver) onOffer(v *env.Env, l *link.Links, ev *effects.Received) {
	m := &r.offer
	who := asker{to: ev.Request, conn: ev.Conn}
	if err := m.Decode(ev.Body, &r.cfg.Wire); err != nil {
		v.Out.Mark(MarkAllocMalformed)
		r.malformed(v, who, effects.StageOffer, err, ev.Body)
		m.HasExt = false
		r.refuseOffer(v, who, effects.Malformed, nil)
		return
	}
	if !m.HasExt {
		// Nothing ties a plain sender's pages to a life of it, so nothing would tell what was read.
		v.Out.Mark(MarkPlainOffer)
		r.refuseOffer(v, who, effects.Unsupported, plainPeer())
		return
	}
	peer, to := effects.Incarnation(m.Ext.Incarnation), effects.Incarnation(m.Ext.To)
	class, known := l.Inbound(v, peer, to)
	if !known {
		v.Out.Mark(MarkStrangerRefused)
		r.refuseOffer(v, who, effects.Stale, unknownLife())
		return
	}
	who.class = class
	if len(m.Keys) == 0 && len(m.Ext.Withdraw) > 0 {
		r.onWithdrawal(v, who, peer)
		return
	}
	operation := m.Ext.Operation
	request := requestHash(&r.Store, m.Ext.Request)
	if r.offeredAgain(v, ev, who, peer, operation, request) || r.wasEnded(v, l, ev.Request, class) {
		return // What it began, or how that ended, is true whatever this rank has become since.
	}
	pages := len(m.Keys)
	if r.cfg.Delay {
		pages = 1 // What is kept needs none, and a fetch of it at least one of staging.
	}
	code, why := r.check(v, m.Keys, m.Layout(), m.LastChunkTokens, pages)
	if code == effects.OK {
		code, why = r.checkOffer(l, class)
	}
	if code == effects.Invalid && !l.OfClass(class).Listed() {
		code, why = effects.Stale, &effects.Why{Field: "buffers", Theirs: "not listed"} // Then it shakes hands again.
	}
	if code != effects.OK {
		v.Out.Mark(MarkAllocRefused)
		r.refuseOffer(v, who, code, why)
		return
	}
	if r.abandons.has(v.Now, request) {
		v.Out.Mark(MarkAskAbandoned)
		r.refuseOffer(v, who, effects.Cancelled, ended(effects.Cancelled))
		return
	}
	if r.cfg.Delay {
		r.postpone(v, l, ev, class)
		return
	}
	reached := l.Reach(v, class)
	if reached != 0 && r.pending.mayPass(v, class) {
		if _, done := r.read(v, l, reached, who); done {
			r.pending.passed(v, class)
			return
		}
	}
	patience := effects.Duration(min(m.Ext.PatienceNS, uint64(r.cfg.AllocTimeout)))
	what := pendingRequest{
		offer: true, what: r.named(m.Keys, m.LastChunkTokens), pull: m.PullID, class: class, who: request, peer: peer,
		operation: operation, attempt: m.Ext.Attempt, keys: uint32(len(m.Keys)),
		linking: reached == 0 && r.pending.linksFirst(class),
	}
	if crowded := r.pending.wait(v, what, ev, r.hashes, patience); crowded != nil {
		r.refuseOffer(v, who, effects.TooMany, crowded)
	}
}

// checkOffer says whether what an offer says of its pages makes sense.
func (r *Receiver) checkOffer(l *link.Links, class int) (effects.Code, *effects.Why) {
	m := &r.offer
	if m.PullID == (protocol.PullID{}) || m.Ext.Operation == 0 || m.Ext.Grant == 0 || len(m.Ext.Generations) != len(m.Keys) {
		return effects.Malformed, &effects.Why{
			Field: "PullReadyNotif", Ours: "pull_id, kvf_op, kvf_grant and a generation for each key",
			Theirs: "one of them is missing",
		}
	}
	for i, index := range m.SenderIndexes {
		buffer, ok := l.OfClass(class).Buffer(effects.BufferID(m.SenderUUIDs[i]))
		if !ok || index < 0 || index >= int64(buffer.Pages) {
			return effects.Invalid, &effects.Why{
				Field: at("sender_mem_indexes", i), Ours: "a page of a buffer that it listed", Theirs: strconv.FormatInt(index, 10),
			}
		}
	}
	if r.notices.knows(m.SenderDoneURL) {
		return effects.OK, nil
	}
	// LMCache announces what it binds to, which may be every interface of its own.
	done, err := protocol.ParseEndpoint(string(m.SenderDoneURL))
	switch {
	case err != nil || done.Unspecified():
		return effects.Invalid, &effects.Why{
			Field: "sender_done_url", Ours: "host:port of the sender's own", Theirs: effects.Words(m.SenderDoneURL),
			Remedy: "give the sender's own address as its pd_peer_host",
		}
	case r.cfg.AddressesOnly && !done.Numeric():
		return effects.Refused, &effects.Why{
			Field: "sender_done_url", Ours: "an address, because link.peer_names is false",
			Theirs: effects.Words(m.SenderDoneURL),
			Remedy: "give pd_peer_host of the sender as an address, or set link.peer_names: true at the receiver",
		}
	}
	return effects.OK, nil
}

// offeredAgain serves a retry: whoever asks now gets the answer, when there is one. No refusal may end what its first
// attempt began: its sender would take the pages for its own again, while they are read.
func (r *Receiver) offeredAgain(
	v *env.Env, ev *effects.Received, who asker, peer effects.Incarnation, operation, request uint64,
) bool {
	x := r.landings.again(peer, operation)
	switch {
	case x == nil:
		return r.postponed(v, who, peer, operation, request) ||
			r.stillWaits(v, ev, who, peer, operation, request, true)
	case !x.reading: // It names what it pushes.
		r.refuseOffer(v, who, effects.Withdrawn, &effects.Why{Field: "kvf_op", Ours: "of a push"})
	case x.request != request || x.what != r.named(r.offer.Keys, r.offer.LastChunkTokens):
		r.refuseOther(v, who, true)
	case x.revoking:
		v.Out.Mark(MarkOfferedAgain)
		stop := r.readingOf(x).stop
		r.fail(v, ev.Request, true, r.heard(), stop, ended(stop), true)
	default:
		v.Out.Mark(MarkOfferedAgain)
		y := r.readingOf(x)
		y.to, y.heard = ev.Request, r.heard()
	}
	return true
}

// OnReached goes on with what waited for the link to a sender's pages. One that cannot be reached will not be
// read from: its engine should know that now, and not when it counts on it.
func (r *Receiver) OnReached(v *env.Env, class int, code effects.Code, why effects.Why) {
	r.deferred.stir()
	if code != effects.OK {
		r.dropOffers(v, code, offersOf{class: class})
	}
	if code == effects.OK {
		r.pending.linked(class)
		return
	}
	for h := r.pending.firstLinking(class); h != 0; h = r.pending.firstLinking(class) {
		v.Out.Mark(MarkNotReached)
		told := why
		r.refuseAsk(v, h, code, &told)
	}
}

// onWithdrawal handles a sender's word that offers are taken back. What is being read is not worth having any
// more: on fenced planes it fails by itself, on leased ones it is stopped here.
func (r *Receiver) onWithdrawal(v *env.Env, who asker, peer effects.Incarnation) {
	// The answer needs r.offer, which a refusal below decodes anew.
	heard := r.heard()
	r.withdrawn = append(r.withdrawn[:0], r.offer.Ext.Withdraw...)
	slices.SortFunc(r.withdrawn, comparePulls)
	r.givenBack(v, who.class, peer, len(r.withdrawn), effects.StageOffer, r.offer.Ext.Code, r.offer.Ext.Reason)
	for slot := range r.reads {
		if y := &r.reads[slot]; y.live && y.peer == peer && isWithdrawn(r.withdrawn, y.id) {
			v.Out.Mark(MarkOfferWithdrawn)
			r.stopReading(v, r.landings.at(int32(slot)), effects.Cancelled)
		}
	}
	for slot := range r.pending.slots() {
		if h, q := r.pending.at(slot); h != 0 && q.offer && q.peer == peer && isWithdrawn(r.withdrawn, q.pull) {
			v.Out.Mark(MarkOfferWithdrawn)
			r.refuseAsk(v, h, effects.Cancelled, ended(effects.Cancelled))
		}
	}
	r.dropOffers(v, effects.Cancelled, offersOf{withdrawn: peer, names: r.withdrawn})
	r.acknowledge(v, who.to, heard, nil, false)
}

func comparePulls(a, b protocol.PullID) int { return bytes.Compare(a[:], b[:]) }

// refuseOffer answers r.offer: nothing of it will be read, and why.
func (r *Receiver) refuseOffer(v *env.Env, who asker, code effects.Code, why *effects.Why) {
	r.rememberRefused(v, who.class, code)
	if why != nil && why.Stage == effects.StageNone {
		why.Stage = effects.StageOffer
	}
	r.note(v, who, r.offer.Ext.Incarnation, code, len(r.offer.Keys), why)
	r.fail(v, who.to, r.offer.HasExt, r.heard(), code, why, false)
}

// heard is what an answer to an offer repeats of it: the sender's clock, and who we are to that sender.
type heard struct {
	clock int64
	us    effects.Incarnation
}

func (r *Receiver) heard() heard {
	return heard{clock: r.offer.Ext.Stamps.ClockNS, us: effects.Incarnation(r.offer.Ext.To)}
}

// fail answers that nothing will come of an offer. If a read of it may still be under way, reading, its end is told later.
func (r *Receiver) fail(
	v *env.Env, to effects.Request, extended bool, what heard, code effects.Code, why *effects.Why, reading bool,
) {
	if !extended && never(code) {
		refuseForGood(v, to)
		return
	}
	m := &r.ack
	m.AlreadySent, m.AllocFailed, m.HasExt = m.AlreadySent[:0], true, extended
	m.Ext = protocol.PullAckExt{
		Version: link.VersionMax, Incarnation: protocol.UUID(what.us), Code: uint32(code), Delayed: reading,
		Stamps: protocol.Stamps{ClockNS: int64(v.Now), EchoNS: what.clock},
	}
	if why != nil {
		m.Ext.Reason = why.Reason()
	}
	if code == effects.NoMemory || code == effects.TooMany {
		m.Ext.RetryNS = uint64(r.cfg.AllocTimeout)
	}
	v.Out.Reply(effects.Reply{Request: to, Body: v.Out.Cut(m.Append(v.Out.Arena()))})
}

// acknowledge says that what an offer had is here, or was here before, or will be read when it is wanted.
func (r *Receiver) acknowledge(v *env.Env, to effects.Request, what heard, already []int64, delayed bool) {
	m := &r.ack
	m.AlreadySent, m.AllocFailed, m.HasExt = append(m.AlreadySent[:0], already...), false, true
	m.Ext = protocol.PullAckExt{
		Version: link.VersionMax, Incarnation: protocol.UUID(what.us),
		Stamps:  protocol.Stamps{ClockNS: int64(v.Now), EchoNS: what.clock},
		Delayed: delayed,
	}
	v.Out.Reply(effects.Reply{Request: to, Body: v.Out.Cut(m.Append(v.Out.Arena()))})
}
