package receiver

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/kernel"
	"github.com/kvferry/kvferry/fsm/lease"
	"github.com/kvferry/kvferry/fsm/store"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// Deferred are offers whose chunks stay with their senders until the engine fetches them. They know no message: an
// offer comes as values, and that one ended is in a list which whoever called empties at once, because its sender is
// told then and not later (tellEnded).
type deferred struct {
	cfg         deferredConfig `snap:"share"`
	rows        table.Slab[deferredOffer]
	byOperation table.Index
	of          []deferredOf  // by class
	ended       []deferredEnd `snap:"scratch"`
	dirty       bool          // something came or left by which a fetch may begin
}

type deferredConfig struct {
	offersMax int
	leadMin   effects.Duration
}

// A deferredOffer costs no page here. Each of its chunks is a place of its key. A chunk leaves when the request that
// it was offered for has fetched it, well or not; all that are left leave when the request is abandoned, when the
// sender takes the offer back or cannot be reached, and when the lease is over, by our clock alone. With the last
// chunk, and when no fetch reads any of them, the offer is at its end, and its sender is told, once.
type deferredOffer struct {
	class     int
	peer      effects.Incarnation
	us        effects.Incarnation // who we are to it
	operation uint64
	pull      protocol.PullID
	grant     uint64
	request   uint64 // hash of the id of the request that it is for; 0 when it told none
	what      uint64 // hash of its keys, in order, and of its last tokens
	lease.Right
	address  table.Handle // where to tell the end
	already  []int64
	items    []deferredItem
	left     uint32 // chunks that have not left
	readers  uint32 // fetches that may be reading it
	missing  uint32 // chunks that left without having been read for their request
	code     effects.Code
	renews   bool   // its sender takes renewals
	resolved uint64 // the last plan of a fetch that it is a source of, and which one there
	source   uint32
	timer    kernel.TimerID `snap:"set"`
}

// A deferredItem is one chunk of an offer.
type deferredItem struct {
	place  store.Place // zero: it has left
	remote effects.RemotePage
	length uint32
}

// A deferredEnd is an offer that has ended: nothing of it is left, and nobody reads it.
type deferredEnd struct {
	class     int
	operation uint64
	address   table.Handle
	over      effects.Time
	done
}

// deferredOf counts what is kept for one class.
type deferredOf struct{ offers, places int }

func newDeferred(cfg deferredConfig, classes int) deferred {
	return deferred{
		cfg: cfg, rows: table.NewSlab[deferredOffer](cfg.offersMax), of: make([]deferredOf, classes),
	}
}

// mayKeep says whether an offer fits the tables. No sender may have more of them than it leaves: so one that offers
// without end always leaves as much for the next.
func (d *deferred) mayKeep(s *store.Store, class, chunks int) bool {
	k := &d.of[class]
	return k.offers+1 <= d.rows.Max()-d.rows.Len() && k.places+chunks <= s.PlacesLeft() && s.Room(chunks)
}

// keep begins to keep an offer. Its chunks are added one by one, and then it is watched.
func (d *deferred) keep(what deferredOffer, already []int64) table.Handle {
	h, o := d.rows.Add()
	what.already, what.items = append(o.already[:0], already...), o.items[:0]
	*o = what
	d.of[o.class].offers++
	d.byOperation.Add(table.Hash(o.operation, o.peer[:]), h)
	d.dirty = true
	return h
}

// add notes one chunk of an offer.
func (d *deferred) add(s *store.Store, h table.Handle, hash uint64, key []byte, length uint32, at effects.RemotePage) {
	o := d.rows.Get(h)
	place := s.Attach(hash, key, h, uint32(len(o.items)))
	o.items = append(o.items, deferredItem{place: place, length: length, remote: at})
	o.left++
	d.of[o.class].places++
}

// watch sets an offer's next deadline: half of what is left if it can be renewed, else its end.
func (d *deferred) watch(v *env.Env, h table.Handle, renews bool) {
	o := d.rows.Get(h)
	o.renews = renews
	at := o.Until
	if o.renews && o.Until > v.Now {
		at = min(at, v.Now.Add(max(d.cfg.leadMin, o.Until.Sub(v.Now)/2)))
	}
	v.Timers.Set(&o.timer, at, timerRef(timerOffer, h))
}

// due is called at an offer's deadline. Either it should be prolonged now, or its time is over.
func (d *deferred) due(v *env.Env, h table.Handle) (class int, renew bool) {
	o := d.rows.Get(h)
	o.timer = 0
	if v.Now < o.Until {
		v.Timers.Set(&o.timer, o.Until, timerRef(timerOffer, h))
		return o.class, true
	}
	return o.class, false
}

// renewing adds the grants of a class that are to be prolonged to a list, at most so many, and says whose they are
// and whether there are more.
func (d *deferred) renewing(
	v *env.Env, class, most int, list []uint64,
) (grants []uint64, us, peer effects.Incarnation, more bool) {
	for slot := range d.rows.Slots() {
		_, o := d.at(slot)
		if o == nil || o.class != class || !o.renews || o.left == 0 || o.Until <= v.Now {
			continue
		}
		if len(list) == most {
			return list, us, peer, true
		}
		us, peer, list = o.us, o.peer, append(list, o.grant)
	}
	return list, us, peer, false
}

