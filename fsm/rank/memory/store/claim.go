package store

import (
	"math/bits"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/memory"
	"github.com/kvferry/kvferry/fsm/table"
)

// A claim is the promise to a request that a ready chunk is kept for that request. Invariant: the page of an entry with
// claims is not freed (M7).
type claim struct {
	request   uint64       // hash of the request id; 0: the claim names no request
	expires   effects.Time // when the claim expires
	entrySlot int32        // slot of the entry, which outlives its claims
	// chargedClass is 1 + the class that the claim counts for. 0: the claim was the first on its page, and counts for
	// no class.
	chargedClass int32
	older        int32 // neighbours in Store.claimOrder: slots, counted from 1; 0: none
	newer        int32
}

// CountClaims returns the number of claims.
func (s *Store) CountClaims() int { return s.claims.Len() }

// CountClaimsOn returns the number of claims on an entry, and 0 if the entry is gone. Use it for inspection only.
func (s *Store) CountClaimsOn(h Entry) int {
	if e := s.entries.Get(h); e != nil {
		return e.claims.Len()
	}
	return 0
}

// RecountShares counts the claims beyond the first on their pages again, and the pages that the cache keeps and that
// nevertheless count for a peer: there are none, because any class can take them.
func (s *Store) RecountShares(r *table.Recount, pools *memory.Pools) {
	table.RecountRows(r, "further claims", &s.extraClaims, &s.claims, table.Empty, func(c *claim) (class, n int) {
		return int(max(0, c.chargedClass-1)), int(min(1, c.chargedClass))
	})
	landed := 0
	for i := range s.cached {
		for h := s.cached[i].Front(); h != 0; h = s.entries.Next(h) {
			page := s.entries.Get(h).page()
			landed += pools.PoolOf(page).CountsLanded(page)
		}
	}
	r.Report("landed pages that only the cache keeps", 1, func(int) int { return landed }, table.Bounded)
}

// ClaimsLeft returns how many more claims of a class certainly fit, on any entries.
func (s *Store) ClaimsLeft(class int) int { return s.extraClaims.FreePlaces(class) }

// ClaimEntry keeps a ready entry for a request. The first claim on a page always fits, so a chunk that landed is kept.
// A further claim is refused (false) when the class has used its share of such claims: then the chunk may be gone when
// the request comes for it. That is a miss, and never wrong data. A request that claims the same entry again renews its
// one claim.
func (s *Store) ClaimEntry(h Entry, class int, request uint64, v *env.Env) bool {
	e := s.entries.Get(h)
	c := s.findClaim(h, e, request)
	if c != 0 {
		s.claims.Unlink(&e.claims, c)
		s.unlinkClaim(c)
	} else {
		extra := e.claims.Len() > 0
		if extra && !s.extraClaims.HasRoom(class) {
			v.Out.Mark(Marks.ClaimsFull)
			return false
		}
		var cl *claim
		c, cl = s.claims.Add()
		if *cl = (claim{request: request, entrySlot: h.Slot()}); extra {
			cl.chargedClass = int32(class) + 1
			s.extraClaims.Acquire(class)
		}
		if request == 0 {
			e.unnamedClaims++
		} else {
			s.byOwner.Add(ownerHash(e.hash, request), c)
		}
	}
	s.removeFromCache(h, e, v)
	s.claims.Get(c).expires = v.Now.Add(s.cfg.ClaimTTL)
	s.lapses.dropLapse(e.hash, request)
	s.claims.PushBack(&e.claims, c)
	s.appendClaim(c)
	s.setClaimDeadline(v)
	return true
}

// ownerHash combines the hash of a key and the hash of a request.
func ownerHash(hash, request uint64) uint64 { return hash ^ bits.RotateLeft64(request, 32) }

// findClaim returns the claim of a named request on an entry, or zero. findClaim uses an index, because all claims of
// the table may be on one entry.
func (s *Store) findClaim(h Entry, e *entry, request uint64) table.Handle {
	if request == 0 {
		return 0
	}
	for p := s.byOwner.Find(ownerHash(e.hash, request)); p.Found(); p = s.byOwner.Next(p) {
		at := s.claims.At(p.Slot())
		if c := s.claims.Get(at); c.entrySlot == h.Slot() && c.request == request {
			return at
		}
	}
	return 0
}

