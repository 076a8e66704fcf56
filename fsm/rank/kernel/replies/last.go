// Package replies keeps replay records: for each operation that has ended, the last reply that the peer was sent. A
// retry of the operation is answered from its record, and an operation that was ended does not begin again.
//
// A caller may rely on the following:
//
//   - A record is kept until its time is over. If a record is dropped earlier, the watermark of its fairness class is
//     at least the time of the record, so the caller can still refuse the operation.
//   - The operations of a peer, however many, never cause the records of another peer to be dropped.
//
// Example: a reader on a leased plane has read an offer.
//
//  1. The reader sends the done message for operation 5 and calls Words.Say. The sender gets its pages back and stores
//     other content there.
//  2. A retry of the offer, which crossed with the done message, arrives at the reader. Find returns the record, and
//     the reader answers as before instead of reading pages with foreign content (rule M2).
//  3. Many operations later the class has used up its share, and the record of operation 5 is dropped early. Watermark
//     returns the time of that record or a later time, so the reader refuses an offer that may have begun before.
package replies

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
)

// Said is the replay record of an operation: for an offer, that a done message or a refusal was sent; for a grant, that
// the commit was accepted. With that reply the sender has its pages back. On leased planes only this rank itself can
// then prevent a read of the pages (rule M2), and a copy of the offer may still arrive: a retry crosses with the done
// message, or a message that was sent on a closed connection arrives after a message on the next connection.
type Said struct {
	Class     int
	next      table.Handle // the next record of the class
	Peer      effects.Incarnation
	Operation uint64
	// Attempt is, for a refusal, the attempt that was refused. The record does not apply to later attempts: a sender
	// that tries again has not received the refusal.
	Attempt uint32
	Done    bool   // the record applies to every attempt
	What    uint64 // hash of the operation's content, for callers that compare it; else 0
	Code    effects.Code
	When    effects.Time // when the reply was sent
	// Over is the end of the record's time. Afterwards the record is not needed, because the time of the operation
	// itself forbids to read its pages.
	Over effects.Time
}

// Words is the bounded table of replay records.
//
// Each class has room for a record of its own, whatever is in the table. Beyond that a class may not use more of the
// shared room than the class leaves free (table.Share); the shared room holds as many records as there may be
// operations at a time. A class that has used up its share drops its own oldest record and raises its watermark: an
// operation of the class that may have begun before the time of that record is not read any more. So a peer's
// operations, however many end, never push out the records of another peer.
type Words struct {
	rows  table.Slab[Said]
	index table.Index
	order table.List // all records, oldest first
	share table.Share
	of    []wordsOf // by class
	// past is at least the time of each record, and each watermark, that a class lost when it was given to another peer
	// (Left).
	past effects.Time
}

// wordsOf are the records of one class, oldest first, and the watermark of the class.
type wordsOf struct {
	first, last table.Handle
	count       int
	// watermark is the time of the newest record that was dropped early. Invariant (M2): on leased planes no operation
	// of the class is read that may have begun at or before this time.
	watermark effects.Time
}

// Ever is before every instant.
const Ever = effects.Time(-1 << 63)

// New returns an empty table for most records, and a further record for each class.
func New(most, classes int) Words { return new(Words).Emptied(most, classes) }

// Emptied is New in the memory of t. The caller must not use t afterwards.
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

// forget removes the oldest record of a class.
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

// atOnce is the number of expired records that are removed when a record is added. Because more records are removed
// than added, expired records soon disappear.
const atOnce = 4

// expire removes up to atOnce records whose time is over. To keep a record for longer would be just as safe.
func (t *Words) expire(now effects.Time) {
	for range atOnce {
		x := t.rows.Get(t.order.Front())
		if x == nil || x.Over >= now {
			return
		}
		t.forget(x.Class) // The oldest record of all is the oldest of its class.
	}
}

// Say adds a record. If the class has used up its share, the oldest record of the class is dropped; if its time is not
// over, the watermark of the class rises to the time of that record.
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

// Left drops the records of a class that is given to another peer. The former peer may come back in any class that is
// given away. Therefore such a class starts with a watermark that is at least the time of each record that was ever
// dropped in this way. Left walks over the records of the class in a single step, which are at most half of all records
// (table.Share): at the default bounds these are 4,096 records and take 0.15 ms, and a hello message can cause that
// once.
func (t *Words) Left(class int) {
	g := &t.of[class]
	for t.past = max(t.past, g.watermark); g.count > 0; {
		t.past = max(t.past, t.rows.Get(g.first).When)
		t.forget(class)
	}
	g.watermark = t.past
}

// Find returns the record that applies to an attempt of an operation, or nil if there is none. If the operation began
// after the watermark of its class, nil means that the attempt has had no last reply.
func (t *Words) Find(peer effects.Incarnation, operation uint64, attempt uint32) *Said {
	for p := t.index.Seek(table.Hash(operation, peer[:])); p.Found(); p = t.index.Next(p) {
		if x := t.rows.Get(p.Handle()); x.Peer == peer && x.Operation == operation && (x.Done || attempt <= x.Attempt) {
			return x
		}
	}
	return nil
}

// Len returns the number of records.
func (t *Words) Len() int { return t.rows.Len() }

// Watermark returns the time after which an operation of the class must have begun to be read, because the record of an
// earlier operation may have been dropped. Watermark returns Ever if none was dropped early.
func (t *Words) Watermark(class int) effects.Time { return t.of[class].watermark }
