// Package store implements the rank's table of keys. An entry stands for one key, and has at most one ready page. An
// entry also has the fills that are in flight for the key, the claims of requests that expect the chunk, the pins of
// readers, and the remote locations at senders from which the chunk can be read.
//
// A caller may rely on the following:
//
//   - No reader sees an entry before the entry's page is whole (rule M7).
//   - A pinned page stays until the page is unpinned.
//   - A claimed page stays for its request until the request comes, abandons the chunk, or lets the time of the claim
//     pass. The last case is reported once, as the fact "lapsed".
//
// A policy ([Retention]) decides about a ready page without claims and pins: the page is freed at once, or is cached
// while there is room.
//
// Example: a landing calls BeginFill for key K when page 7 is granted. When the page is whole, EndFill makes the entry
// ready, and Claim keeps the chunk for request R. R's Get calls Pin, which ends the claim, copies the page, and calls
// Unpin. Nothing keeps the page any more: with Consume the page is freed, and the entry is removed.
package store

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/memory"
	"github.com/kvferry/kvferry/fsm/table"
)

// Entry is a handle on the entry of a key.
type Entry = table.Handle

// An entry is the state of one key. The table has an entry for each known key, so the struct is kept small: the fields
// are in the order of their sizes.
type entry struct {
	hash uint64
	// digits and shape are the key (see names). Snapshots have the hash in place of the key.
	digits     uint64             `snap:"skip"`
	generation effects.Generation // of the page; 0: not ready
	claims     table.List
	locations  table.List
	index      uint32 // index of the page
	length     uint32 // length of the page in bytes
	fills      uint32 // fills in flight
	pins       uint32 // readers that use the page
	unnamed    uint32 // claims that name no request
	noted      uint32 `snap:"scratch"` // index into Store.noted
	shape      int32  `snap:"skip"`
	pool       effects.PoolID
	keeper     keeper // what keeps the page besides claims and pins
}

func (e *entry) ready() bool { return e.generation != 0 }

func (e *entry) page() effects.Page {
	return effects.Page{Pool: e.pool, Index: e.index, Length: e.length, Generation: e.generation}
}

func (e *entry) setPage(p effects.Page) {
	e.pool, e.index, e.length, e.generation = p.Pool, p.Index, p.Length, p.Generation
}

// A spot is the position of a key in a batch.
type spot struct {
	entry Entry
	at    int
}

// Store is the table of keys. The number of entries is bounded by the pool (ready pages), by the fills, and by the
// remote locations.
type Store struct {
	entries   table.Slab[entry]
	byKey     table.Compact
	names     names `snap:"skip"` // the text of the keys
	claims    table.Slab[claim]
	line      line          // all claims, in the order in which they expire
	byOwner   table.Compact // claims that name a request, by key and request
	beyond    table.Share   // shares of the claims beyond the first on each page
	locations table.Slab[location]
	lapses    lapses
	news      news
	journal   journal
	cfg       Config `snap:"share"`

	cached  [memory.PoolsMax]table.List // by pool: entries whose page only the cache keeps, least recently used first
	spare   [memory.PoolsMax]uint32     `snap:"skip"` // by pool: the number of pages of the cached entries
	closing bool                        // the rank drains: the cache keeps nothing more
	noted   []spot                      `snap:"scratch"` // the keys of the current batch (see Note)
}

// Config has the limits of a store, and its policy for chunks that nobody expects.
type Config struct {
	Settings
	Seed    uint64 // seed of the hashes; a secret of the rank
	Entries int    // limit of known keys
	Pages   int    // number of pages; each may have a first claim
	Classes int    // number of fairness classes
	Journal int    // number of changes that the journal remembers; 0: no journal
}

// New returns an empty store.
func New(cfg Config) Store { return new(Store).Emptied(cfg) }

// Emptied returns what New returns, and reuses the memory of s. The caller must not use s afterwards.
func (s *Store) Emptied(cfg Config) Store {
	return Store{
		entries: s.entries.Emptied(cfg.Entries), byKey: s.byKey.Emptied(), names: s.names.emptied(cfg.Entries),
		claims: s.claims.Emptied(cfg.Pages + int(cfg.ClaimsMax)), byOwner: s.byOwner.Emptied(),
		beyond: s.beyond.Emptied(int(cfg.ClaimsMax), cfg.Classes), locations: s.locations.Emptied(int(cfg.LocationsMax)),
		lapses: s.lapses.emptied(int(cfg.ClaimsMax)), journal: s.journal.emptied(cfg.Journal), cfg: cfg, news: s.news.emptied(),
		noted: s.noted,
	}
}

