// Package deferred keeps offers whose chunks stay with their senders until the engine fetches them, and carries
// out the fetches. [Deferred] is the table of kept offers. [Fetches] is the table of Fetch commands: a fetch
// waits until all of its chunks are known and all senders can be reached, and then reads the chunks through
// staging pages (package staging). The package encodes and decodes no message: the flows pull and p2p insert
// offers as values, and report each offer that has ended to its sender.
//
// A caller may rely on this: an offer ends once, and only when no chunk is left and no fetch is reading, so the
// pages are the sender's own again from then on and not before (M2). A chunk that was offered for another request
// is read and not used up (M7). The offers of one sender cannot take the room that is left for another sender's.
//
// Example of an offer of two chunks for request r:
//
//	pull     ── Keep, Add(k0), Add(k1), Watch ──► the offer is kept; no page is used
//	engine   ── Fetch(r: k0, k1) ───────────────► waits, until there is a link to the sender
//	fetch    ── reads k0, k1 ───────────────────► staging pages, then the engine's memory
//	pipeline ── the fetch has ended ────────────► both chunks leave the offer, which is over
//	pull     ── done message ───────────────────► the sender may reuse the pages
package deferred

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/fsm/rank/peers/lease"
	"github.com/kvferry/kvferry/fsm/table"
)

// A Deferred is the table of offers whose chunks stay with their senders until the engine fetches them, and of
// prefixes that peers have lent to this rank on request. An offer is inserted as values. An offer that has ended
// is in the list of Over or Returned, and the caller empties that list at once after each call that may end an
// offer, because the sender is to be notified in the same step (tellEnded).
type Deferred struct {
	cfg         Settings `snap:"share"`
	rows        table.Slab[Kept]
	byOperation table.Index
	of          []countOf // the number of offers and chunks, by class
	ended       []End     `snap:"scratch"`
	returned    []End     `snap:"scratch"` // the ended ones among the prefixes that this rank requested
	dirty       bool      // something was added or removed that may let a fetch begin
	losses      kernel.Losses
	condemned   table.List // the offers that are condemned one by one
}

// A Kept is one kept offer. A kept offer uses no page of this rank; each chunk is a location of the chunk's key
// in the store. A chunk leaves the offer when the request for which it was offered has fetched it, successfully
// or not. All remaining chunks leave when the request is abandoned, when the sender takes the offer back or
// cannot be reached, and when the lease is over by this rank's clock. The offer is over when the last chunk has
// left and no fetch is reading; then the sender is notified, once.
type Kept struct {
	Class int
	Peer  effects.Incarnation
	Us    effects.Incarnation // the incarnation of this rank that the sender addressed
	// Operation is the sender's operation id, which retries of the offer repeat.
	Operation uint64
	Pull      [16]byte // the sender's id of the offer
	// Grant is the sender's read grant on the pages.
	Grant   uint64
	Request uint64 // the hash of the id of the request for which the chunks were offered; 0: none
	What    uint64 // the hash of the keys, in order, and of the token count of the last chunk
	// Right is the right to read the pages. Invariant: nothing of the offer is read after Until (M4).
	lease.Right
	Address table.Handle // the address for the done message
	Asked   Asked        // set if this rank requested the chunks, instead of an offer
	// Already holds the indexes of the offer's chunks that were here when it arrived, for replies to retries.
	Already []int64
	items   []keptItem
	tally
	renews bool // the sender accepts renewals
	looked looked
	fate
	timer kernel.TimerID `snap:"set"`
}

// A tally counts the progress of an offer.
type tally struct {
	Left uint32 // the number of chunks that have not left
	// readers is the number of fetches that may be reading the offer. Invariant: while readers is not 0, the
	// sender is not notified that the offer is over (M2).
	readers uint32
	missing uint32 // the number of chunks that left without having been read for their request
	Code    effects.Code
}

// A looked records the latest plan that uses an offer as a source, and the index of the source there.
type looked struct {
	plan   uint64
	source uint32
}

// A keptItem is one chunk of an offer.
type keptItem struct {
	place  store.Location // zero: the chunk has left
	remote effects.RemotePage
	length uint32
}

// The kinds of deadlines.
const (
	kindOffer uint8 = 1 + iota // when an offer should be renewed, or can no longer be read
	kindFetch                  // when a waiting Fetch ends
)

// IsFetch reports whether ref is the deadline of a fetch; otherwise ref is the deadline of an offer.
func IsFetch(ref kernel.Ref) bool { return ref.Kind == kindFetch }

// A countOf counts what is kept for one class.
type countOf struct{ offers, locations int }

// New returns an empty Deferred for the given number of fairness classes.
func New(cfg Settings, classes int) Deferred { return new(Deferred).Emptied(cfg, classes) }

// Emptied returns the same as New. The memory of d is reused, so d must not be used afterwards.
func (d *Deferred) Emptied(cfg Settings, classes int) Deferred {
	return Deferred{
		cfg: cfg, rows: d.rows.Emptied(int(cfg.OffersMax)), of: table.Zeroed(d.of, classes), losses: d.losses.Emptied(classes),
		byOperation: d.byOperation.Emptied(), ended: d.ended, returned: d.returned,
	}
}

// MayKeep reports whether an offer of the given number of chunks fits the tables. Each sender may have at most as
// many offers and chunks as it leaves free. So a sender that offers without end still leaves as much for the next
// sender.
func (d *Deferred) MayKeep(s *store.Store, class, chunks int) bool {
	k := &d.of[class]
	return k.offers+1 <= d.rows.Max()-d.rows.Len() && k.locations+chunks <= s.LocationsLeft() && s.Room(chunks)
}

