package store

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
)

// A lapse is what is remembered of a claim whose time ended before its request came, by the hashes of key
// and request: so that who comes later is told that the chunk was here.
type lapse struct {
	hash    uint64
	request uint64
	until   effects.Time
}

// lapses are the newest ones, those of longest ago first.
type lapses struct {
	slab  table.Slab[lapse]
	index table.Index // by the key's hash
	order table.List
}

func (l *lapses) forget(h table.Handle) {
	l.index.Remove(l.slab.Get(h).hash, h)
	l.slab.Unlink(&l.order, h)
	l.slab.Remove(h)
}

// expire forgets what is remembered for long enough.
func (l *lapses) expire(now effects.Time) {
	for h := l.order.Front(); h != 0 && l.slab.Get(h).until <= now; h = l.order.Front() {
		l.forget(h)
	}
}

// add remembers one, and forgets the oldest where there is no room.
func (l *lapses) add(now effects.Time, x lapse) {
	l.drop(x.hash, x.request)
	l.expire(now)
	if l.slab.Full() {
		l.forget(l.order.Front())
	}
	h, at := l.slab.Add()
	*at = x
	l.index.Add(x.hash, h)
	l.slab.PushBack(&l.order, h)
}

// drop forgets a request's lapse on a key: it has a claim again.
func (l *lapses) drop(hash, request uint64) {
	for p := l.index.Seek(hash); p.Found(); p = l.index.Next(p) {
		if l.slab.Get(p.Handle()).request == request {
			l.forget(p.Handle())
			return
		}
	}
}

// Lapsed says whether a claim on the key lapsed lately that a reader for request would have ended: its own, or one
// that named no request; for a reader that names none, any. It is remembered for as long as the claim stood.
func (s *Store) Lapsed(now effects.Time, hash, request uint64) bool {
	s.lapses.expire(now)
	for p := s.lapses.index.Seek(hash); p.Found(); p = s.lapses.index.Next(p) {
		if by := s.lapses.slab.Get(p.Handle()).request; by == request || by == 0 || request == 0 {
			return true
		}
	}
	return false
}
