// Package allocqueue implements the allocation queue: the requests of peers that wait at this rank for free pages, and
// the order in which they are served. A request is an allocation request of a sender that pushes, or an offer whose
// chunks this rank wants to read.
//
// A caller may rely on the following:
//
//   - A request keeps the place in the queue until the request is served, refused or given up.
//   - The requests of one fairness class never take the whole table: a class may have no more than remains free for the
//     rest (table.Share).
//   - A request at the head of its class is passed a bounded number of times, by other origins and by other classes of
//     its origin (rule M9, turns.go).
//
// The package knows no messages. A target hands over the bytes of a message with Enqueue, and decodes the bytes again
// when the request's turn comes.
//
// Example: class 1 asks for 50 pages while 10 are free, and waits. Class 2 asks for 5 pages and is served at once,
// which counts as one pass of class 1's head. After BypassMax passes pages are collected for class 1: from then on only
// class 1 is served, so that enough pages become free at last. If both classes have the same origin, other origins are
// served all the same.
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

// Queue is the allocation queue. A row keeps the message itself, which the target decodes again when the turn comes.
// Therefore nothing here depends on a protocol, and a retry changes only the connection and the request to which the
// reply is sent.
//
// Rows and bytes are shared among the classes (table.Share), so that a class that sends requests without end leaves as
// many rows as the class has. The order of service is in order.go and turns.go.
type Queue struct {
	cfg           Settings `snap:"share"`
	rows          table.Slab[Row]
	byOperation   table.Index
	wantedKeys    keyCounts     // the keys that the waiting requests would bring
	conns         connTable     // the connections on which the requests arrived
	rowShares     table.Share   // shares of the rows
	byteShares    table.Share   // shares of the bytes
	queues        []table.List  // requests that wait for pages, by class
	linking       []table.List  // offers that wait for the link to their pages, by class
	engineHead    engineHead    // the oldest reservation of this rank's engine, in a rank with both roles
	turns         turns         // the origin and the classes that have the turn
	losses        kernel.Losses // counts the losses of each class's peer (CondemnClass)
	linkLosses    kernel.Losses // counts the failures of each class's link (CondemnLinking)
	heldBackCount int           // the number of requests that are held back
	// moved reports that a request left a queue, that a link was established, or that another tenant waits, so that the
	// requests behind may be served (PollMoved).
	moved         bool
	heads, inTurn []Head `snap:"scratch"`
}

// A Row is a waiting request. This package decides when the request is served, and the target decides how.
type Row struct {
	Owner      kernel.Owner // the target that replies
	OfferID    [16]byte     // of an offer: the sender's name for the offer
	AwaitsLink bool         // an offer that waits for the link to its pages, and not yet for free pages here
	Request    effects.Request
	connLink
	Class        int
	Tenant       effects.Tenant // the tenant of the keys
	tenantRow    table.Handle   // counts the request as one that waits (Pool.AddTenantWaiter)
	heldBack     bool           // only the share of the tenant keeps the request from pages (order.go)
	RequestHash  uint64         // hash of the id of the request that the chunks are for
	ContentHash  uint64         // hash of the keys, in order, and of the token count of the last chunk
	Body         []byte         // the message
	keyHashes    []uint64       // hashes of the keys, sorted, each once
	countedBytes int            // bytes that count for the class: of the message, and of the key hashes with their index
	Operation    uint64
	Peer         effects.Incarnation
	// PagesMax is the largest number of pages that the request can need. The caller of Enqueue sets it to the pages of
	// one key (0 means 1); Enqueue multiplies this number by the number of different keys.
	PagesMax      uint32
	Shortfall     Shortfall        // what was missing when the request was last tried
	Attempt       uint32           // of an offer: the newest attempt that arrived
	passes        passCounts       // how often other classes have passed the request while it was the head
	lossCount     kernel.LossCount // the count of losses when the request arrived
	linkLossCount kernel.LossCount // the count of ways when the request began to wait for the link
	timer         kernel.TimerID   `snap:"set"`
	// ArrivedAt is when the request arrived first. It is for reports; nothing is decided by it.
	ArrivedAt effects.Time `snap:"skip"`
}

// New returns an empty queue for a number of classes.
func New(cfg Settings, classes int) Queue { return new(Queue).Recycle(cfg, classes) }

// Recycle returns what New returns, and reuses the memory of p. The caller must not use p afterwards.
func (p *Queue) Recycle(cfg Settings, classes int) Queue {
	bodies := int(min(cfg.WaitingBytes, math.MaxInt))
	return Queue{
		cfg: cfg, rows: p.rows.Recycle(int(cfg.WaitersMax)), byOperation: p.byOperation.Recycle(),
		wantedKeys: p.wantedKeys.recycle(bodies), conns: p.conns.recycle(int(cfg.WaitersMax)),
		rowShares: p.rowShares.Recycle(int(cfg.WaitersMax), classes), byteShares: p.byteShares.Recycle(bodies, classes),
		queues: table.RecycleSlice(p.queues, classes), linking: table.RecycleSlice(p.linking, classes),
		turns: p.turns.recycle(classes), heads: p.heads[:0], inTurn: p.inTurn[:0],
		losses: p.losses.Recycle(classes), linkLosses: p.linkLosses.Recycle(classes),
	}
}

