package receiver

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
)

// A tombstone is the memory of what was said last of an operation: of an offer a done, or a refusal; of a grant that
// it was committed. By that word a sender has its pages back, and on planes nobody watches nothing but we ourselves
// stops a read of what they hold by then (rule M2). The same offer may still come: a retry crosses with a done, and
// what was sent on a connection that was closed may arrive after what was sent on the next.
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
	rows  table.Slab[tombstone]
	index table.Index
	order table.List // those said longest ago first
	share table.Share
	of    []tombstonesOf // by class
	past  effects.Time
}

// tombstonesOf are those of one class, and from when on nothing of it is read that may have begun before.
type tombstonesOf struct {
	first, last table.Handle
	count       int
	watermark   effects.Time
}

// ever is before every instant.
const ever = effects.Time(-1 << 63)

func newTombstones(most, classes int) tombstones {
	t := tombstones{
		rows: table.NewSlab[tombstone](most + classes), share: table.NewShare(most, classes),
		of: make([]tombstonesOf, classes), past: ever,
	}
	for class := range t.of {
		t.of[class].watermark = ever
	}
	return t
}

// forget takes out the first tombstone of a class.
func (t *tombstones) forget(class int) {
	g := &t.of[class]
	h := g.first
	x := t.rows.Get(h)
	g.first = x.next
	if g.count--; g.count > 0 {
		t.share.Give(class)
	}
	t.index.Remove(operationHash(x.peer, x.operation), h)
	t.rows.Unlink(&t.order, h)
	t.rows.Remove(h)
}

func (t *tombstones) expire(now effects.Time) {
	for h := t.order.Front(); h != 0 && t.rows.Get(h).over < now; h = t.order.Front() {
		t.forget(t.rows.Get(h).class) // Who is the first of all is the first of its class.
	}
}

// say remembers a word.
func (t *tombstones) add(x tombstone) {
	t.expire(x.said)
	g := &t.of[x.class]
	if g.count > 0 && !t.share.May(x.class) {
		g.watermark = max(g.watermark, t.rows.Get(g.first).said)
		t.forget(x.class)
	}
	if g.count++; g.count > 1 {
		t.share.Take(x.class)
	}
	h, slot := t.rows.Add()
	*slot = x
	if g.count == 1 {
		g.first = h
	} else {
		t.rows.Get(g.last).next = h
	}
	g.last = h
	t.index.Add(operationHash(x.peer, x.operation), h)
	t.rows.PushBack(&t.order, h)
}

// left takes a class from its peer for another one. Who had it may come back in any class that is left: so whoever
// gets one has the watermark of all that ever went, and that is no lower than what any of them was told last.
func (t *tombstones) left(class int) {
	g := &t.of[class]
	for t.past = max(t.past, g.watermark); g.count > 0; {
		t.past = max(t.past, t.rows.Get(g.first).said)
		t.forget(class)
	}
	g.watermark = t.past
}

// find is the last word that an attempt of an operation had; nil if none is remembered. What began after the
// watermark of its class had none then.
func (t *tombstones) find(now effects.Time, peer effects.Incarnation, operation uint64, attempt uint32) *tombstone {
	t.expire(now)
	for p := t.index.Seek(operationHash(peer, operation)); p.Found(); p = t.index.Next(p) {
		if x := t.rows.Get(p.Handle()); x.peer == peer && x.operation == operation && (x.done || attempt <= x.attempt) {
			return x
		}
	}
	return nil
}

// watermark is from when on what a class's peer began is read, whatever was said and forgotten; ever if nothing was.
func (t *tombstones) watermark(class int) effects.Time { return t.of[class].watermark }
