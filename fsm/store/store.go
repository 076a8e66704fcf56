// Package store is the one table of keys. An entry has at most one ready page,
// fills on their way, claims of requests that expect it, pins of readers, and places at
// senders from which it could be read. No reader sees an entry before its page is whole (rule M7). What becomes of a
// ready page that nobody expects or reads is a policy (Retention): it is consumed, or stays while there is room.
package store

import (
	"bytes"

	"github.com/kvferry/kvferry/effects"
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
	keeper  keeper // of the page, beside claims and pins
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
	journal journal
	cfg     Config `snap:"share"`

	cached  table.List // entries whose page only the cache has, those used longest ago first
	closing bool       // the rank drains: nothing is kept any more
}

// Config is what bounds a store, and what it does with what nobody expects.
type Config struct {
	Seed    uint64 // of hashes: a secret of the rank
	Entries int    // keys known
	Places  int    // of these, at senders
	Pages   int    // each may have a first claim
	Claims  int    // beyond the first on a page, of which no class has more than it leaves; and lapses remembered
	Classes int
	TTL     effects.Duration // of a claim, and then of the memory that it lapsed

	Retention Retention
	Journal   int // changes remembered; 0: none
}

// New returns an empty store.
func New(cfg Config) Store {
	return Store{
		entries: table.NewSlab[entry](cfg.Entries), claims: table.NewSlab[claim](cfg.Pages + cfg.Claims),
		places: table.NewSlab[place](cfg.Places), beyond: table.NewShare(cfg.Claims, cfg.Classes),
		lapses: newLapses(cfg.Claims), journal: newJournal(cfg.Journal), cfg: cfg,
	}
}

// Hash is the hash of a key or request id in this store.
func (s *Store) Hash(key []byte) uint64 { return table.Hash(s.cfg.Seed, key) }

// RequestHash is the hash of a request's id; 0 of none.
func (s *Store) RequestHash(id []byte) uint64 {
	if len(id) == 0 {
		return 0
	}
	return s.Hash(id)
}

// Entries is the number of keys known.
func (s *Store) Entries() int { return s.entries.Len() }

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
		s.admits(e)
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
	s.admits(e)
	return true
}

// admits has those hear who wait for the key, or follow what the store has.
func (s *Store) admits(e *entry) {
	s.news.becomes(e.hash)
	s.journal.note(e, false)
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