// Enqueue inserts a request into the queue. Enqueue returns nil, or the reason for a refusal: the share of the class,
// of the rows or of the bytes, is used up. keyHashes has the hashes of the request's keys, in any order. The request
// expires when timeout, the deadline budget, is over.
func (p *Queue) Enqueue(
	v *env.Env, row Row, ev *effects.Received, keyHashes []uint64, timeout effects.Duration,
) *effects.Why {
	if row.AwaitsLink && !p.WaitsForLink(row.Class) {
		panic("BUG: an offer waits for the link ahead of earlier requests of its class")
	}
	row.countedBytes = len(ev.Body) + keyCountBytes*len(keyHashes)
	if !p.rowShares.HasRoom(row.Class) {
		v.Out.Mark(Marks.RequestsFull)
		return ShareFullReason("tables.waiters", int(p.cfg.WaitersMax))
	}
	if row.countedBytes > p.byteShares.FreePlaces(row.Class) {
		v.Out.Mark(Marks.RequestsFull)
		return p.bytesFullReason(row.countedBytes)
	}
	p.rowShares.Acquire(row.Class)
	p.byteShares.Add(row.Class, row.countedBytes)
	h, q := p.rows.Add()
	row.Request, row.Conn, row.Body, row.ArrivedAt = ev.Request, ev.Conn, append(q.Body[:0], ev.Body...), v.Now
	row.keyHashes = append(q.keyHashes[:0], keyHashes...)
	slices.Sort(row.keyHashes)
	row.keyHashes = slices.Compact(row.keyHashes) // A key that occurs twice needs one page.
	row.PagesMax = max(1, row.PagesMax) * uint32(len(row.keyHashes))
	row.lossCount, row.linkLossCount = p.losses.CountFor(row.Class), p.linkLosses.CountFor(row.Class)
	*q = row
	if q.tenantRow = v.Pool.AddTenantWaiter(q.Tenant); q.tenantRow != 0 {
		p.moved = true // From now on the shares of other tenants may hold back the requests before it.
	}
	p.wantedKeys.addKeys(q.keyHashes)
	p.conns.addRow(&p.rows, h, ev.Conn)
	if q.Operation != 0 {
		p.byOperation.Add(table.Hash(q.Operation, q.Peer[:]), h)
	}
	p.rows.PushBack(p.listOf(q), h)
	v.Timers.Set(&q.timer, v.Now.Add(timeout), kernel.Ref{Owner: kernel.OwnerAllocQueue, Subject: h})
	v.Out.Mark(Marks.RequestWaits)
	return nil
}

// bytesFullReason returns the reason for a refusal because of the bytes of waiting messages.
func (p *Queue) bytesFullReason(bytes int) *effects.Why {
	return &effects.Why{
		Field:  "tables.waiting_bytes",
		Ours:   strconv.FormatUint(p.cfg.WaitingBytes, 10) + ", of which one peer has no more than it leaves to others,",
		Theirs: strconv.Itoa(p.byteShares.Total()) + " in use, and " + strconv.Itoa(bytes) + " more",
		Remedy: "retry later, send fewer keys at a time, or raise tables.waiting_bytes of the receiver",
	}
}

// listOf returns the list that a request is in.
func (p *Queue) listOf(q *Row) *table.List {
	if q.AwaitsLink {
		return &p.linking[q.Class]
	}
	return &p.queues[q.Class]
}

// CondemnClass condemns all waiting requests of a class, because the peer is gone. A sweep removes them.
func (p *Queue) CondemnClass(class int) { p.losses.CondemnRows(class) }

// CondemnLinking condemns the offers of a class that wait for the link to their pages, because the link cannot be
// established.
func (p *Queue) CondemnLinking(class int) { p.linkLosses.CondemnRows(class) }

// IsCondemned reports whether CondemnClass has condemned a request. No pages are granted for a lost request.
func (p *Queue) IsCondemned(q *Row) bool { return p.losses.IsCondemned(q.Class, q.lossCount) }

// FindOperation returns the waiting request of an operation, or zero and nil. A request that is condemned, because the
// peer or the connection is gone, is not found: a retry then counts as a new request.
func (p *Queue) FindOperation(peer effects.Incarnation, operation uint64) (table.Handle, *Row) {
	for at := p.byOperation.Find(table.Hash(operation, peer[:])); at.Found(); at = p.byOperation.Next(at) {
		if q := p.rows.Get(at.Handle()); q.Peer == peer && q.Operation == operation && !p.IsCondemned(q) && !p.IsConnLost(q) {
			return at.Handle(), q
		}
	}
	return 0, nil
}

