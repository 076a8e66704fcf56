package receiver

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/link"
	"github.com/kvferry/kvferry/fsm/table"
)

// A tombstone is an offer that had our last word: a done, or a refusal. By that word its sender has its pages back, and on
// planes nobody watches nothing but we ourselves stops a read of what they hold by then (rule M2). The same offer may still
// come: a retry crosses with a done, and what was sent on a connection that was closed may arrive after what was sent on the next.
type tombstone struct {
	class     int
	next      table.Handle // of the class
	peer      effects.Incarnation
	operation uint64
	attempt   uint32 // of a refusal: who tries again after it has not heard it
	done      bool   // it speaks of every attempt
	code      effects.Code
	said      effects.Time
	over      effects.Time // from when on the offer's own time forbids to read it
}

// tombstones are bounded. One is there for each class whatever the others do, and of as many again as there may be
// operations at a time no class has more than it leaves (table.Share). A class that has its share forgets its own
// first: from then on nothing of it is read that may have begun before that one's word. So no peer's operations,
// however many end, make another's forgotten.
type tombstones struct {
	slab  table.Slab[tombstone]
	index table.Index
	order table.List // those said longest ago first
	share table.Share
	of    []graves // by class
	past  effects.Time
}

// graves are the tombstones of one class, and from when on nothing of it is read that may have begun before.
type graves struct {
	first, last table.Handle
	count       int
	floor       effects.Time
}

// ever is before every instant.
const ever = effects.Time(-1 << 63)

func newTombstones(most, classes int) tombstones {
	t := tombstones{
		slab: table.NewSlab[tombstone](most + classes), share: table.NewShare(most, classes), of: make([]graves, classes),
		past: ever,
	}
	for class := range t.of {
		t.of[class].floor = ever
	}
	return t
}

// forget takes out the first tombstone of a class.
func (t *tombstones) forget(class int) {
	g := &t.of[class]
	h := g.first
	x := t.slab.Get(h)
	g.first = x.next
	if g.count--; g.count > 0 {
		t.share.Give(class)
	}
	t.index.Remove(operationHash(x.peer, x.operation), h)
	t.slab.Unlink(&t.order, h)
	t.slab.Remove(h)
}

func (t *tombstones) expire(now effects.Time) {
	for h := t.order.Front(); h != 0 && t.slab.Get(h).over < now; h = t.order.Front() {
		t.forget(t.slab.Get(h).class) // Who is the first of all is the first of its class.
	}
}

func (t *tombstones) add(x tombstone) {
	t.expire(x.said)
	g := &t.of[x.class]
	if g.count > 0 && !t.share.May(x.class) {
		g.floor = max(g.floor, t.slab.Get(g.first).said)
		t.forget(x.class)
	}
	if g.count++; g.count > 1 {
		t.share.Take(x.class)
	}
	h, slot := t.slab.Add()
	*slot = x
	if g.count == 1 {
		g.first = h
	} else {
		t.slab.Get(g.last).next = h
	}
	g.last = h
	t.index.Add(operationHash(x.peer, x.operation), h)
	t.slab.PushBack(&t.order, h)
}

// leave takes a class from its peer for another one. Who had it may come back in any class that is left: so whoever
// gets one has the floor of all that ever went, and that is no lower than what any of them was told last.
func (t *tombstones) leave(class int) {
	g := &t.of[class]
	for t.past = max(t.past, g.floor); g.count > 0; {
		t.past = max(t.past, t.slab.Get(g.first).said)
		t.forget(class)
	}
	g.floor = t.past
}

func (t *tombstones) find(peer effects.Incarnation, operation uint64, attempt uint32) *tombstone {
	for p := t.index.Seek(operationHash(peer, operation)); p.Found(); p = t.index.Next(p) {
		if x := t.slab.Get(p.Handle()); x.peer == peer && x.operation == operation && (x.done || attempt <= x.attempt) {
			return x
		}
	}
	return nil
}

// leaseOver is when r.offer, whenever it began, will not be read any more if it comes again.
func (r *Receiver) leaseOver(v *env.Env) effects.Time {
	return v.Now.Add(r.stated(r.offer.Ext.LeaseNS))
}

// buried answers r.offer if it had our last word, or may have had it.
func (r *Receiver) buried(v *env.Env, l *link.Links, to effects.Request, class int) bool {
	m := &r.offer
	r.graves.expire(v.Now)
	if x := r.graves.find(effects.Incarnation(m.Ext.Incarnation), m.Ext.Operation, m.Ext.Attempt); x != nil {
		v.Out.Mark(MarkOfferBuried)
		if x.code == effects.OK {
			r.acknowledge(v, to, r.heard(), nil, false)
		} else {
			r.fail(v, to, true, r.heard(), x.code, ended(x.code), false)
		}
		return true
	}
	floor := r.graves.of[class].floor
	if !r.cfg.Leased || floor == ever {
		return false
	}
	if began, known := l.Anchor(v, class, m.Ext.Stamps, m.Ext.GrantedNS); known && began > floor {
		return false
	}
	v.Out.Mark(MarkOfferBuried)
	r.fail(v, to, true, r.heard(), effects.Expired, tooLate(), false)
	return true
}

// buryRefused remembers that r.offer was refused.
func (r *Receiver) buryRefused(v *env.Env, class int, code effects.Code) {
	m := &r.offer
	if class == 0 || !m.HasExt || m.Ext.Operation == 0 || code == effects.Stale {
		return // Nobody that we know offered it, or offered it to us: that word ends no loan.
	}
	r.graves.add(tombstone{
		class: class, peer: effects.Incarnation(m.Ext.Incarnation), operation: m.Ext.Operation, attempt: m.Ext.Attempt,
		code: code, said: v.Now, over: r.leaseOver(v),
	})
}

// buryDone remembers that an offer's end was told, or will be.
func (r *Receiver) buryDone(
	v *env.Env, class int, peer effects.Incarnation, operation uint64, code effects.Code, over effects.Time,
) {
	r.graves.add(tombstone{
		class: class, peer: peer, operation: operation, done: true, code: code, said: v.Now, over: over,
	})
}

// OnGuestLeft handles that a class is another peer's from now on.
func (r *Receiver) OnGuestLeft(class int) {
	r.graves.leave(class)
	r.landings.left(class)
}
