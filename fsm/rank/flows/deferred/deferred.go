// Package deferred keeps offers whose chunks stay with their senders until the engine fetches them, and carries out the
// fetches. It may be relied on for this: an offer ends once, and only when nothing of it is left and nobody reads it,
// so its pages are its sender's again from then on and not before; a chunk that is another request's is read and not
// taken; and no sender's offers take the room of another's. It knows no message.
package deferred

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/fsm/rank/peers/lease"
	"github.com/kvferry/kvferry/fsm/table"
)

// Deferred are offers whose chunks stay with their senders until the engine fetches them, and prefixes that peers lend
// who were asked for them. They know no message: an
// offer comes as values, and that one ended is in a list which whoever called empties at once, because its sender is
// told then and not later (tellEnded).
type Deferred struct {
	cfg         Config `snap:"share"`
	rows        table.Slab[Kept]
	byOperation table.Index
	of          []countOf // by class
	ended       []End     `snap:"scratch"`
	returned    []End     `snap:"scratch"` // of what we asked for
	dirty       bool      // something came or left by which a fetch may begin
	losses      kernel.Losses
	condemned   table.List // those that are so one by one
}

// Config bounds what is kept.
type Config struct {
	OffersMax int
	LeadMin   effects.Duration
}

// A Kept costs no page here. Each of its chunks is a place of its key. A chunk leaves when the request that
// it was offered for has fetched it, well or not; all that are left leave when the request is abandoned, when the
// sender takes the offer back or cannot be reached, and when the lease is over, by our clock alone. With the last
// chunk, and when no fetch reads any of them, the offer is at its end, and its sender is told, once.
type Kept struct {
	Class     int
	Peer      effects.Incarnation
	Us        effects.Incarnation // who we are to it
	Operation uint64
	Pull      [16]byte // what its sender calls it
	Grant     uint64
	Request   uint64 // hash of the id of the request that it is for; 0 when it told none
	What      uint64 // hash of its keys, in order, and of its last tokens
	lease.Right
	Address table.Handle // where to tell the end
	Asked   Asked        // nobody offered it
	Already []int64
	items   []keptItem
	tally
	renews bool // its sender takes renewals
	looked looked
	fate
	timer kernel.TimerID `snap:"set"`
}

// A tally is how far an offer is.
type tally struct {
	Left    uint32 // chunks that have not left
	readers uint32 // fetches that may be reading it
	missing uint32 // chunks that left without having been read for their request
	Code    effects.Code
}

// A looked is the last plan of a fetch that an offer is a source of, and which one there.
type looked struct {
	plan   uint64
	source uint32
}

// A keptItem is one chunk of an offer.
type keptItem struct {
	place  store.Location // zero: it has left
	remote effects.RemotePage
	length uint32
}

// Kinds of deadlines.
const (
	kindOffer uint8 = 1 + iota // when an offer is to be prolonged, or cannot be read any more
	kindFetch                  // when a waiting Fetch gives up
)

// IsFetch says whether a deadline of this room is that of a fetch, not of an offer.
func IsFetch(ref kernel.Ref) bool { return ref.Kind == kindFetch }

// countOf counts what is kept for one class.
type countOf struct{ offers, locations int }

// New keeps nothing.
func New(cfg Config, classes int) Deferred { return new(Deferred).Emptied(cfg, classes) }

// Emptied returns what New does, in the memory of d, which is not used any more.
func (d *Deferred) Emptied(cfg Config, classes int) Deferred {
	return Deferred{
		cfg: cfg, rows: d.rows.Emptied(cfg.OffersMax), of: table.Zeroed(d.of, classes), losses: d.losses.Emptied(classes),
		byOperation: d.byOperation.Emptied(), ended: d.ended, returned: d.returned,
	}
}

// MayKeep says whether an offer fits the tables. No sender may have more of them than it leaves: so one that offers
// without end always leaves as much for the next.
func (d *Deferred) MayKeep(s *store.Store, class, chunks int) bool {
	k := &d.of[class]
	return k.offers+1 <= d.rows.Max()-d.rows.Len() && k.locations+chunks <= s.LocationsLeft() && s.Room(chunks)
}

// Keep begins to keep an offer. Its chunks are added one by one, and then it is watched.
func (d *Deferred) Keep(what Kept, already []int64) table.Handle {
	h, o := d.rows.Add()
	what.Already, what.items = append(o.Already[:0], already...), o.items[:0]
	what.born = d.losses.Of(what.Class)
	*o = what
	d.of[o.Class].offers++
	if o.Asked.Of == 0 {
		d.byOperation.Add(table.Hash(o.Operation, o.Peer[:]), h)
	}
	d.dirty = true
	return h
}

