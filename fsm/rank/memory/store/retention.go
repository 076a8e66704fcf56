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
	Consume    Retention = iota // the chunk is dropped
	Cache                       // the chunk stays until the page is needed for another chunk
	retentions                  // the number of policies
)

// Known reports whether r is one of the policies.
func (r Retention) Known() bool { return r < retentions }

// A keeper is what keeps the page of a ready entry, besides claims and pins.
type keeper uint8

const (
	nobody  keeper = iota
	cache          // the entry is in Store.cached, and is evicted when the page is needed
	engine         // the engine keeps the page (Keep), which is never evicted to make room
	leaving        // the engine wants the page back (Withdraw); the page is dropped with the last claim and pin
)

// Settle removes what nothing keeps: the ready page, if there is no claim and no pin and the policy does not keep the
// page; and the entry, if it has no page, no fill and no location. Settle is the one place that applies the policy.
// Settle never evicts another chunk, because the callers are in the middle of an operation.
func (s *Store) Settle(h Entry, v *env.Env) {
	e := s.entries.Get(h)
	if e == nil || e.pins > 0 || e.claims.Len() > 0 {
		return
	}
	if e.ready() && !s.keeps(h, e, v) {
		s.drop(e, v)
	}
	s.tidy(h, e)
}

// keeps reports whether the cache or the engine keeps a page without claims and pins, and puts the entry into the cache
// if the policy says so. A page to which another component has a reference as well is not cached, because such a page
// could not be freed on demand.
func (s *Store) keeps(h Entry, e *entry, v *env.Env) bool {
	switch e.keeper {
	case cache, engine:
		return true
	case leaving:
		return false
	case nobody:
	}
	if s.cfg.Retention != Cache || s.closing {
		return false
	}
	p := v.Pools.Of(e.page())
	if !p.Evictable(e.page()) {
		return false
	}
	e.keeper = cache
	s.entries.PushBack(&s.cached[p.Place()], h)
	s.spare[p.Place()] += p.FrameSize(e.page())
	p.Spare(e.page())
	return true
}

// drop releases the entry's page.
func (s *Store) drop(e *entry, v *env.Env) {
	if e.keeper == leaving {
		s.news.withdrawn = append(s.news.withdrawn, e.hash)
	}
	s.journal.note(&s.names, e, true)
	v.Pools.Of(e.page()).Unref(e.page())
	e.setPage(effects.Page{})
	e.keeper = nobody
	s.news.dropped = true
}

// tidy removes an entry that has no page, no fill and no location.
func (s *Store) tidy(h Entry, e *entry) {
	if !e.ready() && e.fills == 0 && e.locations.Len() == 0 {
		s.byKey.Remove(e.hash, h)
		s.names.remove(e.shape)
		s.entries.Remove(h)
	}
}

// wanted takes an entry out of the cache, because a request expects the chunk or a reader uses it. When that has ended
// the entry is the most recently used one.
func (s *Store) wanted(h Entry, e *entry, v *env.Env) {
	if e.keeper == cache {
		p := v.Pools.Of(e.page())
		s.entries.Unlink(&s.cached[p.Place()], h)
		s.spare[p.Place()] -= p.FrameSize(e.page())
		e.keeper = nobody
	}
}

// Spare returns the number of pages of p that MakeRoom could free: the pages that only the cache keeps. They are not
// free, and must not be promised to anybody before they are.
func (s *Store) Spare(p *memory.Pool) uint32 { return s.spare[p.Place()] }

// Touch makes an entry the most recently used one of the cache, and returns the number of pages that the entry has in
// p. Touch returns 0 if the entry is not in the cache, or if the page is in another pool and so takes no room from p.
func (s *Store) Touch(v *env.Env, h Entry, p *memory.Pool) uint32 {
	e := s.entries.Get(h)
	if e == nil || e.keeper != cache {
		return 0
	}
	of := v.Pools.Of(e.page())
	s.entries.Unlink(&s.cached[of.Place()], h)
	s.entries.PushBack(&s.cached[of.Place()], h)
	if of != p {
		return 0
	}
	return p.FrameSize(e.page())
}

// MakeRoom ensures that n pages of p are free, if necessary by evicting cached chunks, least recently used first.
// MakeRoom spares the stay pages that were used most recently. If that cannot free enough pages, MakeRoom evicts
// nothing and returns false. A caller must be about to take the pages, and only pages may be missing, so that no chunk
// is evicted in vain.
func (s *Store) MakeRoom(v *env.Env, p *memory.Pool, n, stay uint32) bool {
	if p.Free() >= n {
		return true
	}
	if p.Free()+s.Spare(p)-stay < n {
		return false
	}
	for p.Free() < n {
		s.evict(v, p)
	}
	return true
}

// evict drops the least recently used chunk of the cache in p. evict panics if the page is in use.
func (s *Store) evict(v *env.Env, p *memory.Pool) {
	h := s.cached[p.Place()].Front()
	e := s.entries.Get(h)
	if !p.Evictable(e.page()) || e.pins > 0 || e.claims.Len() > 0 {
		panic(fmt.Sprintf("BUG: page %d of the cache is in use", e.index))
	}
	s.entries.Unlink(&s.cached[p.Place()], h)
	s.spare[p.Place()] -= p.FrameSize(e.page())
	s.drop(e, v)
	v.Out.Observe(effects.Observe{Fact: effects.FactEvicted, ID: e.hash})
	s.tidy(h, e)
}

// LetGoAt ends the engine's Keep at a slot, if there is one, and reports whether the slot is in the range.
func (s *Store) LetGoAt(slot int32, v *env.Env) bool {
	h := s.entries.At(slot)
	if e := s.entries.Get(h); e != nil && e.keeper == engine {
		e.keeper = leaving
		v.Work.Spend(1)
		s.Settle(h, v)
	}
	return slot < s.entries.Slots()
}

// LetGoFirst evicts the least recently used chunk of the first pool that has a cached chunk. LetGoFirst reports whether
// there was a cached chunk.
func (s *Store) LetGoFirst(v *env.Env) bool {
	for place := range s.cached {
		if s.cached[place].Len() > 0 {
			s.evict(v, v.Pools.Pool(effects.PoolID(place)))
			return true
		}
	}
	return false
}