// AcceptRetry handles a retry: the reply will go to the connection and the request of the retry.
func (p *Queue) AcceptRetry(h table.Handle, ev *effects.Received, attempt uint32) {
	q := p.rows.Get(h)
	if q.Conn != ev.Conn {
		p.conns.removeRow(&p.rows, h)
		p.conns.addRow(&p.rows, h, ev.Conn)
	}
	q.Request, q.Conn, q.Attempt = ev.Request, ev.Conn, max(q.Attempt, attempt)
}

// Remove takes a request out of the queue, because it was answered or because nobody is left to receive the reply.
func (p *Queue) Remove(v *env.Env, h table.Handle) {
	p.moved = true
	q := p.rows.Get(h)
	v.Timers.Stop(&q.timer)
	if q.Operation != 0 {
		p.byOperation.Remove(table.Hash(q.Operation, q.Peer[:]), h)
	}
	p.rowShares.Release(q.Class)
	p.byteShares.Add(q.Class, -q.countedBytes)
	p.rows.Unlink(p.listOf(q), h)
	p.wantedKeys.dropKeys(q.keyHashes)
	p.setHeldBack(q, false)
	v.Pool.DropTenantWaiter(q.tenantRow)
	p.conns.removeRow(&p.rows, h)
	q.Body, q.keyHashes = table.TrimBytes(q.Body), table.TrimSlice(q.keyHashes)
	p.rows.Remove(h)
}

// OnTimer returns a request after its deadline has passed.
func (p *Queue) OnTimer(v *env.Env, h table.Handle) *Row {
	q := p.rows.Get(h)
	q.timer = 0
	v.Out.Mark(Marks.RequestExpired)
	return q
}

// Get returns a waiting request.
func (p *Queue) Get(h table.Handle) *Row { return p.rows.Get(h) }

// At returns the request at a slot, or zero and nil, for sweeps in the order of the slots. A sweep may remove the
// request.
func (p *Queue) At(slot int32) (table.Handle, *Row) {
	h := p.rows.At(slot)
	return h, p.rows.Get(h)
}

// Slots returns the end of the range of slots for At.
func (p *Queue) Slots() int32 { return p.rows.Slots() }

// EachWaiting calls visit with every request that waits, in the order of the slots.
func (p *Queue) EachWaiting(visit func(*Row)) {
	for slot := range p.rows.Slots() {
		if h := p.rows.At(slot); h != 0 {
			visit(p.rows.Get(h))
		}
	}
}

// Timer returns the deadline of the request.
func (q *Row) Timer() kernel.TimerID { return q.timer }

// FirstOf returns the request of a class that is answered first when all are refused, or zero if none waits.
func (p *Queue) FirstOf(class int) table.Handle {
	if h := p.queues[class].Front(); h != 0 {
		return h
	}
	return p.linking[class].Front()
}

// FirstUnlinkable returns the first offer of a class that waits for the link and is condemned by CondemnLinking, or
// zero. Offers that began to wait after CondemnLinking are behind the condemned ones.
func (p *Queue) FirstUnlinkable(class int) table.Handle {
	h := p.linking[class].Front()
	if q := p.rows.Get(h); q == nil || !p.linkLosses.IsCondemned(class, q.linkLossCount) {
		return 0
	}
	return h
}

// HasKey reports whether a waiting request has a chunk with this hash.
func (p *Queue) HasKey(hash uint64) bool { return p.wantedKeys.byHash.Find(hash).Found() }

// Len returns the number of waiting requests.
func (p *Queue) Len() int { return p.rows.Len() }

// CountOperations returns the number of waiting requests that have an operation number, by which a retry is recognized.
func (p *Queue) CountOperations() int { return p.byOperation.Len() }

// RowsOf returns the number of rows that a class uses.
func (p *Queue) RowsOf(class int) int { return p.rowShares.CountOf(class) }

// BytesOf returns the number of bytes that are kept for the waiting requests of a class.
func (p *Queue) BytesOf(class int) int { return p.byteShares.CountOf(class) }

// Classes returns the number of classes.
func (p *Queue) Classes() int { return len(p.queues) }

// RecountShares counts the rows and the bytes of each class again.
func (p *Queue) RecountShares(r *table.Recount) {
	table.RecountRows(r, "pending requests", &p.rowShares, &p.rows, table.Empty, func(q *Row) (class, n int) { return q.Class, 1 })
	table.RecountRows(r, "bytes of pending requests", &p.byteShares, &p.rows, table.Empty, func(q *Row) (class, n int) {
		return q.Class, q.countedBytes
	})
}
