package store

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/memory"
)

// Retention says what becomes of a ready chunk that nobody expects or reads any more.
type Retention uint8

// The policies.
const (
	Consume    Retention = iota // it goes
	Cache                       // it stays until its page is wanted for another chunk
	retentions                  // how many there are
)

// Known says whether there is such a policy.
func (r Retention) Known() bool { return r < retentions }

// A keeper is what keeps the page of a ready entry beside claims and pins.
type keeper uint8

const (
	nobody  keeper = iota
	cache          // it is in Store.cached, and goes when its page is wanted
	engine         // Keep: its page is never given up to make room
	leaving        // Withdraw: it goes with the last claim and pin
)

// Settle removes what nothing keeps: the ready page when no claim and no pin is left and Retention says so, the entry
// when no fill and no location is left either. It is the one place that asks the policy, and never makes room itself:
// who ends a claim or a pin is in the middle of something.
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

// keeps says whether something keeps a page that nobody expects or reads. A page that somebody else has as well is not
// the cache's: it could not be given up when it is wanted.
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

// drop gives up the entry's page.
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

// tidy removes an entry of which nothing is left.
func (s *Store) tidy(h Entry, e *entry) {
	if !e.ready() && e.fills == 0 && e.locations.Len() == 0 {
		s.byKey.Remove(e.hash, h)
		s.names.remove(e.shape)
		s.entries.Remove(h)
	}
}

// wanted takes an entry out of the cache, because somebody expects or reads it. When that ends it is the youngest.
func (s *Store) wanted(h Entry, e *entry, v *env.Env) {
	if e.keeper == cache {
		p := v.Pools.Of(e.page())
		s.entries.Unlink(&s.cached[p.Place()], h)
		s.spare[p.Place()] -= p.FrameSize(e.page())
		e.keeper = nobody
	}
}

// Spare is the number of pages of p that MakeRoom could free: those that only the cache has. They are not free: nobody
// is promised one before it is.
func (s *Store) Spare(p *memory.Pool) uint32 { return s.spare[p.Place()] }

// Touch makes an entry the youngest of the cache, and returns how many pages of p it has there: none if it is not in
// the cache, or its page is in another pool, where it takes no room from what p is wanted for.
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

// MakeRoom has n pages of p free, if need be by giving up what the cache has there, oldest first, but for the youngest
// stay pages of it. If that is not enough it says false, and gives up nothing. Who asks is about to take them, and
// nothing but pages can stand in its way: a chunk is not given up in vain.
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

// evict gives up the chunk in p that was used longest ago.
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

// LetGoAt gives up what the engine keeps at a slot, and says whether there is such a slot.
func (s *Store) LetGoAt(slot int32, v *env.Env) bool {
	h := s.entries.At(slot)
	if e := s.entries.Get(h); e != nil && e.keeper == engine {
		e.keeper = leaving
		v.Work.Spend(1)
		s.Settle(h, v)
	}
	return slot < s.entries.Slots()
}

// LetGoFirst gives up what the cache had longest in the first pool where it has anything, and says whether it has.
func (s *Store) LetGoFirst(v *env.Env) bool {
	for place := range s.cached {
		if s.cached[place].Len() > 0 {
			s.evict(v, v.Pools.Pool(effects.PoolID(place)))
			return true
		}
	}
	return false
}