// Hash returns the hash of a key or of a request id in this store.
func (s *Store) Hash(key []byte) uint64 { return table.Hash(s.cfg.Seed, key) }

// RequestHash returns the hash of a request id, or 0 for an empty id.
func (s *Store) RequestHash(id []byte) uint64 {
	if len(id) == 0 {
		return 0
	}
	return s.Hash(id)
}

// Entries returns the number of known keys.
func (s *Store) Entries() int { return s.entries.Len() }

// EntriesMax returns the limit of known keys.
func (s *Store) EntriesMax() int { return s.entries.Max() }

// Room reports whether n more keys fit.
func (s *Store) Room(n int) bool { return s.entries.Len()+n <= s.entries.Max() }

// Find returns the entry of a key, or zero.
func (s *Store) Find(hash uint64, key []byte) Entry {
	for p := s.byKey.Seek(hash); p.Found(); p = s.byKey.Next(p) {
		h := s.entries.At(p.Slot())
		if e := s.entries.Get(h); e.hash == hash && s.names.is(e.shape, e.digits, key) {
			return h
		}
	}
	return 0
}

// Ready returns the page of an entry. Ready reports false if there is no entry or no whole page.
func (s *Store) Ready(h Entry) (effects.Page, bool) {
	e := s.entries.Get(h)
	if e == nil || !e.ready() {
		return effects.Page{}, false
	}
	return e.page(), true
}

// NewBatch discards the positions that Note has recorded.
func (s *Store) NewBatch() { s.noted = s.noted[:0] }

// Note records the position of a key in the current batch, until NewBatch.
func (s *Store) Note(h Entry, at int) {
	s.entries.Get(h).noted = uint32(len(s.noted))
	s.noted = append(s.noted, spot{entry: h, at: at})
}

// Noted returns the position that Note has recorded for a key in the current batch. Noted reports false if the key has
// not occurred.
func (s *Store) Noted(h Entry) (at int, ok bool) {
	e := s.entries.Get(h)
	if e == nil || int(e.noted) >= len(s.noted) || s.noted[e.noted].entry != h {
		return 0, false
	}
	return s.noted[e.noted].at, true
}

// HashOf returns the hash of the entry's key.
func (s *Store) HashOf(h Entry) uint64 { return s.entries.Get(h).hash }

// BeginFill records that a granted page is being filled for a key, and returns the entry. The caller has checked Room.
func (s *Store) BeginFill(hash uint64, key []byte) Entry {
	h := s.need(hash, key)
	s.entries.Get(h).fills++
	return h
}

// need returns the entry of a key, and inserts an entry if there is none.
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

// EndFill ends one fill of an entry. If whole is true, the page is filled. The first whole page makes the entry ready:
// EndFill returns true, and the store owns the caller's reference to the page. If the entry is ready already, or the
// page is not whole, EndFill returns false, and the caller drops the reference. EndFill panics if no fill is in flight.
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

// Trust makes an entry readable while its fill goes on (rule M5). It returns true if the entry was not ready; then the
// store owns the caller's reference to the page.
func (s *Store) Trust(h Entry, page effects.Page) bool {
	e := s.entries.Get(h)
	if e.ready() {
		return false
	}
	e.setPage(page)
	s.admits(e)
	return true
}

// admits records that an entry became ready, for callers that wait for the key and for readers of the journal.
func (s *Store) admits(e *entry) {
	s.news.becomes(e.hash)
	s.journal.note(&s.names, e, false)
}

// Inspect returns the state of the entry at a slot, for oracles. ok is false if the slot is empty. The key is valid
// until the next call.
func (s *Store) Inspect(slot int32) (key []byte, page effects.Page, fills, pins uint32, claims int, ok bool) {
	h := s.entries.At(slot)
	if h == 0 {
		return nil, effects.Page{}, 0, 0, 0, false
	}
	e := s.entries.Get(h)
	return s.names.text(e.shape, e.digits), e.page(), e.fills, e.pins, e.claims.Len(), true
}

// Slots returns the end of the range of slots for Inspect.
func (s *Store) Slots() int32 { return s.entries.Slots() }
