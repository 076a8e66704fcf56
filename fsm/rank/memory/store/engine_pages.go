package store

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
)

// This file handles pages that the engine shares with the store and goes on using itself. Such a page does not change,
// so that peers may read it as well. The cache does not own the page and never evicts it: only the engine ends the
// sharing.

// KeepEnginePage makes a page of the engine the chunk of a key until WithdrawPage. The store takes a reference of its
// own to the page. KeepEnginePage returns false, and keeps nothing, if the key has another page already. The caller has
// checked HasRoom.
func (s *Store) KeepEnginePage(v *env.Env, hash uint64, key []byte, page effects.Page) (Entry, bool) {
	h := s.findOrAdd(hash, key)
	e := s.entries.Get(h)
	if e.isReady() {
		return h, false
	}
	v.Pools.PoolOf(page).AddRef(page)
	e.setPage(page)
	e.keeper = keeperEngine
	s.recordReady(e)
	return h, true
}

// AdmitPage makes a page the chunk of a key. The store takes over the caller's reference. AdmitPage returns false, and
// changes nothing, if the key has a page already. The caller has checked HasRoom.
func (s *Store) AdmitPage(v *env.Env, hash uint64, key []byte, page effects.Page) bool {
	h := s.findOrAdd(hash, key)
	e := s.entries.Get(h)
	if e.isReady() {
		return false
	}
	e.setPage(page)
	s.recordReady(e)
	s.DropUnused(h, v)
	return true
}

// WithdrawPage ends KeepEnginePage. WithdrawPage returns true if only the engine has the page from now on. Otherwise a
// request expects the chunk or a reader uses it: the chunk stays for these, no other reader may begin with it
// (IsWithdrawing), and the key's hash appears in WithdrawnKeys when the store has dropped the page (M8). WithdrawPage
// panics if the engine does not keep the page.
func (s *Store) WithdrawPage(h Entry, v *env.Env) bool {
	e := s.entries.Get(h)
	if e == nil || e.keeper != keeperEngine {
		panic("BUG: withdrew what the engine did not keep")
	}
	if e.pins > 0 || e.claims.Len() > 0 {
		e.keeper = keeperWithdrawing
		return false
	}
	s.dropPage(e, v)
	s.removeIfEmpty(h, e)
	return true
}

// IsEngineKept reports whether the engine keeps a ready page here. IsEngineKept returns false once WithdrawPage or a
// drain has begun to end this.
func (s *Store) IsEngineKept(h Entry) bool {
	e := s.entries.Get(h)
	return e != nil && e.keeper == keeperEngine
}

// IsWithdrawing reports whether the engine wants its ready page back. A reader without a pin and without a claim must
// not begin to use such a page.
func (s *Store) IsWithdrawing(h Entry) bool {
	e := s.entries.Get(h)
	return e != nil && e.keeper == keeperWithdrawing
}

// WithdrawnKeys returns the hashes of the keys whose pages were given back to the engine after WithdrawPage had
// returned false, since the last call of ClearWithdrawnKeys.
func (s *Store) WithdrawnKeys() []uint64 { return s.events.withdrawnKeys }

// ClearWithdrawnKeys clears the list, after the engine was notified.
func (s *Store) ClearWithdrawnKeys() { s.events.withdrawnKeys = s.events.withdrawnKeys[:0] }
