package store

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/memory"
)

// Retention is the policy for a ready chunk that no request expects and no reader uses.
type Retention uint8

// The policies.
const (
	Consume        Retention = iota // the chunk is dropped
	Cache                           // the chunk stays until the page is needed for another chunk
	retentionCount                  // the number of policies
)

// IsKnown reports whether r is one of the policies.
func (r Retention) IsKnown() bool { return r < retentionCount }

// A keeper is what keeps the page of a ready entry, besides claims and pins.
type keeper uint8

const (
	keeperNone        keeper = iota
	keeperCache              // the entry is in Store.cached, and is evicted when the page is needed
	keeperEngine             // the engine keeps the page (KeepEnginePage), which is never evicted to make room
	keeperWithdrawing        // the engine wants the page back (WithdrawPage); the page is dropped with the last claim and pin
)

// DropUnused removes what nothing keeps: the ready page, if there is no claim and no pin and the policy does not keep
// the page; and the entry, if it has no page, no fill and no location. DropUnused is the one place that applies the
// policy. DropUnused never evicts another chunk, because the callers are in the middle of an operation.
func (s *Store) DropUnused(h Entry, v *env.Env) {
	e := s.entries.Get(h)
	if e == nil || e.pins > 0 || e.claims.Len() > 0 {
		return
	}
	if e.isReady() && !s.keepUnclaimed(h, e, v) {
		s.dropPage(e, v)
	}
	s.removeIfEmpty(h, e)
}

// keepUnclaimed reports whether the cache or the engine keeps a page without claims and pins, and puts the entry into
// the cache if the policy says so. A page to which another component has a reference as well is not cached, because
// such a page could not be freed on demand.
func (s *Store) keepUnclaimed(h Entry, e *entry, v *env.Env) bool {
	switch e.keeper {
	case keeperCache, keeperEngine:
		return true
	case keeperWithdrawing:
		return false
	case keeperNone:
	}
	if s.cfg.Retention != Cache || s.closing {
		return false
	}
	p := v.Pools.PoolOf(e.page())
	if !p.IsEvictable(e.page()) {
		return false
	}
	e.keeper = keeperCache
	s.entries.PushBack(&s.cached[p.Index()], h)
	s.evictablePages[p.Index()] += p.FrameSize(e.page())
	p.MarkEvictable(e.page())
	return true
}

// dropPage releases the entry's page.
func (s *Store) dropPage(e *entry, v *env.Env) {
	if e.keeper == keeperWithdrawing {
		s.events.withdrawnKeys = append(s.events.withdrawnKeys, e.hash)
	}
	s.journal.recordChange(&s.names, e, true)
	v.Pools.PoolOf(e.page()).DropRef(e.page())
	e.setPage(effects.Page{})
	e.keeper = keeperNone
	s.events.chunkDropped = true
}

// removeIfEmpty removes an entry that has no page, no fill and no location.
func (s *Store) removeIfEmpty(h Entry, e *entry) {
	if !e.isReady() && e.fills == 0 && e.locations.Len() == 0 {
		s.byKey.Remove(e.hash, h)
		s.names.removeKey(e.shape)
		s.entries.Remove(h)
	}
}

// removeFromCache takes an entry out of the cache, because a request expects the chunk or a reader uses it. When that
// has ended the entry is the most recently used one.
func (s *Store) removeFromCache(h Entry, e *entry, v *env.Env) {
	if e.keeper == keeperCache {
		p := v.Pools.PoolOf(e.page())
		s.entries.Unlink(&s.cached[p.Index()], h)
		s.evictablePages[p.Index()] -= p.FrameSize(e.page())
		e.keeper = keeperNone
	}
}

// EvictablePages returns the number of pages of p that MakeRoom could free: the pages that only the cache keeps. They
// are not free, and must not be promised to anybody before they are.
func (s *Store) EvictablePages(p *memory.Pool) uint32 { return s.evictablePages[p.Index()] }

// TouchEntry makes an entry the most recently used one of the cache, and returns the number of pages that the entry has
// in p. TouchEntry returns 0 if the entry is not in the cache, or if the page is in another pool and so takes no room
// from p.
func (s *Store) TouchEntry(v *env.Env, h Entry, p *memory.Pool) uint32 {
	e := s.entries.Get(h)
	if e == nil || e.keeper != keeperCache {
		return 0
	}
	home := v.Pools.PoolOf(e.page())
	s.entries.Unlink(&s.cached[home.Index()], h)
	s.entries.PushBack(&s.cached[home.Index()], h)
	if home != p {
		return 0
	}
	return p.FrameSize(e.page())
}

// MakeRoom ensures that n pages of p are free, if necessary by evicting cached chunks, least recently used first.
// MakeRoom spares the stay pages that were used most recently. If that cannot free enough pages, MakeRoom evicts
// nothing and returns false. A caller must be about to take the pages, and only pages may be missing, so that no chunk
// is evicted in vain.
func (s *Store) MakeRoom(v *env.Env, p *memory.Pool, n, spared uint32) bool {
	if p.FreePages() >= n {
		return true
	}
	if p.FreePages()+s.EvictablePages(p)-spared < n {
		return false
	}
	for p.FreePages() < n {
		s.evictOldest(v, p)
	}
	return true
}

// evictOldest drops the least recently used chunk of the cache in p. evictOldest panics if the page is in use.
func (s *Store) evictOldest(v *env.Env, p *memory.Pool) {
	h := s.cached[p.Index()].Front()
	e := s.entries.Get(h)
	if !p.IsEvictable(e.page()) || e.pins > 0 || e.claims.Len() > 0 {
		panic(fmt.Sprintf("BUG: page %d of the cache is in use", e.pageIndex))
	}
	s.entries.Unlink(&s.cached[p.Index()], h)
	s.evictablePages[p.Index()] -= p.FrameSize(e.page())
	s.dropPage(e, v)
	v.Out.Observe(effects.Observe{Fact: effects.FactEvicted, ID: e.hash})
	s.removeIfEmpty(h, e)
}

// WithdrawAt ends the engine's KeepEnginePage at a slot, if there is one, and reports whether the slot is in the range.
func (s *Store) WithdrawAt(slot int32, v *env.Env) bool {
	h := s.entries.At(slot)
	if e := s.entries.Get(h); e != nil && e.keeper == keeperEngine {
		e.keeper = keeperWithdrawing
		v.Work.SpendRows(1)
		s.DropUnused(h, v)
	}
	return slot < s.entries.Slots()
}

// EvictFirst evicts the least recently used chunk of the first pool that has a cached chunk. EvictFirst reports whether
// there was a cached chunk.
func (s *Store) EvictFirst(v *env.Env) bool {
	for place := range s.cached {
		if s.cached[place].Len() > 0 {
			s.evictOldest(v, v.Pools.Pool(effects.PoolID(place)))
			return true
		}
	}
	return false
}
