package store

import (
	"math/bits"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/table"
)

// A claim is the promise to a request that a ready chunk is kept for it.
type claim struct {
	request uint64 // hash of the request's id; 0 when it told none
	ends    effects.Time
	entry   int32 // its slot: an entry outlives its claims
	beyond  int32 // plus one, the class whose share it is of; 0: it was the first on its page
	older   int32 // in the line of all claims: slots, from 1
	newer   int32
}

// Claims is the number of claims.
func (s *Store) Claims() int { return s.claims.Len() }

// ClaimsOn is the number of claims on an entry; 0 if there is none. It is to look at only.
func (s *Store) ClaimsOn(h Entry) int {
	if e := s.entries.Get(h); e != nil {
		return e.claims.Len()
	}
	return 0
}

// Beyond is how many claims beyond the first on their pages are counted, and how many there are; to look at only.
func (s *Store) Beyond() (counted, there int) {
	for slot := range s.claims.Slots() {
		if c := s.claims.At(slot); c != 0 && s.claims.Get(c).beyond != 0 {
			there++
		}
	}
	return s.beyond.All(), there
}

// ClaimsLeft is how many claims of class fit, whatever they are on.
func (s *Store) ClaimsLeft(class int) int { return s.beyond.Left(class) }

// Claim notes that a request expects the ready entry. The first claim on a page always fits, so what landed is kept;
// one beyond is refused when class has its share of those: then the chunk may be gone when the request comes for it,
// which is a miss, never wrong. A request that is told twice has one claim, from the second time on.
func (s *Store) Claim(h Entry, class int, request uint64, v *env.Env) bool {
	e := s.entries.Get(h)
	c := s.ownClaim(h, e, request)
	if c != 0 {
		s.claims.Unlink(&e.claims, c)
		s.leave(c)
	} else {
		beyond := e.claims.Len() > 0
		if beyond && !s.beyond.May(class) {
			v.Out.Mark(Marks.ClaimsFull)
			return false
		}
		var cl *claim
		c, cl = s.claims.Add()
		if *cl = (claim{request: request, entry: h.Slot()}); beyond {
			cl.beyond = int32(class) + 1
			s.beyond.Take(class)
		}
		if request == 0 {
			e.unnamed++
		} else {
			s.byOwner.Add(ownerHash(e.hash, request), c)
		}
	}
	s.wanted(h, e, v)
	s.claims.Get(c).ends = v.Now.Add(s.cfg.TTL)
	s.lapses.drop(e.hash, request)
	s.claims.PushBack(&e.claims, c)
	s.join(c)
	s.watch(v)
	return true
}

// ownerHash is that of a key and a request, both of them hashes already.
func ownerHash(hash, request uint64) uint64 { return hash ^ bits.RotateLeft64(request, 32) }

// ownClaim is the claim of a request that is named, or zero. A chunk may be kept for as many requests as there are
// claims: so they are not walked.
func (s *Store) ownClaim(h Entry, e *entry, request uint64) table.Handle {
	if request == 0 {
		return 0
	}
	for p := s.byOwner.Seek(ownerHash(e.hash, request)); p.Found(); p = s.byOwner.Next(p) {
		at := s.claims.At(p.Slot())
		if c := s.claims.Get(at); c.entry == h.Slot() && c.request == request {
			return at
		}
	}
	return 0
}

// Pin lets a reader use the ready page until Unpin. The reader's own claim ends with it: that of its
// request, else the oldest one that names no request. A reader that names no request ends none.
func (s *Store) Pin(h Entry, request uint64, v *env.Env) {
	e := s.entries.Get(h)
	if !e.ready() {
		panic("BUG: pinned an entry that is not ready")
	}
	s.wanted(h, e, v)
	e.pins++
	if c := s.claimOf(h, e, request); c != 0 {
		s.dropClaim(e, c)
		s.watch(v)
	}
}

func (s *Store) claimOf(h Entry, e *entry, request uint64) table.Handle {
	if request == 0 {
		return 0
	}
	c := s.ownClaim(h, e, request)
	if c == 0 && e.unnamed > 0 {
		for c = e.claims.Front(); s.claims.Get(c).request != 0; c = s.claims.Next(c) {
		}
	}
	return c
}

// Unpin ends a Pin; of an entry that nobody claims any more becomes what Retention says.
func (s *Store) Unpin(h Entry, v *env.Env) {
	e := s.entries.Get(h)
	if e == nil || e.pins == 0 {
		panic("BUG: unpinned twice")
	}
	e.pins--
	s.Settle(h, v)
}

// Due ends the claims on an entry whose time is over, tells of them, and remembers that they lapsed. The page goes with
// the last of them only if nobody reads it (Settle). All claims there are may be on one page: so many end in a step,
// and for the oldest of the others the deadline is now. A claim whose time is over is good for its request until it
// ends.
func (s *Store) Due(h Entry, v *env.Env) {
	hash := s.HashOf(h)
	if n := s.expire(h, v); n > 0 {
		v.Out.Mark(Marks.ClaimExpired)
		v.Out.Observe(effects.Observe{Fact: effects.FactLapsed, Count: n, ID: hash})
	}
}

func (s *Store) expire(h Entry, v *env.Env) (expired uint32) {
	e := s.entries.Get(h)
	if e == nil {
		return 0
	}
	for c := e.claims.Front(); c != 0 && s.claims.Get(c).ends <= v.Now; c = e.claims.Front() {
		if expired > 0 && !v.Work.Left() {
			v.Out.Mark(Marks.ClaimsCut)
			break
		}
		v.Work.Spend(1)
		s.lapses.add(v.Now, lapse{hash: e.hash, request: s.claims.Get(c).request, until: v.Now.Add(s.cfg.TTL)})
		s.dropClaim(e, c)
		expired++
	}
	s.watch(v)
	s.Settle(h, v)
	return expired
}

// ClaimAt says whose claim is at a slot, if one is, and whether there is such a slot.
func (s *Store) ClaimAt(slot int32) (request uint64, is, more bool) {
	if c := s.claims.At(slot); c != 0 {
		return s.claims.Get(c).request, true, true
	}
	return 0, false, slot < s.claims.Slots()
}

// EndClaimAt ends the claim at a slot, which is there. Nobody is told.
func (s *Store) EndClaimAt(slot int32, v *env.Env) {
	c := s.claims.At(slot)
	h := s.entries.At(s.claims.Get(c).entry)
	s.dropClaim(s.entries.Get(h), c)
	s.watch(v)
	s.Settle(h, v)
}

// Close keeps nothing any more from now on but for claims and readers: the rank is shutting down.
func (s *Store) Close() { s.closing = true }

func (s *Store) dropClaim(e *entry, c table.Handle) {
	cl := s.claims.Get(c)
	if cl.beyond != 0 {
		s.beyond.Give(int(cl.beyond) - 1)
	}
	if cl.request == 0 {
		e.unnamed--
	} else {
		s.byOwner.Remove(ownerHash(e.hash, cl.request), c)
	}
	s.claims.Unlink(&e.claims, c)
	s.leave(c)
	s.claims.Remove(c)
}
