package store

import (
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// A claimOrder lists all claims in the order in which they expire. All claims last equally long, so that this is the
// order in which they were made or renewed. One deadline is enough for all of them.
type claimOrder struct {
	oldest, newest int32          // slots of claims, counted from 1; 0: none
	timedClaim     int32          // the value of oldest when the deadline was set
	timer          kernel.TimerID `snap:"set"`
}

// claimAtSlot returns the claim at a slot that is counted from 1.
func (s *Store) claimAtSlot(slot int32) *claim { return s.claims.Get(s.claims.At(slot - 1)) }

// appendClaim appends a claim to the line. appendClaim panics if the preceding claim expires later.
func (s *Store) appendClaim(c table.Handle) {
	l, x, slot := &s.claimOrder, s.claims.Get(c), c.Slot()+1
	if x.older, x.newer = l.newest, 0; l.newest == 0 {
		l.oldest = slot
	} else {
		last := s.claimAtSlot(l.newest)
		if last.newer = slot; last.expires > x.expires {
			panic("BUG: a claim ends before an older one")
		}
	}
	l.newest = slot
}

// unlinkClaim removes a claim from any position of the line.
func (s *Store) unlinkClaim(c table.Handle) {
	l, x := &s.claimOrder, s.claims.Get(c)
	if x.older == 0 {
		l.oldest, l.timedClaim = x.newer, 0
	} else {
		s.claimAtSlot(x.older).newer = x.newer
	}
	if x.newer == 0 {
		l.newest = x.older
	} else {
		s.claimAtSlot(x.newer).older = x.older
	}
}

// setClaimDeadline sets the deadline to the expiry of the oldest claim. Each function that changes claimOrder calls
// setClaimDeadline when it is done.
func (s *Store) setClaimDeadline(v *env.Env) {
	l := &s.claimOrder
	if l.timedClaim == l.oldest && (l.oldest == 0) == (l.timer == 0) {
		return
	}
	v.Timers.Stop(&l.timer)
	if l.timedClaim = l.oldest; l.oldest != 0 {
		first := s.claimAtSlot(l.oldest)
		v.Timers.Set(&l.timer, first.expires, kernel.Ref{Owner: kernel.OwnerStore, Subject: s.entries.At(first.entrySlot)})
	}
}
