// Package deferred keeps offers whose chunks stay with their senders until the engine fetches them, and carries
// out the fetches. [Offers] is the table of kept offers. [Fetches] is the table of Fetch commands: a fetch
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
//	pull     ── AddOffer, AddChunk(k0), AddChunk(k1), SetDeadline ──► the offer is kept; no page is used
//	engine   ── Fetch(r: k0, k1) ───────────────────────────────────► waits, until there is a link to the sender
//	fetch    ── reads k0, k1 ───────────────────────────────────────► staging pages, then the engine's memory
//	pipeline ── the fetch has ended ────────────────────────────────► both chunks leave the offer, which is over
//	pull     ── done message ───────────────────────────────────────► the sender may reuse the pages
package deferred

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/fsm/rank/peers/lease"
	"github.com/kvferry/kvferry/fsm/table"
)

// Offers is the table of offers whose chunks stay with their senders until the engine fetches them, and of prefixes
// that peers have lent to this rank on request. An offer is inserted as values. An offer that has ended is in the list
// of EndedOffers or EndedPrefixes, and the caller empties that list at once after each call that may end an offer,
// because the sender is to be notified in the same step (queueEndedDones).
type Offers struct {
	cfg           Settings `snap:"share"`
	rows          table.Slab[Offer]
	byOperation   table.Index
	byClass       []classCount // the number of offers and chunks, by class
	endedOffers   []EndedOffer `snap:"scratch"`
	endedPrefixes []EndedOffer `snap:"scratch"` // the ended ones among the prefixes that this rank requested
	changed       bool         // something was added or removed that may let a fetch begin
	losses        kernel.Losses
	condemned     table.List // the offers that are condemned one by one
}

// An Offer is one kept offer. A kept offer uses no page of this rank; each chunk is a location of the chunk's key
// in the store. A chunk leaves the offer when the request for which it was offered has fetched it, successfully
// or not. All remaining chunks leave when the request is abandoned, when the sender takes the offer back or
// cannot be reached, and when the lease is over by this rank's clock. The offer is over when the last chunk has
// left and no fetch is reading; then the sender is notified, once.
type Offer struct {
	Class  int
	Peer   effects.Incarnation
	SelfID effects.Incarnation // the incarnation of this rank that the sender addressed
	// Operation is the sender's operation id, which retries of the offer repeat.
	Operation uint64
	Pull      [16]byte // the sender's id of the offer
	// Grant is the sender's read grant on the pages.
	Grant     uint64
	Request   uint64 // the hash of the id of the request for which the chunks were offered; 0: none
	BatchHash uint64 // the hash of the keys, in order, and of the token count of the last chunk
	// Right is the right to read the pages. Invariant: nothing of the offer is read after Until (M4).
	lease.Right
	Address table.Handle // the address for the done message
	Origin  Origin       // set if this rank requested the chunks, instead of an offer
	// PresentChunks holds the indexes of the offer's chunks that were here when it arrived, for replies to retries.
	PresentChunks []int64
	items         []offerItem
	progress
	renews   bool // the sender accepts renewals
	lastPlan planUse
	condemnation
	timer kernel.TimerID `snap:"set"`
}

// A progress counts the progress of an offer.
type progress struct {
	ChunksLeft uint32 // the number of chunks that have not left
	// readers is the number of fetches that may be reading the offer. Invariant: while readers is not 0, the
	// sender is not notified that the offer is over (M2).
	readers       uint32
	missingChunks uint32 // the number of chunks that left without having been read for their request
	Code          effects.Code
}

// A planUse records the latest plan that uses an offer as a source, and the index of the source there.
type planUse struct {
	plan   uint64
	source uint32
}

