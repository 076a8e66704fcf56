// Package replies remembers what was said last of operations that ended, by who asked for them: so that whoever asks
// again is answered as before, and nothing that was called over begins anew. It may be relied on for this: an answer is
// remembered until its time is over, or else the watermark of its class is no lower than when it was given; and no
// peer's answers make another's forgotten.
package replies

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
)

// Said is the memory of what was said last of an operation: of an offer a done, or a refusal; of a grant that
// it was committed. By that word a sender has its pages back, and on planes nobody watches nothing but we ourselves
// stops a read of what they hold by then (rule M2). The same offer may still come: a retry crosses with a done, and
// what was sent on a connection that was closed may arrive after what was sent on the next.
type Said struct {
	Class     int
	next      table.Handle // of the class
	Peer      effects.Incarnation
	Operation uint64
	Attempt   uint32 // of a refusal: who tries again after it has not heard it
	Done      bool   // it speaks of every attempt
	What      uint64 // hash of what the operation is of, where that is asked about
	Code      effects.Code
	When      effects.Time
	Over      effects.Time // from when on the offer's own time forbids to read it
}

// Words are bounded. One is there for each class whatever the others do, and of as many again as there may be
// operations at a time no class has more than it leaves (table.Share). A class that has its share forgets its own
// first: from then on nothing of it is read that may have begun before that one's word. So no peer's operations,
// however many end, make another's forgotten.
type Words struct {
	rows  table.Slab[Said]
	index table.Index
	order table.List // those said longest ago first
	share table.Share
	of    []wordsOf // by class
	past  effects.Time
}

// wordsOf are those of one class, and from when on nothing of it is read that may have begun before.
type wordsOf struct {
	first, last table.Handle
	count       int
	watermark   effects.Time
}

// Ever is before every instant.
const Ever = effects.Time(-1 << 63)

// New returns an empty memory of most words beside one for each class.
func New(most, classes int) Words { return new(Words).Emptied(most, classes) }

// Emptied returns what New does, in the memory of t, which is not used any more.
func (t *Words) Emptied(most, classes int) Words {
	e := Words{
		rows: t.rows.Emptied(most + classes), index: t.index.Emptied(), share: t.share.Emptied(most, classes),
		of: table.Zeroed(t.of, classes), past: Ever,
	}
	for class := range e.of {
		e.of[class].watermark = Ever
	}
	return e
}

// forget takes out the first word of a class.
func (t *Words) forget(class int) {
	g := &t.of[class]
	h := g.first
	x := t.rows.Get(h)
	g.first = x.next
	if g.count--; g.count > 0 {
		t.share.Give(class)
	}
	t.index.Remove(table.Hash(x.Operation, x.Peer[:]), h)
	t.rows.Unlink(&t.order, h)
	t.rows.Remove(h)
}

// atOnce is how many are forgotten as one comes: more than come, so there are soon none whose time is over.
const atOnce = 4

// expire forgets some of those whose time is over. To remember one for longer is as safe.
func (t *Words) expire(now effects.Time) {
	for range atOnce {
		x := t.rows.Get(t.order.Front())
		if x == nil || x.Over >= now {
			return
		}
		t.forget(x.Class) // Who is the first of all is the first of its class.
	}
}

// Say remembers a word.
func (t *Words) Say(x Said) {
	t.expire(x.When)
	g := &t.of[x.Class]
	if g.count > 0 && !t.share.May(x.Class) {
		if first := t.rows.Get(g.first); first.Over >= x.When {
			g.watermark = max(g.watermark, first.When)
		}
		t.forget(x.Class)
	}
	if g.count++; g.count > 1 {
		t.share.Take(x.Class)
	}
	h, slot := t.rows.Add()
	*slot = x
	if g.count == 1 {
		g.first = h
	} else {
		t.rows.Get(g.last).next = h
	}
	g.last = h
	t.index.Add(table.Hash(x.Operation, x.Peer[:]), h)
	t.rows.PushBack(&t.order, h)
}

// Left takes a class from its peer for another one. Who had it may come back in any class that is left: so whoever
// gets one has the watermark of all that ever went, and that is no lower than what any of them was told last. It walks
// the words of one class, which are no more than half of all (table.Share), and is not cut: at the default bounds,
// 4,096 of them, that takes 0.15 ms, and a hello may do so once.
func (t *Words) Left(class int) {
	g := &t.of[class]
	for t.past = max(t.past, g.watermark); g.count > 0; {
		t.past = max(t.past, t.rows.Get(g.first).When)
		t.forget(class)
	}
	g.watermark = t.past
}

// Find is the last word that an attempt of an operation had; nil if none is remembered. What began after the
// watermark of its class had none then.
func (t *Words) Find(peer effects.Incarnation, operation uint64, attempt uint32) *Said {
	for p := t.index.Seek(table.Hash(operation, peer[:])); p.Found(); p = t.index.Next(p) {
		if x := t.rows.Get(p.Handle()); x.Peer == peer && x.Operation == operation && (x.Done || attempt <= x.Attempt) {
			return x
		}
	}
	return nil
}

// Len is how many words are remembered.
func (t *Words) Len() int { return t.rows.Len() }

// Watermark is from when on what a class's peer began is read, whatever was said and forgotten; ever if nothing was.
func (t *Words) Watermark(class int) effects.Time { return t.of[class].watermark }
