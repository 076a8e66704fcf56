package receiver

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/kernel"
	"github.com/kvferry/kvferry/fsm/link"
	"github.com/kvferry/kvferry/fsm/store"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// An ask is an AllocRequest or an offer that waits for pages. It keeps the message itself,
// which is decoded again when its turn comes.
type ask struct {
	offer     bool
	pull      protocol.PullID // of an offer
	linking   bool            // an offer that waits for the link to its pages, not yet for ours
	request   effects.Request
	conn      effects.Conn
	class     int
	who       uint64 // hash of the id of the request that it is for
	what      uint64 // hash of its keys, in order, and of its last tokens
	body      []byte
	wants     []uint64 // hashes of its keys, ascending
	bytes     int      // of both
	operation uint64
	peer      effects.Incarnation
	keys      uint32 // pages that it needs at the most
	lacks     lacks  // why it was not served when it was tried last
	attempt   uint32 // of an offer: the last one that came
	overtaken uint32
	timer     kernel.TimerID `snap:"set"`
}

// A spot is what becomes of one key of a request.
type spot struct {
	entry  store.Entry
	ready  bool
	repeat int // the position of the same key earlier in the batch, or -1
	page   int // position in the grant
}

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
	request := r.requestHash(r.requestID())
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
		if class, room = l.Plain(v, ev.Conn, r.busy); !room {
			v.Out.Mark(MarkPlainsFull)
			r.refuse(v, who, len(m.Keys), effects.TooMany, tooMany("peers without our extensions", link.PlainMax))
			return
		}
	}
	if r.queues[class].Len() == 0 && r.collector(v) == 0 && r.answer(v, ev.Request, class, peer, operation, request) {
		r.overtake(v, class)
		return
	}
	patience := effects.Duration(r.cfg.AllocTimeout)
	if m.HasExt {
		patience = effects.Duration(min(m.Ext.PatienceNS, uint64(patience)))
	}
	what := ask{
		class: class, who: request, what: r.named(m.Keys, m.LastChunkTokens), peer: peer, operation: operation,
		keys: uint32(len(m.Keys)),
	}
	if crowded := r.wait(v, ev, what, m.Keys, patience); crowded != nil {
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
	if b := r.repeated(peer, operation); b != nil && !b.reading {
		if b.request != request || b.what != r.named(r.message.Keys, r.message.LastChunkTokens) {
			r.refuseOther(v, who, false)
			return true
		}
		v.Out.Mark(MarkAskedAgain)
		if b.revoking || r.reply.Decode(b.reply, &r.cfg.Wire) != nil {
			r.refuse(v, who, len(r.message.Keys), effects.Withdrawn, &effects.Why{Field: "grant", Ours: "taken back"})
			return true
		}
		r.reply.Ext.LeaseNS = uint64(max(0, b.ends.Sub(v.Now)))
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
func (r *Receiver) named(keys [][]byte, lastTokens uint32) uint64 {
	sum := uint64(lastTokens)
	for _, key := range keys {
		sum = sum*more + r.Store.Hash(key)
	}
	return sum
}

const more = 0x9E3779B97F4A7C15

// sum is named of keys whose hashes are known: those that classify has looked up.
func sum(hashes []uint64, lastTokens uint32) uint64 {
	sum := uint64(lastTokens)
	for _, hash := range hashes {
		sum = sum*more + hash
	}
	return sum
}

func (r *Receiver) stillWaits(
	v *env.Env, ev *effects.Received, who asker, peer effects.Incarnation, operation, request uint64, offer bool,
) bool {
	keys, lastTokens := r.message.Keys, r.message.LastChunkTokens
	if offer {
		keys, lastTokens = r.offer.Keys, r.offer.LastChunkTokens
	}
	for p := r.byAsk.Seek(operationHash(peer, operation)); p.Found(); p = r.byAsk.Next(p) {
		if a := r.asks.Get(p.Handle()); a.peer == peer && a.operation == operation {
			if a.offer != offer || a.who != request || a.what != r.named(keys, lastTokens) {
				r.refuseOther(v, who, offer)
				return true
			}
			v.Out.Mark(MarkAskedAgain)
			a.request, a.conn = ev.Request, ev.Conn
			if a.offer {
				a.attempt = max(a.attempt, r.offer.Ext.Attempt)
			}
			return true
		}
	}
	return false
}

// wait keeps an ask until its turn comes, or says of what its class has its share: places, or bytes of messages.
func (r *Receiver) wait(
	v *env.Env, ev *effects.Received, what ask, keys [][]byte, patience effects.Duration,
) *effects.Why {
	what.bytes = len(ev.Body) + wantBytes*len(keys)
	if !r.waiting.May(what.class) {
		v.Out.Mark(MarkAsksFull)
		return tooMany("tables.waiters", int(r.cfg.WaitersMax))
	}
	if what.bytes > r.bodies.Left(what.class) {
		v.Out.Mark(MarkAsksFull)
		return r.tooLong(what.bytes)
	}
	r.waiting.Take(what.class)
	r.bodies.Add(what.class, what.bytes)
	h, a := r.asks.Add()
	what.request, what.conn, what.body, what.wants = ev.Request, ev.Conn, append(a.body[:0], ev.Body...), a.wants[:0]
	for _, key := range keys {
		what.wants = append(what.wants, r.Store.Hash(key))
	}
	slices.Sort(what.wants)
	*a = what
	if a.operation != 0 {
		r.byAsk.Add(operationHash(a.peer, a.operation), h)
	}
	r.busy[a.class]++
	r.asks.PushBack(r.queueOf(a), h)
	v.Timers.Set(&a.timer, v.Now.Add(patience), timerRef(timerAsk, h))
	v.Out.Mark(MarkAskWaits)
	return nil
}

// wantBytes are kept of each key of what waits, beside the message.
const wantBytes = 8

func (r *Receiver) queueOf(a *ask) *table.List {
	if a.linking {
		return &r.linking[a.class]
	}
	return &r.queues[a.class]
}

// Shifted says, once, that somebody left a queue: who was behind may go on.
func (r *Receiver) Shifted() bool {
	was := r.shifted
	r.shifted = false
	return was
}

func (r *Receiver) removeAsk(v *env.Env, h table.Handle) {
	r.shifted = true
	a := r.asks.Get(h)
	v.Timers.Stop(&a.timer)
	if a.operation != 0 {
		r.byAsk.Remove(operationHash(a.peer, a.operation), h)
	}
	r.busy[a.class]--
	r.waiting.Give(a.class)
	r.bodies.Add(a.class, -a.bytes)
	r.asks.Unlink(r.queueOf(a), h)
	a.body, a.wants = table.ShedBytes(a.body), table.Shed(a.wants)
	r.asks.Remove(h)
}

func (r *Receiver) refuseAsk(v *env.Env, h table.Handle, code effects.Code, why *effects.Why) {
	a := r.asks.Get(h)
	r.decode(a)
	who := asker{to: a.request, conn: a.conn, class: a.class}
	if a.offer {
		r.loseAll(r.offer.Keys, code)
		r.refuseOffer(v, who, code, why)
	} else {
		r.loseAll(r.message.Keys, code)
		who.extended = r.message.HasExt
		r.refuse(v, who, len(r.message.Keys), code, why)
	}
	r.removeAsk(v, h)
}

// decode reads a waiting message again, into r.offer or r.message.
func (r *Receiver) decode(a *ask) {
	var err error
	if a.offer {
		err = r.offer.Decode(a.body, &r.cfg.Wire)
		r.offer.Ext.Attempt = a.attempt
	} else {
		err = r.message.Decode(a.body, &r.cfg.Wire)
	}
	if err != nil {
		panic("BUG: a waiting request does not decode any more")
	}
}

// OnConnLost forgets who waits on a connection that is gone.
func (r *Receiver) OnConnLost(v *env.Env, conn effects.Conn) {
	if r.posts.lost(v, r, conn) {
		return
	}
	for class := range r.renewers {
		if x := &r.renewers[class]; x.conn == conn && !x.asking {
			r.hangUp(v, x)
			r.renew(v, class)
			return
		}
	}
	for slot := range r.asks.Slots() {
		if h := r.asks.At(slot); h != 0 && r.asks.Get(h).conn == conn {
			v.Out.Mark(MarkAskerLost)
			r.removeAsk(v, h)
		}
	}
}

// LookAgain has the queues looked at again: whom pages were kept for may have lost the way to what it offers.
func (r *Receiver) LookAgain() { r.shifted = true }

// collector is the head that was overtaken so often that pages are now kept together
// for it; zero if there is none. Of several it is the one passed most: were all of them
// allowed to go on, those that need little could pass one that needs much for ever. A head
// that waits for its own class's share is none: others' pages do not help it.
func (r *Receiver) collector(v *env.Env) (most table.Handle) {
	if r.asks.Len() == 0 {
		return 0
	}
	passed := r.cfg.OvertakesMax
	for class := range r.queues {
		h := r.queues[class].Front()
		if h == 0 {
			continue
		}
		a := r.asks.Get(h)
		if n := a.overtaken; (n > passed || n == passed && most == 0) && v.Pools.FitsShare(v.Pool, class, a.keys) {
			most, passed = h, n
		}
	}
	return most
}

// Admit serves who waits for pages: first in, first out within a class, in turn
// between classes. It is called when pages became free. (Rule M9.)
func (r *Receiver) Admit(v *env.Env, l *link.Links) {
	for idle := 0; idle < len(r.queues) && r.asks.Len() > 0; {
		class := r.turn
		r.turn = (r.turn + 1) % len(r.queues)
		h := r.queues[class].Front()
		if h == 0 || !r.maybeAdmit(v, l, h) {
			idle++
			continue
		}
		idle = 0
	}
}

func (r *Receiver) maybeAdmit(v *env.Env, l *link.Links, h table.Handle) bool {
	a := r.asks.Get(h)
	if c := r.collector(v); c != 0 && c != h {
		return false
	}
	to := effects.Link(0)
	if a.offer {
		if to = l.Reach(v, a.class); to == 0 {
			// The link was lost while it waited for pages.
			a.linking = true
			r.asks.Unlink(&r.queues[a.class], h)
			r.asks.PushBack(&r.linking[a.class], h)
			return true
		}
	}
	if r.stillLacks(v, a) {
		return false
	}
	r.decode(a)
	r.lacks = lacks{}
	served := false
	if a.offer {
		served = r.read(v, l, to, asker{to: a.request, conn: a.conn, class: a.class})
	} else {
		served = r.answer(v, a.request, a.class, a.peer, a.operation, a.who)
	}
	if !served {
		a.lacks = r.lacks
		return false
	}
	class := a.class
	r.removeAsk(v, h)
	r.overtake(v, class)
	return true
}

// overtake counts against each head of another class that a request of this one went
// before it, at once or after a wait. One that waits for its class's share was not passed.
func (r *Receiver) overtake(v *env.Env, by int) {
	if r.asks.Len() == 0 {
		return
	}
	for class := range r.queues {
		if h := r.queues[class].Front(); h != 0 && class != by {
			if a := r.asks.Get(h); v.Pools.FitsShare(v.Pool, class, a.keys) {
				a.overtaken++
			}
		}
	}
}
