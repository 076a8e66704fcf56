package receiver

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// Pending are the requests that wait here for pages: allocations of who pushes, offers that are read as they come. A
// request keeps the message itself, which its target decodes again when its turn comes: so nothing here knows a
// protocol, and a retry changes no more than whom to answer.
//
// Places and bytes are shared out between classes (table.Share): who asks without end leaves as much as it has. In
// which order they go on is in line.go.
type pending struct {
	cfg         pendingConfig `snap:"share"`
	rows        table.Slab[pendingRequest]
	byOperation table.Index
	places      table.Share  // of rows
	bodies      table.Share  // of their bytes
	queues      []table.List // who waits for pages, by class
	linking     []table.List // offers that wait for the link to theirs, by class
	turn        int          // the class whose turn it is
	dirty       bool         // somebody left a queue, or may have to: who was behind may go on
}

type pendingConfig struct {
	places, bytes int
	bypassMax     uint32 // how often a head is passed before pages are kept together for it
}

// A pendingRequest is one that waits. When and whom it is served with is decided here, how by its target.
type pendingRequest struct {
	offer     bool
	pull      [16]byte // of an offer: what its sender calls it
	linking   bool     // an offer that waits for the link to its pages, not yet for ours
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
	keys      uint32    // pages that it needs at the most
	lacks     shortfall // why it was not served when it was tried last
	attempt   uint32    // of an offer: the last one that came
	bypassed  uint32
	timer     kernel.TimerID `snap:"set"`
}

// wantBytes are kept of each key of what waits, beside the message.
const wantBytes = 8

func newPending(cfg pendingConfig, classes int) pending {
	return pending{
		cfg: cfg, rows: table.NewSlab[pendingRequest](cfg.places),
		places: table.NewShare(cfg.places, classes), bodies: table.NewShare(cfg.bytes, classes),
		queues: make([]table.List, classes), linking: make([]table.List, classes),
	}
}

// wait keeps a request until its turn comes, or says of what its class has its share: places, or bytes of messages.
// wants are the hashes of its keys, in any order.
func (p *pending) wait(
	v *env.Env, what pendingRequest, ev *effects.Received, wants []uint64, patience effects.Duration,
) *effects.Why {
	what.bytes = len(ev.Body) + wantBytes*len(wants)
	if !p.places.May(what.class) {
		v.Out.Mark(MarkAsksFull)
		return tooMany("tables.waiters", p.cfg.places)
	}
	if what.bytes > p.bodies.Left(what.class) {
		v.Out.Mark(MarkAsksFull)
		return p.tooLong(what.bytes)
	}
	p.places.Take(what.class)
	p.bodies.Add(what.class, what.bytes)
	h, q := p.rows.Add()
	what.request, what.conn, what.body = ev.Request, ev.Conn, append(q.body[:0], ev.Body...)
	what.wants = append(q.wants[:0], wants...)
	slices.Sort(what.wants)
	*q = what
	if q.operation != 0 {
		p.byOperation.Add(operationHash(q.peer, q.operation), h)
	}
	p.rows.PushBack(p.queueOf(q), h)
	v.Timers.Set(&q.timer, v.Now.Add(patience), timerRef(timerAsk, h))
	v.Out.Mark(MarkAskWaits)
	return nil
}

// tooLong says that messages that wait have all the bytes that they may have for one peer.
func (p *pending) tooLong(bytes int) *effects.Why {
	return &effects.Why{
		Field:  "tables.waiting_bytes",
		Ours:   number(p.cfg.bytes) + ", of which one peer has no more than it leaves to others,",
		Theirs: number(p.bodies.All()) + " in use, and " + number(bytes) + " more",
		Remedy: "retry later, send fewer keys at a time, or raise tables.waiting_bytes of the receiver",
	}
}

func (p *pending) queueOf(q *pendingRequest) *table.List {
	if q.linking {
		return &p.linking[q.class]
	}
	return &p.queues[q.class]
}

// find is the request of an operation; nil if it does not wait.
func (p *pending) find(peer effects.Incarnation, operation uint64) *pendingRequest {
	for at := p.byOperation.Seek(operationHash(peer, operation)); at.Found(); at = p.byOperation.Next(at) {
		if q := p.rows.Get(at.Handle()); q.peer == peer && q.operation == operation {
			return q
		}
	}
	return nil
}

// again notes a retry: whoever asks now gets the answer, when there is one.
func (q *pendingRequest) again(ev *effects.Received, attempt uint32) {
	q.request, q.conn, q.attempt = ev.Request, ev.Conn, max(q.attempt, attempt)
}

// remove takes out a request that was answered, or that nobody is left to answer.
func (p *pending) remove(v *env.Env, h table.Handle) {
	p.dirty = true
	q := p.rows.Get(h)
	v.Timers.Stop(&q.timer)
	if q.operation != 0 {
		p.byOperation.Remove(operationHash(q.peer, q.operation), h)
	}
	p.places.Give(q.class)
	p.bodies.Add(q.class, -q.bytes)
	p.rows.Unlink(p.queueOf(q), h)
	q.body, q.wants = table.ShedBytes(q.body), table.Shed(q.wants)
	p.rows.Remove(h)
}

func (p *pending) get(h table.Handle) *pendingRequest { return p.rows.Get(h) }

// at is what waits at a slot, for sweeps in their order; nil if nothing does. Whoever sweeps may remove it.
func (p *pending) at(slot int32) (table.Handle, *pendingRequest) {
	h := p.rows.At(slot)
	return h, p.rows.Get(h)
}

func (p *pending) slots() int32 { return p.rows.Slots() }

// first is whoever of a class is to be answered first where all are refused; zero if nobody waits.
func (p *pending) first(class int) table.Handle {
	if h := p.queues[class].Front(); h != 0 {
		return h
	}
	return p.linking[class].Front()
}

// firstLinking is the first of a class that waits for the link; zero if none does.
func (p *pending) firstLinking(class int) table.Handle { return p.linking[class].Front() }

// asked says whether a request that waits has a chunk with this hash.
func (p *pending) asked(hash uint64) bool {
	for slot := range p.rows.Slots() {
		if _, q := p.at(slot); q != nil {
			if _, has := slices.BinarySearch(q.wants, hash); has {
				return true
			}
		}
	}
	return false
}

// Counts, of what is in the tables and of what classes are counted to have.

func (p *pending) len() int         { return p.rows.Len() }
func (p *pending) operations() int  { return p.byOperation.Len() }
func (p *pending) of(class int) int { return p.places.Of(class) }
func (p *pending) counted() int     { return p.places.All() }
func (p *pending) classes() int     { return len(p.queues) }
