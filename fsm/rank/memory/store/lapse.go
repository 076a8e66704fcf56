package store

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
)

// A lapse is the record of a claim that expired before its request came. It has the hashes of key and request, so that
// a request that comes later is told that the chunk was here.
type lapse struct {
	hash    uint64
	request uint64
	until   effects.Time // when the record expires
}

// lapses is the table of the newest lapses, oldest first. A key and a request have at most one lapse. Expired records
// have no effect; a few of them are removed whenever a record is added, so that a step never removes all at once.
type lapses struct {
	slab    table.Slab[lapse]
	byOwner table.Index
	order   table.List
	keys    table.Slab[lapsed]
	byKey   table.Index
}

// lapsed says of a key how many lapses are remembered, and when the last one of these expires.
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

// forget removes a record.
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

// atOnce is the number of expired records that are removed when a record is added. More than one are removed, so that
// the table soon has no expired records.
const atOnce = 4

// expire removes up to atOnce expired records.
func (l *lapses) expire(now effects.Time) {
	for range atOnce {
		h := l.order.Front()
		if h == 0 || l.slab.Get(h).until > now {
			return
		}
		l.forget(h)
	}
}

// add inserts a record. If the table is full, the oldest record is removed.
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

// find returns the lapse of a request on a key, or zero.
func (l *lapses) find(hash, request uint64) table.Handle {
	for p := l.byOwner.Seek(ownerHash(hash, request)); p.Found(); p = l.byOwner.Next(p) {
		if x := l.slab.Get(p.Handle()); x.hash == hash && x.request == request {
			return p.Handle()
		}
	}
	return 0
}

// drop removes the lapse of a request on a key, because the request has a claim again.
func (l *lapses) drop(hash, request uint64) {
	if h := l.find(hash, request); h != 0 {
		l.forget(h)
	}
}

// Lapsed reports whether a claim on the key has expired lately that a reader for request would have used up: the claim
// of that request, or a claim that named no request. For a reader that names no request any lapse on the key counts. A
// lapse is remembered for as long as the claim lasted.
func (s *Store) Lapsed(now effects.Time, hash, request uint64) bool {
	l := &s.lapses
	if request == 0 {
		k := l.keys.Get(l.byKey.Seek(hash).Handle())
		return k != nil && k.until > now
	}
	return l.stands(now, hash, request) || l.stands(now, hash, 0)
}

// stands reports whether a lapse is remembered and has not expired.
func (l *lapses) stands(now effects.Time, hash, request uint64) bool {
	x := l.slab.Get(l.find(hash, request))
	return x != nil && x.until > now
}
