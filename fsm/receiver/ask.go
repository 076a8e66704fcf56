package receiver

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/link"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// OnAlloc handles a message on the alloc channel. Every one is answered, at once
// or when there is memory.
func (r *Receiver) OnAlloc(v *env.Env, l *link.Links, ev *effects.Received) {
	if ev.Request == 0 {
		return
	}
	if protocol.HasTag(ev.Body, protocol.TagPullReadyNotif, &r.cfg.Wire) {
		r.onOffer(v, l, ev)
		return
	}
	who := asker{to: ev.Request, conn: ev.Conn}
	m := &r.message
	if err := m.Decode(ev.Body, &r.cfg.Wire); err != nil {
		v.Out.Mark(MarkAllocMalformed)
		r.malformed(v, who, effects.StageAsk, err, ev.Body)
		r.refuse(v, who, 0, effects.Malformed, nil)
		return
	}
	who.extended = m.HasExt
	class, peer := 0, effects.Incarnation{}
	if !m.HasExt && !l.Bearer() {
		// Nothing that it was granted could ever be written: no page is held for it.
		v.Out.Mark(MarkPlainRefused)
		r.refuse(v, who, len(m.Keys), effects.Unsupported, plainPeer())
		return
	}
	if m.HasExt {
		peer = effects.Incarnation(m.Ext.Incarnation)
		var known bool
		to := effects.Incarnation(m.Ext.To)
		if class, known = l.Inbound(v, peer, to); !known {
			v.Out.Mark(MarkStrangerRefused)
			r.refuse(v, who, len(m.Keys), effects.Stale, unknownLife())
			return
		}
		who.class = class
		if len(m.Keys) == 0 {
			r.settle(v, ev.Request, class, peer)
			return
		}
	}
	operation := m.Ext.Operation
	if !m.HasExt {
		operation = 0
	}
	request := requestHash(&r.Store, r.requestID())
	if operation != 0 && r.again(v, ev, who, peer, operation, request) {
		return // What was granted or waits is true whatever this rank has become since.
	}
	code, why := r.check(v, m.Keys, m.Layout(), m.LastChunkTokens, len(m.Keys))
	if code != effects.OK {
		v.Out.Mark(MarkAllocRefused)
		r.refuse(v, who, len(m.Keys), code, why)
		return
	}
	if r.abandons.has(v.Now, request) {
		v.Out.Mark(MarkAskAbandoned)
		r.refuse(v, who, len(m.Keys), effects.Cancelled, ended(effects.Cancelled))
		return
	}
	if !m.HasExt {
		var room bool
		if class, room = l.Plain(v, ev.Conn, r.Busy()); !room {
			v.Out.Mark(MarkPlainsFull)
			r.refuse(v, who, len(m.Keys), effects.TooMany, tooMany("peers without our extensions", link.PlainMax))
			return
		}
	}
	if r.pending.mayPass(v, class) {
		if _, done := r.answer(v, ev.Request, class, peer, operation, request); done {
			r.pending.passed(v, class)
			return
		}
	}
	patience := effects.Duration(r.cfg.AllocTimeout)
	if m.HasExt {
		patience = effects.Duration(min(m.Ext.PatienceNS, uint64(patience)))
	}
	what := pendingRequest{
		class: class, who: request, what: r.named(m.Keys, m.LastChunkTokens), peer: peer, operation: operation,
		keys: uint32(len(m.Keys)),
	}
	if crowded := r.pending.wait(v, what, ev, r.hashes, patience); crowded != nil {
		who.class = class
		r.refuse(v, who, len(m.Keys), effects.TooMany, crowded)
	}
}

