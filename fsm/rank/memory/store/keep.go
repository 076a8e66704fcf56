package store

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
)

// An engine may let the store have a page that it goes on using itself: it stays as it is, so peers may read it as
// well. Such a page is not the cache's, and never given up to make room: the engine alone says when that ends.

// Keep makes the engine's page the chunk of key until Withdraw, and says false if the key has another page already:
// then nothing is kept. The store has a reference of its own to it. Room must hold.
func (s *Store) Keep(v *env.Env, hash uint64, key []byte, page effects.Page) (Entry, bool) {
	h := s.need(hash, key)
	e := s.entries.Get(h)
	if e.ready() {
		return h, false
	}
	v.Pools.Of(page).Share(page)
	e.setPage(page)
	e.keeper = engine
	s.admits(e)
	return h, true
}

// Admit makes a page the chunk of key, and the caller's reference to it the store's. It says false if the key has a
// page already: then nothing has changed. Room must hold.
func (s *Store) Admit(v *env.Env, hash uint64, key []byte, page effects.Page) bool {
	h := s.need(hash, key)
	e := s.entries.Get(h)
	if e.ready() {
		return false
	}
	e.setPage(page)
	s.admits(e)
	s.Settle(h, v)
	return true
}

// Withdraw ends Keep, and says whether the page is the engine's alone from now on. If not, somebody expects or reads
// it: the chunk stays for those, is nobody's to begin with any more (Leaving), and is among Withdrawn when it has gone.
func (s *Store) Withdraw(h Entry, v *env.Env) bool {
	e := s.entries.Get(h)
	if e == nil || e.keeper != engine {
		panic("BUG: withdrew what the engine did not keep")
	}
	if e.pins > 0 || e.claims.Len() > 0 {
		e.keeper = leaving
		return false
	}
	s.drop(e, v)
	s.tidy(h, e)
	return true
}

// Kept says that the engine keeps a ready page here, and has not begun to take it back, nor has a drain.
func (s *Store) Kept(h Entry) bool {
	e := s.entries.Get(h)
	return e != nil && e.keeper == engine
}

// Leaving says that the engine wants a ready page back: whoever has no pin and no claim of it begins nothing with it.
func (s *Store) Leaving(h Entry) bool {
	e := s.entries.Get(h)
	return e != nil && e.keeper == leaving
}

// Withdrawn are the hashes of keys whose pages are the engine's alone since HeardWithdrawn, that were not at Withdraw.
func (s *Store) Withdrawn() []uint64 { return s.news.withdrawn }

// HeardWithdrawn says that the engine has heard.
func (s *Store) HeardWithdrawn() { s.news.withdrawn = s.news.withdrawn[:0] }