// An offerItem is one chunk of an offer.
type offerItem struct {
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

// A classCount counts what is kept for one class.
type classCount struct{ offers, locations int }

// New returns an empty Offers for the given number of fairness classes.
func New(cfg Settings, classes int) Offers { return new(Offers).Recycle(cfg, classes) }

// Recycle returns the same as New. The memory of d is reused, so d must not be used afterwards.
func (d *Offers) Recycle(cfg Settings, classes int) Offers {
	return Offers{
		cfg: cfg, rows: d.rows.Recycle(int(cfg.OffersMax)), byClass: table.RecycleSlice(d.byClass, classes), losses: d.losses.Recycle(classes),
		byOperation: d.byOperation.Recycle(), endedOffers: d.endedOffers, endedPrefixes: d.endedPrefixes,
	}
}

// HasRoom reports whether an offer of the given number of chunks fits the tables. Each sender may have at most as
// many offers and chunks as it leaves free. So a sender that offers without end still leaves as much for the next
// sender.
func (d *Offers) HasRoom(s *store.Store, class, chunks int) bool {
	k := &d.byClass[class]
	return k.offers+1 <= d.rows.Max()-d.rows.Len() && k.locations+chunks <= s.LocationsLeft() && s.HasRoom(chunks)
}

// AddOffer inserts an offer. The caller then adds the chunks with Add, and calls SetDeadline.
func (d *Offers) AddOffer(offer Offer, already []int64) table.Handle {
	h, o := d.rows.Add()
	offer.PresentChunks, offer.items = append(o.PresentChunks[:0], already...), o.items[:0]
	offer.lossCount = d.losses.CountFor(offer.Class)
	*o = offer
	d.byClass[o.Class].offers++
	if o.Origin.Peer == 0 {
		d.byOperation.Add(table.Hash(o.Operation, o.Peer[:]), h)
	}
	d.changed = true
	return h
}

// AddChunk adds one chunk to an offer.
func (d *Offers) AddChunk(s *store.Store, h table.Handle, hash uint64, key []byte, length uint32, at effects.RemotePage) {
	o := d.rows.Get(h)
	place := s.AttachLocation(hash, key, h, uint32(len(o.items)))
	o.items = append(o.items, offerItem{place: place, length: length, remote: at})
	o.ChunksLeft++
	d.byClass[o.Class].locations++
}

// SetDeadline sets the next deadline of an offer: after half of the remaining time if the offer can be renewed, or else
// at the end of its time.
func (d *Offers) SetDeadline(v *env.Env, h table.Handle, renews bool) {
	o := d.rows.Get(h)
	o.renews = renews
	at := o.Until
	if o.renews && o.Until > v.Now {
		at = min(at, v.Now.Add(max(d.cfg.LeadMin, o.Until.Sub(v.Now)/2)))
	}
	v.Timers.Set(&o.timer, at, kernel.Ref{Owner: kernel.OwnerDeferred, Kind: kindOffer, Subject: h})
}

// OnTimer handles the deadline of an offer. renew is true if the offer should be renewed now, and false if the time
// is over.
func (d *Offers) OnTimer(v *env.Env, h table.Handle) (class int, renew bool) {
	o := d.rows.Get(h)
	o.timer = 0
	if v.Now < o.Until {
		v.Timers.Set(&o.timer, o.Until, kernel.Ref{Owner: kernel.OwnerDeferred, Kind: kindOffer, Subject: h})
		return o.Class, true
	}
	return o.Class, false
}

// CollectRenewals appends to list the grants of a class that are to be renewed, until list has most entries, starting
// at slot from. It returns the list, the two incarnations that the renewal names, and the slot at which to continue; 0
// means that there are no more.
func (d *Offers) CollectRenewals(
	v *env.Env, class, limit int, from int32, list []uint64,
) (grants []uint64, selfID, peer effects.Incarnation, more int32) {
	// One pass over tables.offers, and then other work has its turn.
	for slot := from; slot < d.rows.Slots(); slot++ {
		v.Work.SpendLook()
		_, o := d.OfferAt(slot)
		if o == nil || o.Class != class || !o.renews || o.ChunksLeft == 0 || o.Until <= v.Now {
			continue
		}
		if len(list) == limit {
			return list, selfID, peer, slot
		}
		selfID, peer, list = o.SelfID, o.Peer, append(list, o.Grant)
	}
	return list, selfID, peer, 0
}

// FindOffer returns the offer of an operation, also if its chunks have left and fetches still read, or 0 and nil if
// there is none.
func (d *Offers) FindOffer(peer effects.Incarnation, operation uint64) (table.Handle, *Offer) {
	for p := d.byOperation.Find(table.Hash(operation, peer[:])); p.Found(); p = d.byOperation.Next(p) {
		if o := d.rows.Get(p.Handle()); o.Peer == peer && o.Operation == operation {
			return p.Handle(), o
		}
	}
	return 0, nil
}

// removeChunk removes one chunk from an offer. With a code other than OK, the chunk counts as missing.
func (d *Offers) removeChunk(v *env.Env, s *store.Store, h table.Handle, item uint32, code effects.Code) {
	o := d.rows.Get(h)
	if o == nil || o.items[item].place == 0 {
		return
	}
	// The chunk may leave because a fetch has read it: a Get cannot find it here any more.
	s.RecordLostSource(s.HashOfLocation(o.items[item].place))
	s.DetachLocation(o.items[item].place, v)
	o.items[item].place = 0
	o.ChunksLeft--
	d.byClass[o.Class].locations--
	d.changed = true // A fetch that waits for the link to this offer may find the chunk elsewhere.
	if code != effects.OK {
		o.missingChunks++
		if o.Code == effects.OK {
			o.Code = code
		}
	}
	d.maybeEndOffer(v, h, o)
}

// DropOffer removes all remaining chunks of an offer. If fetches read from the offer, the offer is over when the
// fetches have ended.
func (d *Offers) DropOffer(v *env.Env, s *store.Store, h table.Handle, code effects.Code) {
	for i := 0; ; i++ {
		o := d.rows.Get(h) // With the last chunk the offer may be removed.
		if o == nil || i == len(o.items) {
			return
		}
		if o.items[i].place != 0 {
			d.removeChunk(v, s, h, uint32(i), code)
		}
	}
}

// OfferAt returns the offer at a slot, or nil if there is none. Sweeps call At slot by slot, and may drop the offer.
func (d *Offers) OfferAt(slot int32) (table.Handle, *Offer) {
	h := d.rows.At(slot)
	return h, d.rows.Get(h)
}

// CountSlots returns the number of slots for At.
func (d *Offers) CountSlots() int32 { return d.rows.Slots() }

// HasOffersOf reports whether an offer of a class is kept.
func (d *Offers) HasOffersOf(class int) bool {
	return d.byClass[class].offers > 0
}

// releaseReader records that a fetch does not read an offer any more.
func (d *Offers) releaseReader(v *env.Env, offer table.Handle) {
	o := d.rows.Get(offer)
	o.readers--
	d.maybeEndOffer(v, offer, o)
}

// MarkChanged requests that the waiting fetches are looked at again.
func (d *Offers) MarkChanged() { d.changed = true }

// TakeChanged reports, once, whether something was added or removed that may let a fetch begin.
func (d *Offers) TakeChanged() bool {
	changed := d.changed
	d.changed = false
	return changed
}

func (d *Offers) get(h table.Handle) *Offer { return d.rows.Get(h) }

// Len returns the number of kept offers.
func (d *Offers) Len() int { return d.rows.Len() }

// CountsOfClass returns how many offers of a class are kept, and how many chunks of them.
func (d *Offers) CountsOfClass(class int) (offers, locations int) {
	return d.byClass[class].offers, d.byClass[class].locations
}

// RecountShares counts the offers of each class again, and their chunks.
func (d *Offers) RecountShares(r *table.Recount, s *store.Store) {
	for slot := range d.rows.Slots() {
		if o := d.rows.Get(d.rows.At(slot)); o != nil {
			r.Add(o.Class, 1)
		}
	}
	r.Report("deferred offers", len(d.byClass), func(class int) int { return d.byClass[class].offers }, table.Empty)
	s.VisitLocations(func(offer table.Handle) {
		if o := d.rows.Get(offer); o != nil {
			r.Add(o.Class, 1)
		}
	})
	r.Report("remote locations of offers", len(d.byClass), func(class int) int { return d.byClass[class].locations }, table.Empty)
}
