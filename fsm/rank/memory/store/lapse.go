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

// lapses are the newest ones, those of longest ago first. There is one at most for a key and a request. Those whose
// time is over count for nobody. They go a few at a time as others come, and never all at once.
type lapses struct {
	slab    table.Slab[lapse]
	byOwner table.Index
	order   table.List
	keys    table.Slab[lapsed]
	byKey   table.Index
}

// A lapsed is a key, by its hash, how many lapses on it are remembered, and until when the last of them is.
type lapsed struct {
	hash  uint64
	n     int
	until effects.Time
}

func (l *lapses) emptied(most int) lapses {
	return lapses{
		slab: l.slab.Emptied(most), byOwner: l.byOwner.Emptied(), keys: l.keys.Emptied(most), byKey: l.byKey.Emptied(),
	}
}

func (l *lapses) forget(h table.Handle) {
	x := l.slab.Get(h)
	l.byOwner.Remove(ownerHash(x.hash, x.request), h)
	key := l.byKey.Seek(x.hash).Handle()
	k := l.keys.Get(key)
	if k.n--; k.n == 0 {
		l.byKey.Remove(x.hash, key)
		l.keys.Remove(key)
	}
	l.slab.Unlink(&l.order, h)
	l.slab.Remove(h)
}

// atOnce is how many are forgotten as one comes: more than come, so there are soon none whose time is over.
const atOnce = 4

// expire forgets some of what is remembered for long enough.
func (l *lapses) expire(now effects.Time) {
	for range atOnce {
		h := l.order.Front()
		if h == 0 || l.slab.Get(h).until > now {
			return
		}
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
	l.byOwner.Add(ownerHash(x.hash, x.request), h)
	l.slab.PushBack(&l.order, h)
	k := l.keys.Get(l.byKey.Seek(x.hash).Handle())
	if k == nil {
		h, k = l.keys.Add()
		*k = lapsed{hash: x.hash}
		l.byKey.Add(x.hash, h)
	}
	k.n, k.until = k.n+1, max(k.until, x.until)
}

func (l *lapses) find(hash, request uint64) table.Handle {
	for p := l.byOwner.Seek(ownerHash(hash, request)); p.Found(); p = l.byOwner.Next(p) {
		if x := l.slab.Get(p.Handle()); x.hash == hash && x.request == request {
			return p.Handle()
		}
	}
	return 0
}

// drop forgets a request's lapse on a key: it has a claim again.
func (l *lapses) drop(hash, request uint64) {
	if h := l.find(hash, request); h != 0 {
		l.forget(h)
	}
}

// Lapsed says whether a claim on the key lapsed lately that a reader for request would have ended: its own, or one
// that named no request; for a reader that names none, any. It is remembered for as long as the claim stood.
func (s *Store) Lapsed(now effects.Time, hash, request uint64) bool {
	l := &s.lapses
	if request == 0 {
		k := l.keys.Get(l.byKey.Seek(hash).Handle())
		return k != nil && k.until > now
	}
	return l.stands(now, hash, request) || l.stands(now, hash, 0)
}

// stands says whether a lapse is remembered, and not for long enough.
func (l *lapses) stands(now effects.Time, hash, request uint64) bool {
	x := l.slab.Get(l.find(hash, request))
	return x != nil && x.until > now
}
