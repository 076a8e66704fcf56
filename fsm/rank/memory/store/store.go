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
// ready, and ClaimEntry keeps the chunk for request R. R's Get calls PinEntry, which ends the claim, copies the page,
// and calls UnpinEntry. Nothing keeps the page any more: with Consume the page is freed, and the entry is removed.
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
	digits        uint64             `snap:"skip"`
	generation    effects.Generation // of the page; 0: not ready
	claims        table.List
	locations     table.List
	pageIndex     uint32 // index of the page
	pageLength    uint32 // length of the page in bytes
	fills         uint32 // fills in flight
	pins          uint32 // readers that use the page
	unnamedClaims uint32 // claims that name no request
	batchIndex    uint32 `snap:"scratch"` // index into Store.batch
	shape         int32  `snap:"skip"`
	pagePool      effects.PoolID
	keeper        keeper // what keeps the page besides claims and pins
	isForeign     bool   // peers of another trust domain filled it: nobody is told of it but they
}

func (e *entry) isReady() bool { return e.generation != 0 }

func (e *entry) page() effects.Page {
	return effects.Page{Pool: e.pagePool, Index: e.pageIndex, Length: e.pageLength, Generation: e.generation}
}

func (e *entry) setPage(p effects.Page) {
	e.pagePool, e.pageIndex, e.pageLength, e.generation = p.Pool, p.Index, p.Length, p.Generation
}

// A batchKey is the position of a key in a batch.
type batchKey struct {
	entry    Entry
	position int
}

