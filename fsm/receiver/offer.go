package receiver

import (
	"bytes"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/link"
	"github.com/kvferry/kvferry/protocol"
)

// onOffer handles a PullReadyNotif. An offer waits for the link to its pages, then for pages of ours as an
// AllocRequest does, and is answered when it has been read.
func (r *Receiver) onOffer(v *env.Env, l *link.Links, ev *effects.Received) {
	m := &r.offer
	if err := m.Decode(ev.Body, &r.cfg.Wire); err != nil {
		v.Out.Mark(MarkAllocMalformed)
		v.Out.Observe(effects.Observe{Fact: effects.FactMalformed, Code: effects.Malformed, ID: uint64(ev.Conn)})
		m.HasExt = false
		r.refuseOffer(v, ev.Request, effects.Malformed)
		return
	}
	if !m.HasExt {
		// Nothing ties a plain sender's pages to a life of it, so nothing would tell what was read.
		v.Out.Mark(MarkPlainOffer)
		r.refuseOffer(v, ev.Request, effects.Unsupported)
		return
	}
	peer, to := effects.Incarnation(m.Ext.Incarnation), effects.Incarnation(m.Ext.To)
	class, known := l.Guest(peer, to, v.Now)
	if !known {
		v.Out.Mark(MarkStrangerRefused)
		r.refuseOffer(v, ev.Request, effects.Stale)
		return
	}
	if len(m.Keys) == 0 && len(m.Ext.Withdraw) > 0 {
		r.onWithdrawal(v, ev.Request, peer)
		return
	}
	operation := m.Ext.Operation
	if r.offeredAgain(v, ev, peer, operation) || r.buried(v, l, ev.Request, class) {
		return // What it began, or how that ended, is true whatever this rank has become since.
	}
	pages := len(m.Keys)
	if r.cfg.Delay {
		pages = 1 // What is kept needs none, and a fetch of it at least one of staging.
	}
	code := r.check(v, m.Keys, m.Layout(), m.LastChunkTokens, pages)
	if code == effects.OK {
		code = r.checkOffer(l, class)
	}
	if code == effects.Invalid && !l.GuestListed(class) {
		code = effects.Stale // Then it shakes hands again.
	}
	if code != effects.OK {
		v.Out.Mark(MarkAllocRefused)
		r.refuseOffer(v, ev.Request, code)
		return
	}
	who := r.requestHash(m.Ext.Request)
	if r.abandons.has(v.Now, who) {
		v.Out.Mark(MarkAskAbandoned)
		r.refuseOffer(v, ev.Request, effects.Cancelled)
		return
	}
	if r.cfg.Delay {
		r.postpone(v, l, ev, class)
		return
	}
	reached := l.Reach(v, class)
	if reached != 0 && r.queues[class].Len() == 0 && r.collector(v) == 0 && r.read(v, l, reached, ev.Request, class) {
		r.overtake(v, class)
		return
	}
	patience := effects.Duration(min(m.Ext.PatienceNS, uint64(r.cfg.AllocTimeout)))
	what := ask{offer: true, what: r.named(m.Keys), pull: m.PullID, linking: reached == 0, class: class, who: who, peer: peer, operation: operation, attempt: m.Ext.Attempt, keys: uint32(len(m.Keys))}
	if r.wait(v, ev, what, m.Keys, patience) == 0 {
		r.refuseOffer(v, ev.Request, effects.TooMany)
	}
}

// checkOffer says whether what an offer says of its pages makes sense.
func (r *Receiver) checkOffer(l *link.Links, class int) effects.Code {
	m := &r.offer
	if m.PullID == (protocol.PullID{}) || m.Ext.Operation == 0 || m.Ext.Grant == 0 || len(m.Ext.Generations) != len(m.Keys) {
		return effects.Malformed
	}
	for i, index := range m.SenderIndexes {
		buffer, ok := l.GuestBuffer(class, effects.BufferID(m.SenderUUIDs[i]))
		if !ok || index < 0 || index >= int64(buffer.Pages) {
			return effects.Invalid
		}
	}
	if r.posts.find(m.SenderDoneURL) != 0 {
		return effects.OK
	}
	// LMCache announces what it binds to, which may be every interface of its own.
	done, err := protocol.ParseEndpoint(string(m.SenderDoneURL))
	switch {
	case err != nil || done.Unspecified():
		return effects.Invalid
	case r.cfg.AddressesOnly && !done.Numeric():
		return effects.Refused
	}
	return effects.OK
}