// extend prolongs an offer, and says until when.
func (d *deferred) extend(v *env.Env, h table.Handle, until effects.Time) effects.Time {
	o := d.rows.Get(h)
	o.Until = max(o.Until, until)
	d.watch(v, h, o.renews)
	return o.Until
}

// find is the offer of an operation, also if its chunks have left and fetches still read; nil if it is not kept.
func (d *deferred) find(peer effects.Incarnation, operation uint64) *deferredOffer {
	for p := d.byOperation.Seek(table.Hash(operation, peer[:])); p.Found(); p = d.byOperation.Next(p) {
		if o := d.rows.Get(p.Handle()); o.peer == peer && o.operation == operation {
			return o
		}
	}
	return nil
}

// leave takes one chunk out of an offer.
func (d *deferred) leave(v *env.Env, s *store.Store, h table.Handle, item uint32, code effects.Code) {
	o := d.rows.Get(h)
	if o == nil || o.items[item].place == 0 {
		return
	}
	s.Lose(s.HashAt(o.items[item].place)) // Also to a fetch that has it now: no Get will find it here.
	s.Detach(o.items[item].place, v)
	o.items[item].place = 0
	o.left--
	d.of[o.class].places--
	d.dirty = true // Who waits for the link to this one may find the chunk elsewhere.
	if code != effects.OK {
		o.missing++
		if o.code == effects.OK {
			o.code = code
		}
	}
	d.maybeOver(v, h, o)
}

// drop takes out all chunks of an offer that are left. One that is being read ends with that.
func (d *deferred) drop(v *env.Env, s *store.Store, h table.Handle, code effects.Code) {
	for i := 0; ; i++ {
		o := d.rows.Get(h) // With the last one the offer may be gone.
		if o == nil || i == len(o.items) {
			return
		}
		if o.items[i].place != 0 {
			d.leave(v, s, h, uint32(i), code)
		}
	}
}

// maybeOver ends an offer that nothing of is left, and that nobody reads: only then are the pages its sender's again.
func (d *deferred) maybeOver(v *env.Env, h table.Handle, o *deferredOffer) {
	if o.left > 0 || o.readers > 0 {
		return
	}
	v.Timers.Stop(&o.timer)
	d.ended = append(d.ended, deferredEnd{
		class: o.class, operation: o.operation, address: o.address, over: o.Over,
		done: done{pull: o.pull, us: o.us, to: o.peer, grant: o.grant, code: o.code, missing: o.missing},
	})
	d.of[o.class].offers--
	d.byOperation.Remove(table.Hash(o.operation, o.peer[:]), h)
	o.items, o.already = table.Shed(o.items), table.Shed(o.already)
	d.rows.Remove(h)
}

// over are the offers that ended since heardOver, in their order.
func (d *deferred) over() []deferredEnd { return d.ended }

func (d *deferred) heardOver() { d.ended = d.ended[:0] }

// at is the offer at a slot, for sweeps in their order; nil if there is none. Whoever sweeps may drop it.
func (d *deferred) at(slot int32) (table.Handle, *deferredOffer) {
	h := d.rows.At(slot)
	return h, d.rows.Get(h)
}

func (d *deferred) slots() int32 { return d.rows.Slots() }

// keepsOf says whether an offer of a class is kept.
func (d *deferred) keepsOf(class int) bool {
	for slot := range d.rows.Slots() {
		if _, o := d.at(slot); o != nil && o.class == class {
			return true
		}
	}
	return false
}

// released notes that a fetch does not read an offer any more.
func (d *deferred) released(v *env.Env, offer table.Handle) {
	o := d.rows.Get(offer)
	o.readers--
	d.maybeOver(v, offer, o)
}

// offeredFor adds the places of a chunk that leave with a fetch of this request: all that it has in offers for it,
// wherever the chunk is read. Nobody would come for the others.
func (d *deferred) offeredFor(s *store.Store, request uint64, e store.Entry, takes []taken) []taken {
	for at := s.FirstPlace(e); at != 0; at = s.NextPlace(at) {
		offer, item := s.Offered(at)
		if is := d.rows.Get(offer).request; is != 0 && is == request {
			takes = append(takes, taken{offer, item})
		}
	}
	return takes
}

// location chooses where to read a chunk: what was offered for this request, else what stands longest. To read
// what is another's takes nothing from it. An offer whose lease is over is none, though that is its deadline and may
// be handled only later in this step.
func (d *deferred) location(v *env.Env, s *store.Store, e store.Entry, request uint64) (best store.Place) {
	longest := v.Now
	for at := s.FirstPlace(e); at != 0; at = s.NextPlace(at) {
		offer, _ := s.Offered(at)
		o := d.rows.Get(offer)
		switch {
		case o.Until <= v.Now:
		case request != 0 && o.request == request:
			return at
		case o.Until > longest:
			best, longest = at, o.Until
		}
	}
	return best
}

// stir has the fetches that wait looked at again.
func (d *deferred) stir() { d.dirty = true }

// stirred says, once, that something came or left by which a fetch may begin.
func (d *deferred) stirred() bool {
	was := d.dirty
	d.dirty = false
	return was
}

func (d *deferred) get(h table.Handle) *deferredOffer { return d.rows.Get(h) }

// Counts, of what is in the tables and of what classes are counted to have.

func (d *deferred) len() int { return d.rows.Len() }
func (d *deferred) countOf(class int) (offers, places int) {
	return d.of[class].offers, d.of[class].places
}
