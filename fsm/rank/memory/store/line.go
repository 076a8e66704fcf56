package store

import (
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// A line lists all claims in the order in which they expire. All claims last equally long, so that this is the order in
// which they were made or renewed. One deadline is enough for all of them.
type line struct {
	oldest, newest int32          // slots of claims, counted from 1; 0: none
	watched        int32          // the value of oldest when the deadline was set
	expiry         kernel.TimerID `snap:"set"`
}

// inLine returns the claim at a slot that is counted from 1.
func (s *Store) inLine(slot int32) *claim { return s.claims.Get(s.claims.At(slot - 1)) }

// join appends a claim to the line. join panics if the preceding claim expires later.
func (s *Store) join(c table.Handle) {
	l, x, slot := &s.line, s.claims.Get(c), c.Slot()+1
	if x.older, x.newer = l.newest, 0; l.newest == 0 {
		l.oldest = slot
	} else {
		last := s.inLine(l.newest)
		if last.newer = slot; last.ends > x.ends {
			panic("BUG: a claim ends before an older one")
		}
	}
	l.newest = slot
}

// leave removes a claim from any position of the line.
func (s *Store) leave(c table.Handle) {
	l, x := &s.line, s.claims.Get(c)
	if x.older == 0 {
		l.oldest, l.watched = x.newer, 0
	} else {
		s.inLine(x.older).newer = x.newer
	}
	if x.newer == 0 {
		l.newest = x.older
	} else {
		s.inLine(x.newer).older = x.older
	}
}

// watch sets the deadline to the expiry of the oldest claim. Each function that changes the line calls watch when it is
// done.
func (s *Store) watch(v *env.Env) {
	l := &s.line
	if l.watched == l.oldest && (l.oldest == 0) == (l.expiry == 0) {
		return
	}
	v.Timers.Stop(&l.expiry)
	if l.watched = l.oldest; l.oldest != 0 {
		first := s.inLine(l.oldest)
		v.Timers.Set(&l.expiry, first.ends, kernel.Ref{Owner: kernel.OwnerStore, Subject: s.entries.At(first.entry)})
	}
}
