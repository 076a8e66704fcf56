// Package allocqueue has the requests of peers that wait here for pages, and says whose turn it is. It may be relied on
// for this: who waits keeps its place until it is served, refused or given up; nobody's requests take the places of
// another's (table.Share); and a head that is passed is passed a bounded number of times (rule M9). It knows no
// message: a target hands it bytes, and gets them back when their turn comes.
package allocqueue

import (
	"slices"
	"strconv"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// Pending are those that wait. A request keeps the message itself, which its target decodes again when its turn comes:
// so nothing here knows a protocol, and a retry changes no more than whom to answer.
//
// Places and bytes are shared out between classes (table.Share): who asks without end leaves as much as it has. In
// which order they go on is in line.go.
type Pending struct {
	cfg         Config `snap:"share"`
	rows        table.Slab[Row]
	byOperation table.Index
	asked       wants
	callers     callers
	places      table.Share  // of rows
	bodies      table.Share  // of their bytes
	queues      []table.List // who waits for pages, by class
	linking     []table.List // offers that wait for the link to theirs, by class
	own         ownHead      // of our engine's line, in a rank of both sides
	turn        int          // the class whose turn it is
	losses      kernel.Losses
	ways        kernel.Losses
	dirty       bool // somebody left a queue, or may have to: who was behind may go on
}

// Config bounds what waits.
type Config struct {
	Places, Bytes int    // requests, and bytes of what is kept of them
	BypassMax     uint32 // how often a head is passed before pages are kept together for it
}

// A Row is one that waits. When and whom it is served with is decided here, how by its target.
type Row struct {
	Owner   kernel.Owner // the target that answers it
	Pull    [16]byte     // of an offer: what its sender calls it
	Linking bool         // an offer that waits for the link to its pages, not yet for ours
	Request effects.Request
	call
	Class     int
	Who       uint64 // hash of the id of the request that it is for
	What      uint64 // hash of its keys, in order, and of its last tokens
	Body      []byte
	wants     []uint64 // hashes of its keys
	bytes     int      // of both, and of finding it by those
	Operation uint64
	Peer      effects.Incarnation
	Keys      uint32    // pages that it needs at the most: given, of one key (0: one); Wait counts keys that differ
	Lacks     Shortfall // why it was not served when it was tried last
	Attempt   uint32    // of an offer: the last one that came
	bypassed  uint32
	born      kernel.Birth   // as losses
	way       kernel.Birth   // as ways
	timer     kernel.TimerID `snap:"set"`
}

// New returns an empty table, for so many classes.
func New(cfg Config, classes int) Pending { return new(Pending).Emptied(cfg, classes) }

// Emptied returns what New does, in the memory of p, which is not used any more.
func (p *Pending) Emptied(cfg Config, classes int) Pending {
	return Pending{
		cfg: cfg, rows: p.rows.Emptied(cfg.Places), byOperation: p.byOperation.Emptied(),
		asked: p.asked.emptied(cfg.Bytes), callers: p.callers.emptied(cfg.Places),
		places: p.places.Emptied(cfg.Places, classes), bodies: p.bodies.Emptied(cfg.Bytes, classes),
		queues: table.Zeroed(p.queues, classes), linking: table.Zeroed(p.linking, classes),
		losses: p.losses.Emptied(classes), ways: p.ways.Emptied(classes),
	}
}

// Wait keeps a request until its turn comes, or says of what its class has its share: places, or bytes of messages.
// wants are the hashes of its keys, in any order.
func (p *Pending) Wait(
	v *env.Env, what Row, ev *effects.Received, wants []uint64, patience effects.Duration,
) *effects.Why {
	what.bytes = len(ev.Body) + wantBytes*len(wants)
	if !p.places.May(what.Class) {
		v.Out.Mark(Marks.RequestsFull)
		return TooMany("tables.waiters", p.cfg.Places)
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
	what.wants = slices.Compact(what.wants) // A key that stands twice needs one page.
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

// tooLong says that messages that wait have all the bytes that they may have for one peer.
func (p *Pending) tooLong(bytes int) *effects.Why {
	return &effects.Why{
		Field:  "tables.waiting_bytes",
		Ours:   strconv.Itoa(p.cfg.Bytes) + ", of which one peer has no more than it leaves to others,",
		Theirs: strconv.Itoa(p.bodies.All()) + " in use, and " + strconv.Itoa(bytes) + " more",
		Remedy: "retry later, send fewer keys at a time, or raise tables.waiting_bytes of the receiver",
	}
}

func (p *Pending) queueOf(q *Row) *table.List {
	if q.Linking {
		return &p.linking[q.Class]
	}
	return &p.queues[q.Class]
}

// Lose condemns what waits of a class: its peer is gone.
func (p *Pending) Lose(class int) { p.losses.Add(class) }

// LoseWay condemns those of a class that wait for the link to their pages: it cannot be had.
func (p *Pending) LoseWay(class int) { p.ways.Add(class) }

// Lost says that a request is condemned: nobody is served with it.
func (p *Pending) Lost(q *Row) bool { return p.losses.Over(q.Class, q.born) }

// Find is the request of an operation; zero if it does not wait, or is condemned, be it by the end of its connection:
// who asks again asks anew.
func (p *Pending) Find(peer effects.Incarnation, operation uint64) (table.Handle, *Row) {
	for at := p.byOperation.Seek(table.Hash(operation, peer[:])); at.Found(); at = p.byOperation.Next(at) {
		if q := p.rows.Get(at.Handle()); q.Peer == peer && q.Operation == operation && !p.Lost(q) && !p.HungUp(q) {
			return at.Handle(), q
		}
	}
	return 0, nil
}

// Again notes a retry: whoever asks now gets the answer, when there is one.
func (p *Pending) Again(h table.Handle, ev *effects.Received, attempt uint32) {
	q := p.rows.Get(h)
	if q.Conn != ev.Conn {
		p.callers.part(&p.rows, h)
		p.callers.join(&p.rows, h, ev.Conn)
	}
	q.Request, q.Conn, q.Attempt = ev.Request, ev.Conn, max(q.Attempt, attempt)
}

// Remove takes out a request that was answered, or that nobody is left to answer.
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

// Due is the request at whose deadline nothing came that it waits for.
func (p *Pending) Due(v *env.Env, h table.Handle) *Row {
	q := p.rows.Get(h)
	q.timer = 0
	v.Out.Mark(Marks.RequestExpired)
	return q
}

// Get is a request that waits.
func (p *Pending) Get(h table.Handle) *Row { return p.rows.Get(h) }

// At is what waits at a slot, for sweeps in their order; nil if nothing does. Whoever sweeps may remove it.
func (p *Pending) At(slot int32) (table.Handle, *Row) {
	h := p.rows.At(slot)
	return h, p.rows.Get(h)
}

// Slots is the range for At.
func (p *Pending) Slots() int32 { return p.rows.Slots() }

// First is whoever of a class is to be answered first where all are refused; zero if nobody waits.
func (p *Pending) First(class int) table.Handle {
	if h := p.queues[class].Front(); h != 0 {
		return h
	}
	return p.linking[class].Front()
}

// FirstLinking is the first of a class that waits for the link, and is condemned for that; zero if none is. Who came
// since is behind those.
func (p *Pending) FirstLinking(class int) table.Handle {
	h := p.linking[class].Front()
	if q := p.rows.Get(h); q == nil || !p.ways.Over(class, q.way) {
		return 0
	}
	return h
}

// Asked says whether a request that waits has a chunk with this hash.
func (p *Pending) Asked(hash uint64) bool { return p.asked.byHash.Seek(hash).Found() }

// Len is how many wait.
func (p *Pending) Len() int { return p.rows.Len() }

// Operations is how many of them have a number by which a retry is known.
func (p *Pending) Operations() int { return p.byOperation.Len() }

// Of is how many places a class has.
func (p *Pending) Of(class int) int { return p.places.Of(class) }

// BytesOf is how many bytes are kept of what waits of a class.
func (p *Pending) BytesOf(class int) int { return p.bodies.Of(class) }

// Counted is how many places all classes together are counted to have.
func (p *Pending) Counted() int { return p.places.All() }

// Classes is how many there are.
func (p *Pending) Classes() int { return len(p.queues) }