// Add notes one chunk of an offer.
func (d *Deferred) Add(s *store.Store, h table.Handle, hash uint64, key []byte, length uint32, at effects.RemotePage) {
	o := d.rows.Get(h)
	place := s.Attach(hash, key, h, uint32(len(o.items)))
	o.items = append(o.items, keptItem{place: place, length: length, remote: at})
	o.Left++
	d.of[o.Class].locations++
}

// Watch sets an offer's next deadline: half of what is left if it can be renewed, else its end.
func (d *Deferred) Watch(v *env.Env, h table.Handle, renews bool) {
	o := d.rows.Get(h)
	o.renews = renews
	at := o.Until
	if o.renews && o.Until > v.Now {
		at = min(at, v.Now.Add(max(d.cfg.LeadMin, o.Until.Sub(v.Now)/2)))
	}
	v.Timers.Set(&o.timer, at, kernel.Ref{Owner: kernel.OwnerDeferred, Kind: kindOffer, Subject: h})
}

// Due is called at an offer's deadline. Either it should be prolonged now, or its time is over.
func (d *Deferred) Due(v *env.Env, h table.Handle) (class int, renew bool) {
	o := d.rows.Get(h)
	o.timer = 0
	if v.Now < o.Until {
		v.Timers.Set(&o.timer, o.Until, kernel.Ref{Owner: kernel.OwnerDeferred, Kind: kindOffer, Subject: h})
		return o.Class, true
	}
	return o.Class, false
}

// Renewing adds the grants of a class that are to be prolonged to a list, at most so many, from a slot on, and says
// whose they are, and from where on there are more; 0: there are none.
func (d *Deferred) Renewing(
	v *env.Env, class, most int, from int32, list []uint64,
) (grants []uint64, us, peer effects.Incarnation, more int32) {
	for slot := from; slot < d.rows.Slots(); slot++ { // Once over tables.offers, and then others have to wait.
		v.Work.Look()
		_, o := d.At(slot)
		if o == nil || o.Class != class || !o.renews || o.Left == 0 || o.Until <= v.Now {
			continue
		}
		if len(list) == most {
			return list, us, peer, slot
		}
		us, peer, list = o.Us, o.Peer, append(list, o.Grant)
	}
	return list, us, peer, 0
}

// Find is the offer of an operation, also if its chunks have left and fetches still read; zero if it is not kept.
func (d *Deferred) Find(peer effects.Incarnation, operation uint64) (table.Handle, *Kept) {
	for p := d.byOperation.Seek(table.Hash(operation, peer[:])); p.Found(); p = d.byOperation.Next(p) {
		if o := d.rows.Get(p.Handle()); o.Peer == peer && o.Operation == operation {
			return p.Handle(), o
		}
	}
	return 0, nil
}

// leave takes one chunk out of an offer.
func (d *Deferred) leave(v *env.Env, s *store.Store, h table.Handle, item uint32, code effects.Code) {
	o := d.rows.Get(h)
	if o == nil || o.items[item].place == 0 {
		return
	}
	s.Lose(s.HashAt(o.items[item].place)) // Also to a fetch that has it now: no Get will find it here.
	s.Detach(o.items[item].place, v)
	o.items[item].place = 0
	o.Left--
	d.of[o.Class].locations--
	d.dirty = true // Who waits for the link to this one may find the chunk elsewhere.
	if code != effects.OK {
		o.missing++
		if o.Code == effects.OK {
			o.Code = code
		}
	}
	d.maybeOver(v, h, o)
}

// Drop takes out all chunks of an offer that are left. One that is being read ends with that.
func (d *Deferred) Drop(v *env.Env, s *store.Store, h table.Handle, code effects.Code) {
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

// At is the offer at a slot, for sweeps in their order; nil if there is none. Whoever sweeps may drop it.
func (d *Deferred) At(slot int32) (table.Handle, *Kept) {
	h := d.rows.At(slot)
	return h, d.rows.Get(h)
}

// Slots is the range for At.
func (d *Deferred) Slots() int32 { return d.rows.Slots() }

// KeepsOf says whether an offer of a class is kept.
func (d *Deferred) KeepsOf(class int) bool {
	return d.of[class].offers > 0
}

// released notes that a fetch does not read an offer any more.
func (d *Deferred) released(v *env.Env, offer table.Handle) {
	o := d.rows.Get(offer)
	o.readers--
	d.maybeOver(v, offer, o)
}

// Stir has the fetches that wait looked at again.
func (d *Deferred) Stir() { d.dirty = true }

// Stirred says, once, that something came or left by which a fetch may begin.
func (d *Deferred) Stirred() bool {
	was := d.dirty
	d.dirty = false
	return was
}

func (d *Deferred) get(h table.Handle) *Kept { return d.rows.Get(h) }

// Len is how many offers are kept.
func (d *Deferred) Len() int { return d.rows.Len() }

// CountOf is how many offers, and how many of their chunks, are kept of a class.
func (d *Deferred) CountOf(class int) (offers, locations int) {
	return d.of[class].offers, d.of[class].locations
}