// check says whether a batch could ever be served, with so many pages of the pool, and if not, why.
func (r *Receiver) check(
	v *env.Env, keys [][]byte, layout protocol.Layout, lastTokens uint32, pages int,
) (effects.Code, *effects.Why) {
	n := len(keys)
	switch {
	case r.draining:
		return effects.Draining, ended(effects.Draining)
	case n == 0:
		return effects.Invalid, &effects.Why{Field: "keys", Ours: "one or more", Theirs: "none"}
	case n > int(r.cfg.BatchMax):
		return effects.TooLarge, &effects.Why{
			Field: "limits.keys_per_batch", Ours: number(r.cfg.BatchMax), Theirs: number(n),
			Remedy: "send fewer at a time, or raise it here",
		}
	case !v.Pool.Ever(uint32(pages)):
		return effects.TooLarge, &effects.Why{
			Field: "pages for one peer", Ours: "at most " + number(v.Pool.MostOfOne()) + " (pd_buffer_size, peer_share_pct)",
			Theirs: number(pages),
		}
	}
	if code, why := r.fits(n, layout, lastTokens); code != effects.OK {
		return code, why
	}
	var check protocol.KeyCheck
	for i, key := range keys {
		if err := check.Check(key, r.cfg.Wire.KeyBytes); err != nil {
			return effects.Malformed, &effects.Why{Field: at("keys", i), Theirs: effects.Words([]byte(err.Error()))}
		}
	}
	return effects.OK, nil
}

// fits says whether chunks of this layout are ours.
func (r *Receiver) fits(n int, layout protocol.Layout, lastTokens uint32) (effects.Code, *effects.Why) {
	if layout != r.cfg.Layout {
		// A single partial chunk comes with its own shape.
		short, err := r.cfg.Layout.WithTokens(lastTokens)
		if n != 1 || err != nil || short != layout {
			why, _ := link.Differ(r.cfg.Layout, layout)
			return effects.Mismatch, &why
		}
	}
	if lastTokens == 0 || lastTokens > r.cfg.Layout.Tokens() {
		return effects.Invalid, &effects.Why{
			Field: "last_chunk_toks", Ours: "1 to " + number(r.cfg.Layout.Tokens()), Theirs: number(lastTokens),
		}
	}
	return effects.OK, nil
}

// again serves a retry of an operation: the same pages if they were granted, the
// same place in the queue if it still waits. The first asker's answer is moot.
func (r *Receiver) again(
	v *env.Env, ev *effects.Received, who asker, peer effects.Incarnation, operation, request uint64,
) bool {
	if x := r.landings.again(peer, operation); x != nil && !x.reading {
		if x.request != request || x.what != r.named(r.message.Keys, r.message.LastChunkTokens) {
			r.refuseOther(v, who, false)
			return true
		}
		v.Out.Mark(MarkAskedAgain)
		if x.revoking || r.reply.Decode(x.reply, &r.cfg.Wire) != nil {
			r.refuse(v, who, len(r.message.Keys), effects.Withdrawn, &effects.Why{Field: "grant", Ours: "taken back"})
			return true
		}
		r.reply.Ext.LeaseNS = uint64(max(0, x.ends.Sub(v.Now)))
		v.Out.Reply(effects.Reply{Request: ev.Request, Body: v.Out.Cut(r.reply.Append(v.Out.Arena()))})
		return true
	}
	return r.stillWaits(v, ev, who, peer, operation, request, false)
}

// refuseOther answers what has another's operation: somebody spoke in its name before it, and what it would write or
// offer is not what was granted or taken. An offer's loan stands, because somebody's offer of the same pages may be read.
func (r *Receiver) refuseOther(v *env.Env, who asker, offer bool) {
	v.Out.Mark(MarkAllocRefused)
	why := &effects.Why{
		Field: "kvf_op", Ours: "of another batch", Theirs: "of this one", Remedy: "send each batch under a number of its own",
	}
	if offer {
		why.Stage = effects.StageOffer
		r.note(v, who, r.offer.Ext.Incarnation, effects.Mismatch, len(r.offer.Keys), why)
		r.fail(v, who.to, true, r.heard(), effects.Mismatch, why, true)
		return
	}
	r.refuse(v, who, len(r.message.Keys), effects.Mismatch, why)
}

// named is a hash of keys, in order, and of how many tokens the last one has: a retry names those of its first attempt.
// r.hashes gets those of the keys.
func (r *Receiver) named(keys [][]byte, lastTokens uint32) uint64 {
	r.hashes = r.hashes[:0]
	for _, key := range keys {
		r.hashes = append(r.hashes, r.Store.Hash(key))
	}
	return sum(r.hashes, lastTokens)
}

