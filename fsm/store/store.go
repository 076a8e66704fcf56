// Package store is the one table of keys. An entry has at most one ready page,
// fills on their way, claims of requests that expect it, pins of readers, and places at
// senders from which it could be read. No reader sees an entry before its page is whole (rule M7).
package store

import (
	"bytes"
	"math/bits"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// Entry is a handle on a key's entry.
type Entry = table.Handle

type entry struct {
	key    []byte
	hash   uint64
	page   effects.Page // zero generation: not ready
	fills  uint32
	pins   uint32
	claims table.List
	// unnamed counts those of no request.
	unnamed uint32
	expiry  kernel.TimerID `snap:"set"` // when the oldest claim ends
	places  table.List
	batch   uint64 // the batch that named the key last, and where in it
	at      uint32
}

type claim struct {
	request uint64 // hash of the request's id; 0 when it told none
	ends    effects.Time
	entry   Entry
	class   int  // whose landing or question it comes of
	beyond  bool // when it was made its page had another
}

// Store is the table. Its entries are bounded by the pool (ready pages), the fills
// and the claims that keep them.
type Store struct {
	entries table.Slab[entry]
	byKey   table.Index
	claims  table.Slab[claim]
	byOwner table.Index // of claims that name a request
	beyond  table.Share // of claims beyond the first on a page
	places  table.Slab[place]
	lapses  lapses
	news    news
	seed    uint64
	ttl     effects.Duration
}

// New returns a store for at most entriesMax keys, placesMax places of them, and claims of life ttl: one for each of pages
// and claimsMax beyond, of which no class has more than it leaves. Of claims that lapsed claimsMax are remembered, for another ttl.
func New(seed uint64, entriesMax, placesMax, pages, claimsMax, classes int, ttl effects.Duration) Store {
	return Store{
		entries: table.NewSlab[entry](entriesMax), claims: table.NewSlab[claim](pages + claimsMax), places: table.NewSlab[place](placesMax),
		beyond: table.NewShare(claimsMax, classes),
		lapses: newLapses(claimsMax),
		seed:   seed, ttl: ttl,
	}
}

// Hash is the hash of a key or request id in this store.
func (s *Store) Hash(key []byte) uint64 { return table.Hash(s.seed, key) }

// Entries is the number of keys known.
func (s *Store) Entries() int { return s.entries.Len() }

// Claims is the number of claims.
func (s *Store) Claims() int { return s.claims.Len() }

// Beyond is how many claims beyond the first on their pages are counted, and how many there are; to look at only.
func (s *Store) Beyond() (counted, there int) {
	for slot := range s.claims.Slots() {
		if c := s.claims.At(slot); c != 0 && s.claims.Get(c).beyond {
			there++
		}
	}
	return s.beyond.All(), there
}

// ClaimsLeft is how many claims of class fit, whatever they are on.
func (s *Store) ClaimsLeft(class int) int { return s.beyond.Left(class) }

// Room says whether n more keys fit.
func (s *Store) Room(n int) bool { return s.entries.Len()+n <= s.entries.Max() }

// Find returns the key's entry, or zero.
func (s *Store) Find(hash uint64, key []byte) Entry {
	for p := s.byKey.Seek(hash); p.Found(); p = s.byKey.Next(p) {
		if bytes.Equal(s.entries.Get(p.Handle()).key, key) {
			return p.Handle()
		}
	}
	return 0
}

// Ready returns the entry's page, if it is whole.
func (s *Store) Ready(h Entry) (effects.Page, bool) {
	e := s.entries.Get(h)
	if e == nil || e.page.Generation == 0 {
		return effects.Page{}, false
	}
	return e.page, true
}

// Note remembers that the key stands at this position of a batch. Batches are numbered by the caller, from 1.
func (s *Store) Note(h Entry, batch uint64, at int) {
	e := s.entries.Get(h)
	e.batch, e.at = batch, uint32(at)
}

// Noted says where in this batch the key stood before, if it did.
func (s *Store) Noted(h Entry, batch uint64) (at int, ok bool) {
	e := s.entries.Get(h)
	if e == nil || e.batch != batch {
		return 0, false
	}
	return int(e.at), true
}

// HashOf is the hash of the entry's key.
func (s *Store) HashOf(h Entry) uint64 { return s.entries.Get(h).hash }

// BeginFill notes that a granted page is on its way for key. Room must hold.
func (s *Store) BeginFill(hash uint64, key []byte) Entry {
	h := s.need(hash, key)
	s.entries.Get(h).fills++
	return h
}

// need finds or makes the key's entry.
func (s *Store) need(hash uint64, key []byte) Entry {
	h := s.Find(hash, key)
	if h == 0 {
		var e *entry
		h, e = s.entries.Add()
		*e = entry{key: append(e.key[:0], key...), hash: hash}
		s.byKey.Add(hash, h)
	}
	return h
}

// EndFill ends one fill. With a page, the first fill makes the entry ready and
// the store owns the page's reference (true); a later one does not (false: the
// caller drops the reference).
func (s *Store) EndFill(h Entry, page effects.Page, whole bool) bool {
	e := s.entries.Get(h)
	if e == nil || e.fills == 0 {
		panic("BUG: a fill ended twice")
	}
	e.fills--
	took := whole && e.page.Generation == 0
	if took {
		e.page = page
		s.news.becomes(e.hash)
	}
	return took
}

// Trust makes the entry readable while its fill goes on, and says whether it was
// not so already. The store owns the page's reference then.
func (s *Store) Trust(h Entry, page effects.Page) bool {
	e := s.entries.Get(h)
	if e.page.Generation != 0 {
		return false
	}
	e.page = page
	s.news.becomes(e.hash)
	return true
}

// Claim notes that a request expects the ready entry. The first claim on a page always fits, so what landed is kept; one beyond
// is refused when class has its share of those. A request that is told twice has one claim, from the second time on.
func (s *Store) Claim(h Entry, class int, request uint64, v *env.Env, ref kernel.Ref) bool {
	e := s.entries.Get(h)
	c := s.ownClaim(h, e, request)
	if c != 0 {
		s.claims.Unlink(&e.claims, c)
	} else {
		beyond := e.claims.Len() > 0
		if beyond && !s.beyond.May(class) {
			return false
		}
		var cl *claim
		c, cl = s.claims.Add()
		if *cl = (claim{request: request, entry: h, class: class, beyond: beyond}); beyond {
			s.beyond.Take(class)
		}
		if request == 0 {
			e.unnamed++
		} else {
			s.byOwner.Add(ownerHash(e.hash, request), c)
		}
	}
	s.claims.Get(c).ends = v.Now.Add(s.ttl)
	s.lapses.drop(e.hash, request)
	s.claims.PushBack(&e.claims, c)
	s.watch(h, e, v, ref)
	return true
}

// ownerHash is that of a key and a request, both of them hashes already.
func ownerHash(hash, request uint64) uint64 { return hash ^ bits.RotateLeft64(request, 32) }

// ownClaim is the claim of a request that is named, or zero. A chunk may be kept for as many requests as there are
// claims: so they are not walked.
func (s *Store) ownClaim(h Entry, e *entry, request uint64) table.Handle {
	if request == 0 {
		return 0
	}
	for p := s.byOwner.Seek(ownerHash(e.hash, request)); p.Found(); p = s.byOwner.Next(p) {
		if c := s.claims.Get(p.Handle()); c.entry == h && c.request == request {
			return p.Handle()
		}
	}
	return 0
}

// watch sets the deadline of the oldest claim.
func (s *Store) watch(h Entry, e *entry, v *env.Env, ref kernel.Ref) {
	v.Timers.Stop(&e.expiry)
	if first := e.claims.Front(); first != 0 {
		ref.Subject = h
		v.Timers.Set(&e.expiry, s.claims.Get(first).ends, ref)
	}
}

// Pin lets a reader use the ready page until Unpin. The reader's own claim ends with it: that of its
// request, else the oldest one that names no request. A reader that names no request ends none.
func (s *Store) Pin(h Entry, request uint64, v *env.Env, ref kernel.Ref) {
	e := s.entries.Get(h)
	if e.page.Generation == 0 {
		panic("BUG: pinned an entry that is not ready")
	}
	e.pins++
	if c := s.claimOf(h, e, request); c != 0 {
		s.dropClaim(h, e, c, v, ref)
	}
}

func (s *Store) claimOf(h Entry, e *entry, request uint64) table.Handle {
	if request == 0 {
		return 0
	}
	c := s.ownClaim(h, e, request)
	if c == 0 && e.unnamed > 0 {
		for c = e.claims.Front(); s.claims.Get(c).request != 0; c = s.claims.Next(c) {
		}
	}
	return c
}

// Unpin ends a Pin; an entry that nobody claims any more is consumed.
func (s *Store) Unpin(h Entry, v *env.Env) {
	e := s.entries.Get(h)
	if e == nil || e.pins == 0 {
		panic("BUG: unpinned twice")
	}
	e.pins--
	s.Settle(h, v)
}

// Expire ends the claims whose time is over, remembers that they lapsed, and returns how many.
func (s *Store) Expire(h Entry, v *env.Env, ref kernel.Ref) (expired uint32) {
	e := s.entries.Get(h)
	if e == nil {
		return 0
	}
	for c := e.claims.Front(); c != 0 && s.claims.Get(c).ends <= v.Now; c = e.claims.Front() {
		s.lapses.add(v.Now, lapse{hash: e.hash, request: s.claims.Get(c).request, until: v.Now.Add(s.ttl)})
		s.dropClaim(h, e, c, v, ref)
		expired++
	}
	s.Settle(h, v)
	return expired
}

// Abandon ends every claim of a request and returns how many.
func (s *Store) Abandon(request uint64, v *env.Env, ref kernel.Ref) (ended uint32) {
	for slot := range s.claims.Slots() {
		c := s.claims.At(slot)
		if c == 0 || s.claims.Get(c).request != request {
			continue
		}
		h := s.claims.Get(c).entry
		s.dropClaim(h, s.entries.Get(h), c, v, ref)
		s.Settle(h, v)
		ended++
	}
	return ended
}

// DropAll ends every claim: the rank is shutting down.
func (s *Store) DropAll(v *env.Env, ref kernel.Ref) {
	for slot := range s.claims.Slots() {
		if c := s.claims.At(slot); c != 0 {
			h := s.claims.Get(c).entry
			s.dropClaim(h, s.entries.Get(h), c, v, ref)
			s.Settle(h, v)
		}
	}
}

func (s *Store) dropClaim(h Entry, e *entry, c table.Handle, v *env.Env, ref kernel.Ref) {
	cl := s.claims.Get(c)
	if cl.beyond {
		s.beyond.Give(cl.class)
	}
	if cl.request == 0 {
		e.unnamed--
	} else {
		s.byOwner.Remove(ownerHash(e.hash, cl.request), c)
	}
	s.claims.Unlink(&e.claims, c)
	s.claims.Remove(c)
	s.watch(h, e, v, ref)
}

// Settle removes what nothing keeps: the ready page when no claim and no pin is
// left, the entry when no fill is left either.
func (s *Store) Settle(h Entry, v *env.Env) {
	e := s.entries.Get(h)
	if e == nil || e.pins > 0 || e.claims.Len() > 0 {
		return
	}
	if e.page.Generation != 0 {
		v.Pool.Unref(e.page)
		e.page = effects.Page{}
	}
	if e.fills > 0 || e.places.Len() > 0 {
		return
	}
	s.byKey.Remove(e.hash, h)
	s.entries.Remove(h)
}

// Inspect shows the entry at a slot to oracles.
func (s *Store) Inspect(slot int32) (key []byte, page effects.Page, fills, pins uint32, claims int, ok bool) {
	h := s.entries.At(slot)
	if h == 0 {
		return nil, effects.Page{}, 0, 0, 0, false
	}
	e := s.entries.Get(h)
	return e.key, e.page, e.fills, e.pins, e.claims.Len(), true
}

// Slots is the range for Inspect.
func (s *Store) Slots() int32 { return s.entries.Slots() }
