// Package store is the one table of keys. An entry has at most one ready page, fills on their way, claims of requests
// that expect it, pins of readers, and remote locations at senders from which it could be read.
//
// A caller may rely on this: no reader sees an entry before its page is whole (rule M7); a page that was pinned stays
// until it is unpinned; one that was claimed stays for its request until that comes, gives it up, or its time is over,
// which is told. What becomes of a ready page that nobody expects or reads is a policy (Retention): it is consumed, or
// stays while there is room.
package store

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/memory"
	"github.com/kvferry/kvferry/fsm/table"
)

// Entry is a handle on a key's entry.
type Entry = table.Handle

// There is one for each key, so it is kept small: fields stand in the order of their sizes.
type entry struct {
	hash       uint64
	digits     uint64             `snap:"skip"` // with shape, the key; its hash stands for it
	generation effects.Generation // of the page; zero: not ready
	claims     table.List
	locations  table.List
	index      uint32 // of the page, and its length
	length     uint32
	fills      uint32
	pins       uint32
	unnamed    uint32 // claims of no request
	noted      uint32 `snap:"scratch"` // its place in Store.noted
	shape      int32  `snap:"skip"`
	pool       effects.PoolID
	keeper     keeper // of the page, beside claims and pins
}

func (e *entry) ready() bool { return e.generation != 0 }

func (e *entry) page() effects.Page {
	return effects.Page{Pool: e.pool, Index: e.index, Length: e.length, Generation: e.generation}
}

func (e *entry) setPage(p effects.Page) {
	e.pool, e.index, e.length, e.generation = p.Pool, p.Index, p.Length, p.Generation
}

// A spot is where in a batch a key stands.
type spot struct {
	entry Entry
	at    int
}

// Store is the table. Its entries are bounded by the pool (ready pages), the fills
// and the claims that keep them.
type Store struct {
	entries   table.Slab[entry]
	byKey     table.Compact
	names     names `snap:"skip"` // their keys, for which their hashes stand
	claims    table.Slab[claim]
	line      line          // of all claims
	byOwner   table.Compact // of claims that name a request
	beyond    table.Share   // of claims beyond the first on a page
	locations table.Slab[location]
	lapses    lapses
	news      news
	journal   journal
	cfg       Config `snap:"share"`

	cached  [memory.PoolsMax]table.List // by pool: entries whose page only the cache has, those used longest ago first
	spare   [memory.PoolsMax]uint32     `snap:"skip"` // the pages of those
	closing bool                        // the rank drains: nothing is kept any more
	noted   []spot                      `snap:"scratch"` // of the batch that is looked at
}

// Config is what bounds a store, and what it does with what nobody expects.
type Config struct {
	Seed      uint64 // of hashes: a secret of the rank
	Entries   int    // keys known
	Locations int    // of these, at senders
	Pages     int    // each may have a first claim
	Claims    int    // beyond the first on a page, of which no class has more than it leaves; and lapses remembered
	Classes   int
	TTL       effects.Duration // of a claim, and then of the memory that it lapsed

	Retention Retention
	Journal   int // changes remembered; 0: none
}

// New returns an empty store.
func New(cfg Config) Store { return new(Store).Emptied(cfg) }

// Emptied returns what New does, in the memory of s, which is not used any more.
func (s *Store) Emptied(cfg Config) Store {
	return Store{
		entries: s.entries.Emptied(cfg.Entries), byKey: s.byKey.Emptied(), names: s.names.emptied(cfg.Entries),
		claims: s.claims.Emptied(cfg.Pages + cfg.Claims), byOwner: s.byOwner.Emptied(),
		beyond: s.beyond.Emptied(cfg.Claims, cfg.Classes), locations: s.locations.Emptied(cfg.Locations),
		lapses: s.lapses.emptied(cfg.Claims), journal: s.journal.emptied(cfg.Journal), cfg: cfg, news: s.news.emptied(),
		noted: s.noted,
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

// EntriesMax is how many keys may be known.
func (s *Store) EntriesMax() int { return s.entries.Max() }

// Room says whether n more keys fit.
func (s *Store) Room(n int) bool { return s.entries.Len()+n <= s.entries.Max() }

// Find returns the key's entry, or zero.
func (s *Store) Find(hash uint64, key []byte) Entry {
	for p := s.byKey.Seek(hash); p.Found(); p = s.byKey.Next(p) {
		h := s.entries.At(p.Slot())
		if e := s.entries.Get(h); e.hash == hash && s.names.is(e.shape, e.digits, key) {
			return h
		}
	}
	return 0
}

// Ready returns the entry's page, if it is whole.
func (s *Store) Ready(h Entry) (effects.Page, bool) {
	e := s.entries.Get(h)
	if e == nil || !e.ready() {
		return effects.Page{}, false
	}
	return e.page(), true
}

// NewBatch forgets what Note remembers.
func (s *Store) NewBatch() { s.noted = s.noted[:0] }

// Note remembers, until NewBatch, that the key stands at this position of a batch.
func (s *Store) Note(h Entry, at int) {
	s.entries.Get(h).noted = uint32(len(s.noted))
	s.noted = append(s.noted, spot{entry: h, at: at})
}

// Noted says where in this batch the key stood before, if it did.
func (s *Store) Noted(h Entry) (at int, ok bool) {
	e := s.entries.Get(h)
	if e == nil || int(e.noted) >= len(s.noted) || s.noted[e.noted].entry != h {
		return 0, false
	}
	return s.noted[e.noted].at, true
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
		*e = entry{hash: hash}
		e.shape, e.digits = s.names.add(key)
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
	took := whole && !e.ready()
	if took {
		e.setPage(page)
		s.admits(e)
	}
	return took
}

// Trust makes the entry readable while its fill goes on, and says whether it was
// not so already. The store owns the page's reference then.
func (s *Store) Trust(h Entry, page effects.Page) bool {
	e := s.entries.Get(h)
	if e.ready() {
		return false
	}
	e.setPage(page)
	s.admits(e)
	return true
}

// admits has those hear who wait for the key, or follow what the store has.
func (s *Store) admits(e *entry) {
	s.news.becomes(e.hash)
	s.journal.note(&s.names, e, false)
}

// Inspect shows the entry at a slot to oracles. The key is valid until the next call.
func (s *Store) Inspect(slot int32) (key []byte, page effects.Page, fills, pins uint32, claims int, ok bool) {
	h := s.entries.At(slot)
	if h == 0 {
		return nil, effects.Page{}, 0, 0, 0, false
	}
	e := s.entries.Get(h)
	return s.names.text(e.shape, e.digits), e.page(), e.fills, e.pins, e.claims.Len(), true
}

// Slots is the range for Inspect.
func (s *Store) Slots() int32 { return s.entries.Slots() }