func (r *Receiver) stillWaits(
	v *env.Env, ev *effects.Received, who asker, peer effects.Incarnation, operation, request uint64, offer bool,
) bool {
	keys, lastTokens := r.message.Keys, r.message.LastChunkTokens
	if offer {
		keys, lastTokens = r.offer.Keys, r.offer.LastChunkTokens
	}
	q := r.pending.find(peer, operation)
	switch {
	case q == nil:
		return false
	case q.offer != offer || q.who != request || q.what != r.named(keys, lastTokens):
		r.refuseOther(v, who, offer)
	case offer:
		v.Out.Mark(MarkAskedAgain)
		q.again(ev, r.offer.Ext.Attempt)
	default:
		v.Out.Mark(MarkAskedAgain)
		q.again(ev, 0)
	}
	return true
}

// refuseAsk answers who waits that it waits in vain.
func (r *Receiver) refuseAsk(v *env.Env, h table.Handle, code effects.Code, why *effects.Why) {
	q := r.pending.get(h)
	r.decode(q)
	who := asker{to: q.request, conn: q.conn, class: q.class}
	if q.offer {
		r.loseAll(r.offer.Keys, code)
		r.refuseOffer(v, who, code, why)
	} else {
		r.loseAll(r.message.Keys, code)
		who.extended = r.message.HasExt
		r.refuse(v, who, len(r.message.Keys), code, why)
	}
	r.pending.remove(v, h)
}

// decode reads a waiting message again, into r.offer or r.message.
func (r *Receiver) decode(q *pendingRequest) {
	var err error
	if q.offer {
		err = r.offer.Decode(q.body, &r.cfg.Wire)
		r.offer.Ext.Attempt = q.attempt
	} else {
		err = r.message.Decode(q.body, &r.cfg.Wire)
	}
	if err != nil {
		panic("BUG: a waiting request does not decode any more")
	}
}

// OnConnLost forgets who waits on a connection that is gone.
func (r *Receiver) OnConnLost(v *env.Env, conn effects.Conn) {
	if r.notices.lost(v, conn) {
		return
	}
	if class := r.renewers.lost(v, conn); class != 0 {
		r.renew(v, class)
		return
	}
	for slot := range r.pending.slots() {
		if h, q := r.pending.at(slot); h != 0 && q.conn == conn {
			v.Out.Mark(MarkAskerLost)
			r.pending.remove(v, h)
		}
	}
}

// Shifted says, once, that somebody left the line for pages: who was behind may go on.
func (r *Receiver) Shifted() bool { return r.pending.shifted() }

// LookAgain has the line looked at again: whom pages were kept for may have lost the way to what it offers.
func (r *Receiver) LookAgain() { r.pending.wake() }

// Admit serves who waits for pages, until nobody whose turn comes can be. It is called when pages became free.
func (r *Receiver) Admit(v *env.Env, l *link.Links) {
	for idle := 0; idle < r.pending.classes() && r.pending.len() > 0; idle++ {
		h := r.pending.next(v)
		if h == 0 {
			continue
		}
		if how, lacks := r.try(v, l, r.pending.get(h)); r.pending.tried(v, h, how, lacks) {
			idle = -1 // All others may go on again.
		}
	}
}

// try serves a request whose turn it is, if it can be now.
func (r *Receiver) try(v *env.Env, l *link.Links, q *pendingRequest) (tried, shortfall) {
	to := effects.Link(0)
	if q.offer {
		if to = l.Reach(v, q.class); to == 0 {
			return unlinked, q.lacks
		}
	}
	if !r.landings.room(v, &r.Store, int(q.keys)) || q.lacks.stands(v, q.class, r.Store.Readied(), r.Store.Spare()) {
		return short, q.lacks
	}
	r.decode(q)
	lacks, done := shortfall{}, false
	if q.offer {
		lacks, done = r.read(v, l, to, asker{to: q.request, conn: q.conn, class: q.class})
	} else {
		lacks, done = r.answer(v, q.request, q.class, q.peer, q.operation, q.who)
	}
	if done {
		return served, lacks
	}
	return short, lacks
}
