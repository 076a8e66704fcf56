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
//  1. The reader sends the done message for operation 5 and calls Records.Add. The sender gets its pages back and stores
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

// Record is the replay record of an operation: for an offer, that a done message or a refusal was sent; for a grant,
// that the commit was accepted. With that reply the sender has its pages back. On leased planes only this rank itself
// can then prevent a read of the pages (rule M2), and a copy of the offer may still arrive: a retry crosses with the
// done message, or a message that was sent on a closed connection arrives after a message on the next connection.
type Record struct {
	Class     int
	next      table.Handle // the next record of the class
	Peer      effects.Incarnation
	Operation uint64
	// Attempt is, for a refusal, the attempt that was refused. The record does not apply to later attempts: a sender
	// that tries again has not received the refusal.
	Attempt     uint32
	AllAttempts bool   // the record applies to every attempt
	ContentHash uint64 // hash of the operation's content, for callers that compare it; else 0
	Code        effects.Code
	SentAt      effects.Time // when the reply was sent
	// Expires is the end of the record's time. Afterwards the record is not needed, because the time of the operation
	// itself forbids to read its pages.
	Expires effects.Time
}

// Records is the bounded table of replay records.
//
// Each class has room for a record of its own, whatever is in the table. Beyond that a class may not use more of the
// shared room than the class leaves free (table.Share); the shared room holds as many records as there may be
// operations at a time. A class that has used up its share drops its own oldest record and raises its watermark: an
// operation of the class that may have begun before the time of that record is not read any more. So a peer's
// operations, however many end, never push out the records of another peer.
type Records struct {
	rows    table.Slab[Record]
	index   table.Index
	order   table.List // all records, oldest first
	share   table.Share
	byClass []classRecords // by class
	// droppedWatermark is at least the time of each record, and each watermark, that a class lost when it was given to
	// another peer (DropClass).
	droppedWatermark effects.Time
}

// classRecords are the records of one class, oldest first, and the watermark of the class.
type classRecords struct {
	first, last table.Handle
	count       int
	// watermark is the time of the newest record that was dropped early. Invariant (M2): on leased planes no operation
	// of the class is read that may have begun at or before this time.
	watermark effects.Time
}

// MinTime is before every instant.
const MinTime = effects.Time(-1 << 63)

// New returns an empty table for most records, and a further record for each class.
func New(limit, classes int) Records { return new(Records).Recycle(limit, classes) }

// Recycle is New in the memory of t. The caller must not use t afterwards.
func (t *Records) Recycle(limit, classes int) Records {
	e := Records{
		rows: t.rows.Recycle(limit + classes), index: t.index.Recycle(), share: t.share.Recycle(limit, classes),
		byClass: table.RecycleSlice(t.byClass, classes), droppedWatermark: MinTime,
	}
	for class := range e.byClass {
		e.byClass[class].watermark = MinTime
	}
	return e
}

// dropOldest removes the oldest record of a class.
func (t *Records) dropOldest(class int) {
	records := &t.byClass[class]
	h := records.first
	x := t.rows.Get(h)
	records.first = x.next
	if records.count--; records.count > 0 {
		t.share.Release(class)
	}
	t.index.Remove(table.Hash(x.Operation, x.Peer[:]), h)
	t.rows.Unlink(&t.order, h)
	t.rows.Remove(h)
}

// expirePerAdd is the number of expired records that are removed when a record is added. Because more records are
// removed than added, expired records soon disappear.
const expirePerAdd = 4

// expireOldest removes up to expirePerAdd records whose time is over. To keep a record for longer would be just as
// safe.
func (t *Records) expireOldest(now effects.Time) {
	for range expirePerAdd {
		x := t.rows.Get(t.order.Front())
		if x == nil || x.Expires >= now {
			return
		}
		t.dropOldest(x.Class) // The oldest record of all is the oldest of its class.
	}
}

// Add adds a record. If the class has used up its share, the oldest record of the class is dropped; if its time is not
// over, the watermark of the class rises to the time of that record.
func (t *Records) Add(x Record) {
	t.expireOldest(x.SentAt)
	records := &t.byClass[x.Class]
	if records.count > 0 && !t.share.HasRoom(x.Class) {
		if first := t.rows.Get(records.first); first.Expires >= x.SentAt {
			records.watermark = max(records.watermark, first.SentAt)
		}
		t.dropOldest(x.Class)
	}
	if records.count++; records.count > 1 {
		t.share.Acquire(x.Class)
	}
	h, slot := t.rows.Add()
	*slot = x
	if records.count == 1 {
		records.first = h
	} else {
		t.rows.Get(records.last).next = h
	}
	records.last = h
	t.index.Add(table.Hash(x.Operation, x.Peer[:]), h)
	t.rows.PushBack(&t.order, h)
}

// DropClass drops the records of a class that is given to another peer. The former peer may come back in any class that
// is given away. Therefore such a class starts with a watermark that is at least the time of each record that was ever
// dropped in this way. DropClass walks over the records of the class in a single step, which are at most half of all
// records (table.Share): at the default bounds these are 4,096 records and take 0.15 ms, and a hello message can cause
// that once.
func (t *Records) DropClass(class int) {
	records := &t.byClass[class]
	for t.droppedWatermark = max(t.droppedWatermark, records.watermark); records.count > 0; {
		t.droppedWatermark = max(t.droppedWatermark, t.rows.Get(records.first).SentAt)
		t.dropOldest(class)
	}
	records.watermark = t.droppedWatermark
}

// Find returns the record that applies to an attempt of an operation, or nil if there is none. If the operation began
// after the watermark of its class, nil means that the attempt has had no last reply.
func (t *Records) Find(peer effects.Incarnation, operation uint64, attempt uint32) *Record {
	for p := t.index.Find(table.Hash(operation, peer[:])); p.Found(); p = t.index.Next(p) {
		if x := t.rows.Get(p.Handle()); x.Peer == peer && x.Operation == operation && (x.AllAttempts || attempt <= x.Attempt) {
			return x
		}
	}
	return nil
}

// Len returns the number of records.
func (t *Records) Len() int { return t.rows.Len() }

// Watermark returns the time after which an operation of the class must have begun to be read, because the record of an
// earlier operation may have been dropped. Watermark returns MinTime if none was dropped early.
func (t *Records) Watermark(class int) effects.Time { return t.byClass[class].watermark }

// RecountShares counts the records of each class again. The first record of a class is not part of the share.
func (t *Records) RecountShares(r *table.Recount, name string) {
	for slot := range t.rows.Slots() {
		if x := t.rows.Get(t.rows.At(slot)); x != nil {
			r.Add(x.Class, 1)
		}
	}
	r.Report(name, len(t.byClass), func(class int) int {
		return t.share.CountOf(class) + min(t.byClass[class].count, 1)
	}, table.Bounded)
}