// offeredAgain serves a retry: whoever asks now gets the answer, when there is one. No refusal may end what its first
// attempt began: its sender would take the pages for its own again, while they are read.
func (r *Receiver) offeredAgain(v *env.Env, ev *effects.Received, peer effects.Incarnation, operation uint64) bool {
	b := r.repeated(peer, operation)
	switch {
	case b == nil:
		what := r.named(r.offer.Keys)
		return r.postponed(v, ev, peer, operation, what) || r.stillWaits(v, ev, peer, operation, what, true)
	case !b.reading:
		r.refuseOffer(v, ev.Request, effects.Withdrawn) // It names what it pushes.
	case b.what != r.named(r.offer.Keys):
		r.refuseOther(v, ev.Request, true)
	case b.revoking:
		v.Out.Mark(MarkOfferedAgain)
		r.fail(v, ev.Request, true, r.heard(), b.pull.stop, true)
	default:
		v.Out.Mark(MarkOfferedAgain)
		b.pull.to, b.pull.heard = ev.Request, r.heard()
	}
	return true
}

// OnReached goes on with what waited for the link to a sender's pages. One that cannot be reached will not be
// read from: its engine should know that now, and not when it counts on it.
func (r *Receiver) OnReached(v *env.Env, class int, code effects.Code) {
	r.stirred = true
	if code != effects.OK {
		r.dropOffers(v, code, offersOf{class: class})
	}
	list := &r.linking[class]
	for h := list.Front(); h != 0; h = list.Front() {
		if code != effects.OK {
			v.Out.Mark(MarkNotReached)
			r.refuseAsk(v, h, code)
			continue
		}
		a := r.asks.Get(h)
		r.asks.Unlink(list, h)
		a.linking = false
		r.asks.PushBack(&r.queues[class], h)
		r.shifted = true
	}
}

// onWithdrawal handles a sender's word that offers are taken back. What is being read is not worth having any
// more: on fenced planes it fails by itself, on leased ones it is stopped here.
func (r *Receiver) onWithdrawal(v *env.Env, to effects.Request, peer effects.Incarnation) {
	// The answer needs r.offer, which a refusal below decodes anew.
	heard := r.heard()
	r.withdrawn = append(r.withdrawn[:0], r.offer.Ext.Withdraw...)
	slices.SortFunc(r.withdrawn, comparePulls)
	for slot := range r.batches {
		if b := &r.batches[slot]; b.live && b.reading && b.peer == peer && r.isWithdrawn(b.pull.id) {
			v.Out.Mark(MarkOfferWithdrawn)
			r.stopReading(v, b, effects.Cancelled)
		}
	}
	for slot := range r.asks.Slots() {
		h := r.asks.At(slot)
		if h == 0 {
			continue
		}
		if a := r.asks.Get(h); a.offer && a.peer == peer && r.isWithdrawn(a.pull) {
			v.Out.Mark(MarkOfferWithdrawn)
			r.refuseAsk(v, h, effects.Cancelled)
		}
	}
	r.dropOffers(v, effects.Cancelled, offersOf{withdrawn: peer})
	r.acknowledge(v, to, heard, nil, false)
}

func (r *Receiver) isWithdrawn(id protocol.PullID) bool {
	_, ok := slices.BinarySearchFunc(r.withdrawn, id, comparePulls)
	return ok
}

func comparePulls(a, b protocol.PullID) int { return bytes.Compare(a[:], b[:]) }

// refuseOffer answers r.offer: nothing of it will be read, and why.
func (r *Receiver) refuseOffer(v *env.Env, to effects.Request, code effects.Code) {
	r.buryRefused(v, code)
	v.Out.Observe(effects.Observe{Fact: effects.FactAllocRefused, Code: code, Count: uint32(len(r.offer.Keys))})
	r.fail(v, to, r.offer.HasExt, r.heard(), code, false)
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
func (r *Receiver) fail(v *env.Env, to effects.Request, extended bool, what heard, code effects.Code, reading bool) {
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