// PinEntry protects a ready page for a reader until UnpinEntry. PinEntry also ends the reader's claim: the claim of the
// reader's request, or else the oldest claim that names no request. A reader that names no request ends no claim.
// PinEntry panics if the entry is not ready.
func (s *Store) PinEntry(h Entry, request uint64, v *env.Env) {
	e := s.entries.Get(h)
	if !e.isReady() {
		panic("BUG: pinned an entry that is not ready")
	}
	s.removeFromCache(h, e, v)
	e.pins++
	if c := s.claimForReader(h, e, request); c != 0 {
		s.dropClaim(e, c)
		s.setClaimDeadline(v)
	}
}

// claimForReader returns the claim that a reader for request uses up, or zero.
func (s *Store) claimForReader(h Entry, e *entry, request uint64) table.Handle {
	if request == 0 {
		return 0
	}
	c := s.findClaim(h, e, request)
	if c == 0 && e.unnamedClaims > 0 {
		for c = e.claims.Front(); s.claims.Get(c).request != 0; c = s.claims.Next(c) {
		}
	}
	return c
}

// UnpinEntry ends a PinEntry. Without further claims and pins, Retention decides about the page. UnpinEntry panics if
// the entry is not pinned.
func (s *Store) UnpinEntry(h Entry, v *env.Env) {
	e := s.entries.Get(h)
	if e == nil || e.pins == 0 {
		panic("BUG: unpinned twice")
	}
	e.pins--
	s.DropUnused(h, v)
}

// OnTimer handles the deadline of the claims on an entry: it ends the claims that have expired, reports them (the fact
// "lapsed"), and remembers the lapses. The page is freed with the last claim only if nobody reads it (DropUnused).
//
// All claims of the table may be on one page. Therefore a step ends only as many as the work budget allows, and the
// deadline for the rest is now. An expired claim still serves its request until the claim is ended.
func (s *Store) OnTimer(h Entry, v *env.Env) {
	hash := s.HashOf(h)
	if n := s.expireClaims(h, v); n > 0 {
		v.Out.Mark(Marks.ClaimExpired)
		v.Out.Observe(effects.Observe{Fact: effects.FactLapsed, Count: n, ID: hash})
	}
}

// expireClaims ends the expired claims on an entry, within the work budget, and returns their number.
func (s *Store) expireClaims(h Entry, v *env.Env) (expired uint32) {
	e := s.entries.Get(h)
	if e == nil {
		return 0
	}
	for c := e.claims.Front(); c != 0 && s.claims.Get(c).expires <= v.Now; c = e.claims.Front() {
		if expired > 0 && !v.Work.HasBudget() {
			v.Out.Mark(Marks.ClaimsCut)
			break
		}
		v.Work.SpendRows(1)
		s.lapses.addLapse(v.Now, lapse{hash: e.hash, request: s.claims.Get(c).request, until: v.Now.Add(s.cfg.ClaimTTL)})
		s.dropClaim(e, c)
		expired++
	}
	s.setClaimDeadline(v)
	s.DropUnused(h, v)
	return expired
}

// ClaimAt returns the request of the claim at a slot. exists reports whether there is a claim; more reports whether a
// sweep of the slots has to go on.
func (s *Store) ClaimAt(slot int32) (request uint64, exists, more bool) {
	if c := s.claims.At(slot); c != 0 {
		return s.claims.Get(c).request, true, true
	}
	return 0, false, slot < s.claims.Slots()
}

// EndClaimAt ends the claim at a slot, which must exist. No lapse is reported.
func (s *Store) EndClaimAt(slot int32, v *env.Env) {
	c := s.claims.At(slot)
	h := s.entries.At(s.claims.Get(c).entrySlot)
	s.dropClaim(s.entries.Get(h), c)
	s.setClaimDeadline(v)
	s.DropUnused(h, v)
}

// StopCaching stops the cache, because the rank is shutting down: from now on a page is kept only by claims, by pins,
// and by the cache or the engine if they keep it already.
func (s *Store) StopCaching() { s.closing = true }

// dropClaim removes a claim from all tables. The caller calls setClaimDeadline and DropUnused.
func (s *Store) dropClaim(e *entry, c table.Handle) {
	cl := s.claims.Get(c)
	if cl.chargedClass != 0 {
		s.extraClaims.Release(int(cl.chargedClass) - 1)
	}
	if cl.request == 0 {
		e.unnamedClaims--
	} else {
		s.byOwner.Remove(ownerHash(e.hash, cl.request), c)
	}
	s.claims.Unlink(&e.claims, c)
	s.unlinkClaim(c)
	s.claims.Remove(c)
}
