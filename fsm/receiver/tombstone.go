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
	peer      effects.Incarnation
	operation uint64
	attempt   uint32 // of a refusal: who tries again after it has not heard it
	done      bool   // it speaks of every attempt
	code      effects.Code
	said      effects.Time
	over      effects.Time // from when on the offer's own time forbids to read it
}

// tombstones are bounded: one has to go before its time when too many come. From then on nothing that
// may have begun before that one's word is read.
type tombstones struct {
	slab  table.Slab[tombstone]
	index table.Index
	order table.List // those said longest ago first
	floor effects.Time
}

func newTombstones(most int) tombstones {
	return tombstones{slab: table.NewSlab[tombstone](most), floor: -1 << 63}
}

func (t *tombstones) forget(h table.Handle) {
	x := t.slab.Get(h)
	t.index.Remove(operationHash(x.peer, x.operation), h)
	t.slab.Unlink(&t.order, h)
	t.slab.Remove(h)
}

func (t *tombstones) expire(now effects.Time) {
	for h := t.order.Front(); h != 0 && t.slab.Get(h).over < now; h = t.order.Front() {
		t.forget(h)
	}
}

func (t *tombstones) add(x tombstone) {
	if t.expire(x.said); t.slab.Full() {
		t.floor = max(t.floor, t.slab.Get(t.order.Front()).said)
		t.forget(t.order.Front())
	}
	h, slot := t.slab.Add()
	*slot = x
	t.index.Add(operationHash(x.peer, x.operation), h)
	t.slab.PushBack(&t.order, h)
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
	if !r.cfg.Leased || r.graves.floor < 0 {
		return false
	}
	if began, known := l.Anchor(v, class, m.Ext.Stamps, m.Ext.GrantedNS); known && began > r.graves.floor {
		return false
	}
	v.Out.Mark(MarkOfferBuried)
	r.fail(v, to, true, r.heard(), effects.Expired, tooLate(), false)
	return true
}

// buryRefused remembers that r.offer was refused.
func (r *Receiver) buryRefused(v *env.Env, code effects.Code) {
	m := &r.offer
	if !m.HasExt || m.Ext.Operation == 0 || code == effects.Stale {
		return // Nobody that we know offered it, or offered it to us: that word ends no loan.
	}
	r.graves.add(tombstone{
		peer: effects.Incarnation(m.Ext.Incarnation), operation: m.Ext.Operation, attempt: m.Ext.Attempt, code: code, said: v.Now, over: r.leaseOver(v),
	})
}

// buryDone remembers that an offer's end was told, or will be.
func (r *Receiver) buryDone(v *env.Env, peer effects.Incarnation, operation uint64, code effects.Code, over effects.Time) {
	r.graves.add(tombstone{peer: peer, operation: operation, done: true, code: code, said: v.Now, over: over})
}