// Store is the table of keys. The number of entries is bounded by the pool (ready pages), by the fills, and by the
// remote locations.
type Store struct {
	entries     table.Slab[entry]
	byKey       table.Compact
	names       names `snap:"skip"` // the text of the keys
	claims      table.Slab[claim]
	claimOrder  claimOrder    // all claims, in the order in which they expire
	byOwner     table.Compact // claims that name a request, by key and request
	extraClaims table.Share   // shares of the claims beyond the first on each page
	locations   table.Slab[location]
	lapses      lapses
	events      keyEvents
	journal     journal
	cfg         Config `snap:"share"`

	cached         [memory.PoolsMax]table.List // by pool: entries whose page only the cache keeps, least recently used first
	evictablePages [memory.PoolsMax]uint32     `snap:"skip"` // by pool: the number of pages of the cached entries
	closing        bool                        // the rank drains: the cache keeps nothing more
	batch          []batchKey                  `snap:"scratch"` // the keys of the current batch (see NotePosition)
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
func New(cfg Config) Store { return new(Store).Recycle(cfg) }

// Recycle returns what New returns, and reuses the memory of s. The caller must not use s afterwards.
func (s *Store) Recycle(cfg Config) Store {
	return Store{
		entries: s.entries.Recycle(cfg.Entries), byKey: s.byKey.Recycle(), names: s.names.recycle(cfg.Entries),
		claims: s.claims.Recycle(cfg.Pages + int(cfg.ClaimsMax)), byOwner: s.byOwner.Recycle(),
		extraClaims: s.extraClaims.Recycle(int(cfg.ClaimsMax), cfg.Classes), locations: s.locations.Recycle(int(cfg.LocationsMax)),
		lapses: s.lapses.recycle(int(cfg.ClaimsMax)), journal: s.journal.recycle(cfg.Journal), cfg: cfg, events: s.events.recycle(),
		batch: s.batch,
	}
}

// HashKey returns the hash of a key or of a request id in this store.
func (s *Store) HashKey(key []byte) uint64 { return table.Hash(s.cfg.Seed, key) }

// HashIn returns the hash of a key as peers of a trust domain use it. Each domain has hashes of its own, so that chunks
// with one key that come from two domains are two entries: a Get of this node's engine finds the chunk of this node's
// domain alone (S32). The seed is secret, so nobody can choose keys whose hashes in two domains are equal.
func (s *Store) HashIn(realm effects.Realm, key []byte) uint64 {
	return table.Hash(s.cfg.Seed^uint64(realm)*realmFactor, key)
}

// realmFactor is odd, so that no two domains have the same seed.
const realmFactor = 0x9E3779B97F4A7C15

// HashRequest returns the hash of a request id, or 0 for an empty id.
func (s *Store) HashRequest(id []byte) uint64 {
	if len(id) == 0 {
		return 0
	}
	return s.HashKey(id)
}

// CountEntries returns the number of known keys.
func (s *Store) CountEntries() int { return s.entries.Len() }

// EntriesMax returns the limit of known keys.
func (s *Store) EntriesMax() int { return s.entries.Max() }

// HasRoom reports whether n more keys fit.
func (s *Store) HasRoom(n int) bool { return s.entries.Len()+n <= s.entries.Max() }

// Find returns the entry of a key, or zero.
func (s *Store) Find(hash uint64, key []byte) Entry {
	for p := s.byKey.Find(hash); p.Found(); p = s.byKey.Next(p) {
		h := s.entries.At(p.Slot())
		if e := s.entries.Get(h); e.hash == hash && s.names.equalsKey(e.shape, e.digits, key) {
			return h
		}
	}
	return 0
}

// ReadyPage returns the page of an entry. ReadyPage reports false if there is no entry or no whole page.
func (s *Store) ReadyPage(h Entry) (effects.Page, bool) {
	e := s.entries.Get(h)
	if e == nil || !e.isReady() {
		return effects.Page{}, false
	}
	return e.page(), true
}

// BeginBatch discards the positions that NotePosition has recorded.
func (s *Store) BeginBatch() { s.batch = s.batch[:0] }

// NotePosition records the position of a key in the current batch, until BeginBatch.
func (s *Store) NotePosition(h Entry, at int) {
	s.entries.Get(h).batchIndex = uint32(len(s.batch))
	s.batch = append(s.batch, batchKey{entry: h, position: at})
}

// NotedPosition returns the position that NotePosition has recorded for a key in the current batch. NotedPosition
// reports false if the key has not occurred.
func (s *Store) NotedPosition(h Entry) (at int, ok bool) {
	e := s.entries.Get(h)
	if e == nil || int(e.batchIndex) >= len(s.batch) || s.batch[e.batchIndex].entry != h {
		return 0, false
	}
	return s.batch[e.batchIndex].position, true
}

// HashOf returns the hash of the entry's key.
func (s *Store) HashOf(h Entry) uint64 { return s.entries.Get(h).hash }

// BeginFill records that a granted page is being filled for a key, and returns the entry. The caller has checked
// HasRoom.
func (s *Store) BeginFill(hash uint64, key []byte) Entry {
	h := s.findOrAdd(hash, key)
	s.entries.Get(h).fills++
	return h
}

// findOrAdd returns the entry of a key, and inserts an entry if there is none.
func (s *Store) findOrAdd(hash uint64, key []byte) Entry {
	h := s.Find(hash, key)
	if h == 0 {
		var e *entry
		h, e = s.entries.Add()
		*e = entry{hash: hash}
		e.shape, e.digits = s.names.addKey(key)
		s.byKey.Add(hash, h)
	}
	return h
}

// MarkForeign records that peers of another trust domain fill an entry, so that the journal and ReadyAt leave the chunk
// out (S32).
func (s *Store) MarkForeign(h Entry) { s.entries.Get(h).isForeign = true }

// EndFill ends one fill of an entry. If whole is true, the page is filled. The first whole page makes the entry ready:
// EndFill returns true, and the store owns the caller's reference to the page. If the entry is ready already, or the
// page is not whole, EndFill returns false, and the caller drops the reference. EndFill panics if no fill is in flight.
func (s *Store) EndFill(h Entry, page effects.Page, whole bool) bool {
	e := s.entries.Get(h)
	if e == nil || e.fills == 0 {
		panic("BUG: a fill ended twice")
	}
	e.fills--
	stored := whole && !e.isReady()
	if stored {
		e.setPage(page)
		s.recordReady(e)
	}
	return stored
}

// TrustFill makes an entry readable while its fill goes on (rule M5). It returns true if the entry was not ready; then
// the store owns the caller's reference to the page.
func (s *Store) TrustFill(h Entry, page effects.Page) bool {
	e := s.entries.Get(h)
	if e.isReady() {
		return false
	}
	e.setPage(page)
	s.recordReady(e)
	return true
}

// recordReady records that an entry became ready, for callers that wait for the key and for readers of the journal.
func (s *Store) recordReady(e *entry) {
	s.events.addReady(e.hash)
	s.journal.recordChange(&s.names, e, false)
}

// InspectAt returns the state of the entry at a slot, for oracles. ok is false if the slot is empty. The key is valid
// until the next call.
func (s *Store) InspectAt(slot int32) (key []byte, page effects.Page, fills, pins uint32, claims int, ok bool) {
	h := s.entries.At(slot)
	if h == 0 {
		return nil, effects.Page{}, 0, 0, 0, false
	}
	e := s.entries.Get(h)
	return s.names.keyText(e.shape, e.digits), e.page(), e.fills, e.pins, e.claims.Len(), true
}

// Slots returns the end of the range of slots for InspectAt.
func (s *Store) Slots() int32 { return s.entries.Slots() }