// Keep inserts an offer. The caller then adds the chunks with Add, and calls Watch.
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

// Add adds one chunk to an offer.
func (d *Deferred) Add(s *store.Store, h table.Handle, hash uint64, key []byte, length uint32, at effects.RemotePage) {
	o := d.rows.Get(h)
	place := s.Attach(hash, key, h, uint32(len(o.items)))
	o.items = append(o.items, keptItem{place: place, length: length, remote: at})
	o.Left++
	d.of[o.Class].locations++
}

// Watch sets the next deadline of an offer: after half of the remaining time if the offer can be renewed, or else
// at the end of its time.
func (d *Deferred) Watch(v *env.Env, h table.Handle, renews bool) {
	o := d.rows.Get(h)
	o.renews = renews
	at := o.Until
	if o.renews && o.Until > v.Now {
		at = min(at, v.Now.Add(max(d.cfg.LeadMin, o.Until.Sub(v.Now)/2)))
	}
	v.Timers.Set(&o.timer, at, kernel.Ref{Owner: kernel.OwnerDeferred, Kind: kindOffer, Subject: h})
}

// Due handles the deadline of an offer. renew is true if the offer should be renewed now, and false if the time
// is over.
func (d *Deferred) Due(v *env.Env, h table.Handle) (class int, renew bool) {
	o := d.rows.Get(h)
	o.timer = 0
	if v.Now < o.Until {
		v.Timers.Set(&o.timer, o.Until, kernel.Ref{Owner: kernel.OwnerDeferred, Kind: kindOffer, Subject: h})
		return o.Class, true
	}
	return o.Class, false
}

// Renewing appends to list the grants of a class that are to be renewed, until list has most entries, starting at
// slot from. It returns the list, the two incarnations that the renewal names, and the slot at which to continue;
// 0 means that there are no more.
func (d *Deferred) Renewing(
	v *env.Env, class, most int, from int32, list []uint64,
) (grants []uint64, us, peer effects.Incarnation, more int32) {
	// One pass over tables.offers, and then other work has its turn.
	for slot := from; slot < d.rows.Slots(); slot++ {
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

// Find returns the offer of an operation, also if its chunks have left and fetches still read, or 0 and nil if
// there is none.
func (d *Deferred) Find(peer effects.Incarnation, operation uint64) (table.Handle, *Kept) {
	for p := d.byOperation.Seek(table.Hash(operation, peer[:])); p.Found(); p = d.byOperation.Next(p) {
		if o := d.rows.Get(p.Handle()); o.Peer == peer && o.Operation == operation {
			return p.Handle(), o
		}
	}
	return 0, nil
}

// leave removes one chunk from an offer. With a code other than OK, the chunk counts as missing.
func (d *Deferred) leave(v *env.Env, s *store.Store, h table.Handle, item uint32, code effects.Code) {
	o := d.rows.Get(h)
	if o == nil || o.items[item].place == 0 {
		return
	}
	// The chunk may leave because a fetch has read it: a Get cannot find it here any more.
	s.Lose(s.HashAt(o.items[item].place))
	s.Detach(o.items[item].place, v)
	o.items[item].place = 0
	o.Left--
	d.of[o.Class].locations--
	d.dirty = true // A fetch that waits for the link to this offer may find the chunk elsewhere.
	if code != effects.OK {
		o.missing++
		if o.Code == effects.OK {
			o.Code = code
		}
	}
	d.maybeOver(v, h, o)
}

// Drop removes all remaining chunks of an offer. If fetches read from the offer, the offer is over when the
// fetches have ended.
func (d *Deferred) Drop(v *env.Env, s *store.Store, h table.Handle, code effects.Code) {
	for i := 0; ; i++ {
		o := d.rows.Get(h) // With the last chunk the offer may be removed.
		if o == nil || i == len(o.items) {
			return
		}
		if o.items[i].place != 0 {
			d.leave(v, s, h, uint32(i), code)
		}
	}
}

// At returns the offer at a slot, or nil if there is none. Sweeps call At slot by slot, and may drop the offer.
func (d *Deferred) At(slot int32) (table.Handle, *Kept) {
	h := d.rows.At(slot)
	return h, d.rows.Get(h)
}

// Slots returns the number of slots for At.
func (d *Deferred) Slots() int32 { return d.rows.Slots() }

// KeepsOf reports whether an offer of a class is kept.
func (d *Deferred) KeepsOf(class int) bool {
	return d.of[class].offers > 0
}

// released records that a fetch does not read an offer any more.
func (d *Deferred) released(v *env.Env, offer table.Handle) {
	o := d.rows.Get(offer)
	o.readers--
	d.maybeOver(v, offer, o)
}

// Stir requests that the waiting fetches are looked at again.
func (d *Deferred) Stir() { d.dirty = true }

// Stirred reports, once, whether something was added or removed that may let a fetch begin.
func (d *Deferred) Stirred() bool {
	was := d.dirty
	d.dirty = false
	return was
}

func (d *Deferred) get(h table.Handle) *Kept { return d.rows.Get(h) }

// Len returns the number of kept offers.
func (d *Deferred) Len() int { return d.rows.Len() }

// CountOf returns how many offers of a class are kept, and how many chunks of them.
func (d *Deferred) CountOf(class int) (offers, locations int) {
	return d.of[class].offers, d.of[class].locations
}
