// Package allocqueue implements the allocation queue: the requests of peers that wait at this rank for free pages, and
// the order in which they are served. A request is an allocation request of a sender that pushes, or an offer whose
// chunks this rank wants to read.
//
// A caller may rely on the following:
//
//   - A request keeps the place in the queue until the request is served, refused or given up.
//   - The requests of one fairness class never take the whole table: a class may have no more than remains free for the
//     rest (table.Share).
//   - A request at the head of its class is passed a bounded number of times (rule M9, line.go).
//
// The package knows no messages. A target hands over the bytes of a message with Wait, and decodes the bytes again when
// the request's turn comes.
//
// Example: class 1 asks for 50 pages while 10 are free, and waits. Class 2 asks for 5 pages and is served at once,
// which counts as one pass of class 1's head. After BypassMax passes class 1 collects: from then on only class 1 is
// served, so that enough pages become free at last.
package allocqueue

import (
	"math"
	"slices"
	"strconv"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// Pending is the allocation queue. A row keeps the message itself, which the target decodes again when the turn comes.
// Therefore nothing here depends on a protocol, and a retry changes only the connection and the request to which the
// reply is sent.
//
// Rows and bytes are shared among the classes (table.Share), so that a class that sends requests without end leaves as
// many rows as the class has. The order of service is in line.go.
type Pending struct {
	cfg         Settings `snap:"share"`
	rows        table.Slab[Row]
	byOperation table.Index
	asked       wants         // the keys that the waiting requests would bring
	callers     callers       // the connections on which the requests arrived
	places      table.Share   // shares of the rows
	bodies      table.Share   // shares of the bytes
	queues      []table.List  // requests that wait for pages, by class
	linking     []table.List  // offers that wait for the link to their pages, by class
	own         ownHead       // the oldest reservation of this rank's engine, in a rank with both roles
	turn        int           // the class that has the turn
	losses      kernel.Losses // counts the losses of each class's peer (Lose)
	ways        kernel.Losses // counts the failures of each class's link (LoseWay)
	// dirty reports that a request left a queue, or that a link was established, so that the requests behind may be
	// served (Shifted).
	dirty bool
}

// A Row is a waiting request. This package decides when the request is served, and the target decides how.
type Row struct {
	Owner   kernel.Owner // the target that replies
	Pull    [16]byte     // of an offer: the sender's name for the offer
	Linking bool         // an offer that waits for the link to its pages, and not yet for free pages here
	Request effects.Request
	call
	Class     int
	Who       uint64   // hash of the id of the request that the chunks are for
	What      uint64   // hash of the keys, in order, and of the token count of the last chunk
	Body      []byte   // the message
	wants     []uint64 // hashes of the keys, sorted, each once
	bytes     int      // bytes that count for the class: of the message, and of wants with its index
	Operation uint64
	Peer      effects.Incarnation
	// Keys is the largest number of pages that the request can need. The caller of Wait sets it to the pages of one key
	// (0 means 1); Wait multiplies this number by the number of different keys.
	Keys     uint32
	Lacks    Shortfall      // what was missing when the request was last tried
	Attempt  uint32         // of an offer: the newest attempt that arrived
	bypassed uint32         // how often other classes have passed the request while it was the head
	born     kernel.Birth   // the count of losses when the request arrived
	way      kernel.Birth   // the count of ways when the request began to wait for the link
	timer    kernel.TimerID `snap:"set"`
}

// New returns an empty queue for a number of classes.
func New(cfg Settings, classes int) Pending { return new(Pending).Emptied(cfg, classes) }

// Emptied returns what New returns, and reuses the memory of p. The caller must not use p afterwards.
func (p *Pending) Emptied(cfg Settings, classes int) Pending {
	bodies := int(min(cfg.WaitingBytes, math.MaxInt))
	return Pending{
		cfg: cfg, rows: p.rows.Emptied(int(cfg.WaitersMax)), byOperation: p.byOperation.Emptied(),
		asked: p.asked.emptied(bodies), callers: p.callers.emptied(int(cfg.WaitersMax)),
		places: p.places.Emptied(int(cfg.WaitersMax), classes), bodies: p.bodies.Emptied(bodies, classes),
		queues: table.Zeroed(p.queues, classes), linking: table.Zeroed(p.linking, classes),
		losses: p.losses.Emptied(classes), ways: p.ways.Emptied(classes),
	}
}

// Wait inserts a request into the queue. Wait returns nil, or the reason for a refusal: the share of the class, of the
// rows or of the bytes, is used up. wants has the hashes of the request's keys, in any order. The request expires when
// patience, the deadline budget, is over.
func (p *Pending) Wait(
	v *env.Env, what Row, ev *effects.Received, wants []uint64, patience effects.Duration,
) *effects.Why {
	what.bytes = len(ev.Body) + wantBytes*len(wants)
	if !p.places.May(what.Class) {
		v.Out.Mark(Marks.RequestsFull)
		return TooMany("tables.waiters", int(p.cfg.WaitersMax))
	}
	if what.bytes > p.bodies.Left(what.Class) {
		v.Out.Mark(Marks.RequestsFull)
		return p.tooLong(what.bytes)
	}
	p.places.Take(what.Class)
	p.bodies.Add(what.Class, what.bytes)
	h, q := p.rows.Add()
	what.Request, what.Conn, what.Body = ev.Request, ev.Conn, append(q.Body[:0], ev.Body...)
	what.wants = append(q.wants[:0], wants...)
	slices.Sort(what.wants)
	what.wants = slices.Compact(what.wants) // A key that occurs twice needs one page.
	what.Keys = max(1, what.Keys) * uint32(len(what.wants))
	what.born, what.way = p.losses.Of(what.Class), p.ways.Of(what.Class)
	*q = what
	p.asked.add(q.wants)
	p.callers.join(&p.rows, h, ev.Conn)
	if q.Operation != 0 {
		p.byOperation.Add(table.Hash(q.Operation, q.Peer[:]), h)
	}
	p.rows.PushBack(p.queueOf(q), h)
	v.Timers.Set(&q.timer, v.Now.Add(patience), kernel.Ref{Owner: kernel.OwnerPending, Subject: h})
	v.Out.Mark(Marks.RequestWaits)
	return nil
}

// tooLong returns the reason for a refusal because of the bytes of waiting messages.
func (p *Pending) tooLong(bytes int) *effects.Why {
	return &effects.Why{
		Field:  "tables.waiting_bytes",
		Ours:   strconv.FormatUint(p.cfg.WaitingBytes, 10) + ", of which one peer has no more than it leaves to others,",
		Theirs: strconv.Itoa(p.bodies.All()) + " in use, and " + strconv.Itoa(bytes) + " more",
		Remedy: "retry later, send fewer keys at a time, or raise tables.waiting_bytes of the receiver",
	}
}

// queueOf returns the list that a request is in.
func (p *Pending) queueOf(q *Row) *table.List {
	if q.Linking {
		return &p.linking[q.Class]
	}
	return &p.queues[q.Class]
}

// Lose condemns all waiting requests of a class, because the peer is gone. A sweep removes them.
func (p *Pending) Lose(class int) { p.losses.Add(class) }

// LoseWay condemns the offers of a class that wait for the link to their pages, because the link cannot be established.
func (p *Pending) LoseWay(class int) { p.ways.Add(class) }

// Lost reports whether Lose has condemned a request. No pages are granted for a lost request.
func (p *Pending) Lost(q *Row) bool { return p.losses.Over(q.Class, q.born) }

// Find returns the waiting request of an operation, or zero and nil. A request that is condemned, because the peer or
// the connection is gone, is not found: a retry then counts as a new request.
func (p *Pending) Find(peer effects.Incarnation, operation uint64) (table.Handle, *Row) {
	for at := p.byOperation.Seek(table.Hash(operation, peer[:])); at.Found(); at = p.byOperation.Next(at) {
		if q := p.rows.Get(at.Handle()); q.Peer == peer && q.Operation == operation && !p.Lost(q) && !p.HungUp(q) {
			return at.Handle(), q
		}
	}
	return 0, nil
}

// Again handles a retry: the reply will go to the connection and the request of the retry.
func (p *Pending) Again(h table.Handle, ev *effects.Received, attempt uint32) {
	q := p.rows.Get(h)
	if q.Conn != ev.Conn {
		p.callers.part(&p.rows, h)
		p.callers.join(&p.rows, h, ev.Conn)
	}
	q.Request, q.Conn, q.Attempt = ev.Request, ev.Conn, max(q.Attempt, attempt)
}

// Remove takes a request out of the queue, because it was answered or because nobody is left to receive the reply.
func (p *Pending) Remove(v *env.Env, h table.Handle) {
	p.dirty = true
	q := p.rows.Get(h)
	v.Timers.Stop(&q.timer)
	if q.Operation != 0 {
		p.byOperation.Remove(table.Hash(q.Operation, q.Peer[:]), h)
	}
	p.places.Give(q.Class)
	p.bodies.Add(q.Class, -q.bytes)
	p.rows.Unlink(p.queueOf(q), h)
	p.asked.drop(q.wants)
	p.callers.part(&p.rows, h)
	q.Body, q.wants = table.ShedBytes(q.Body), table.Shed(q.wants)
	p.rows.Remove(h)
}

// Due returns a request after its deadline has passed.
func (p *Pending) Due(v *env.Env, h table.Handle) *Row {
	q := p.rows.Get(h)
	q.timer = 0
	v.Out.Mark(Marks.RequestExpired)
	return q
}

// Get returns a waiting request.
func (p *Pending) Get(h table.Handle) *Row { return p.rows.Get(h) }

// At returns the request at a slot, or zero and nil, for sweeps in the order of the slots. A sweep may remove the
// request.
func (p *Pending) At(slot int32) (table.Handle, *Row) {
	h := p.rows.At(slot)
	return h, p.rows.Get(h)
}

// Slots returns the end of the range of slots for At.
func (p *Pending) Slots() int32 { return p.rows.Slots() }

// First returns the request of a class that is answered first when all are refused, or zero if none waits.
func (p *Pending) First(class int) table.Handle {
	if h := p.queues[class].Front(); h != 0 {
		return h
	}
	return p.linking[class].Front()
}

// FirstLinking returns the first offer of a class that waits for the link and is condemned by LoseWay, or zero. Offers
// that began to wait after LoseWay are behind the condemned ones.
func (p *Pending) FirstLinking(class int) table.Handle {
	h := p.linking[class].Front()
	if q := p.rows.Get(h); q == nil || !p.ways.Over(class, q.way) {
		return 0
	}
	return h
}

// Asked reports whether a waiting request has a chunk with this hash.
func (p *Pending) Asked(hash uint64) bool { return p.asked.byHash.Seek(hash).Found() }

// Len returns the number of waiting requests.
func (p *Pending) Len() int { return p.rows.Len() }

// Operations returns the number of waiting requests that have an operation number, by which a retry is recognized.
func (p *Pending) Operations() int { return p.byOperation.Len() }

// Of returns the number of rows that a class uses.
func (p *Pending) Of(class int) int { return p.places.Of(class) }

// BytesOf returns the number of bytes that are kept for the waiting requests of a class.
func (p *Pending) BytesOf(class int) int { return p.bodies.Of(class) }

// Counted returns the number of rows that are counted for all classes together.
func (p *Pending) Counted() int { return p.places.All() }

// Classes returns the number of classes.
func (p *Pending) Classes() int { return len(p.queues) }
