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
	rows    table.Slab[lapse]
	byOwner table.Index
	order   table.List
	keys    table.Slab[keyLapses]
	byKey   table.Index
}

// keyLapses says of a key how many lapses are remembered, and when the last one of these expires.
type keyLapses struct {
	hash  uint64
	count int
	until effects.Time
}

func (l *lapses) recycle(limit int) lapses {
	return lapses{
		rows: l.rows.Recycle(limit), byOwner: l.byOwner.Recycle(), keys: l.keys.Recycle(limit), byKey: l.byKey.Recycle(),
	}
}

// removeLapse removes a record.
func (l *lapses) removeLapse(h table.Handle) {
	x := l.rows.Get(h)
	l.byOwner.Remove(ownerHash(x.hash, x.request), h)
	key := l.byKey.Find(x.hash).Handle()
	k := l.keys.Get(key)
	if k.count--; k.count == 0 {
		l.byKey.Remove(x.hash, key)
		l.keys.Remove(key)
	}
	l.rows.Unlink(&l.order, h)
	l.rows.Remove(h)
}

// expirePerAdd is the number of expired records that are removed when a record is added. More than one are removed, so
// that the table soon has no expired records.
const expirePerAdd = 4

// expireOldest removes up to expirePerAdd expired records.
func (l *lapses) expireOldest(now effects.Time) {
	for range expirePerAdd {
		h := l.order.Front()
		if h == 0 || l.rows.Get(h).until > now {
			return
		}
		l.removeLapse(h)
	}
}

// addLapse inserts a record. If the table is full, the oldest record is removed.
func (l *lapses) addLapse(now effects.Time, x lapse) {
	l.dropLapse(x.hash, x.request)
	l.expireOldest(now)
	if l.rows.Full() {
		l.removeLapse(l.order.Front())
	}
	h, at := l.rows.Add()
	*at = x
	l.byOwner.Add(ownerHash(x.hash, x.request), h)
	l.rows.PushBack(&l.order, h)
	k := l.keys.Get(l.byKey.Find(x.hash).Handle())
	if k == nil {
		h, k = l.keys.Add()
		*k = keyLapses{hash: x.hash}
		l.byKey.Add(x.hash, h)
	}
	k.count, k.until = k.count+1, max(k.until, x.until)
}

// findLapse returns the lapse of a request on a key, or zero.
func (l *lapses) findLapse(hash, request uint64) table.Handle {
	for p := l.byOwner.Find(ownerHash(hash, request)); p.Found(); p = l.byOwner.Next(p) {
		if x := l.rows.Get(p.Handle()); x.hash == hash && x.request == request {
			return p.Handle()
		}
	}
	return 0
}

// dropLapse removes the lapse of a request on a key, because the request has a claim again.
func (l *lapses) dropLapse(hash, request uint64) {
	if h := l.findLapse(hash, request); h != 0 {
		l.removeLapse(h)
	}
}

// HasLapsed reports whether a claim on the key has expired lately that a reader for request would have used up: the
// claim of that request, or a claim that named no request. For a reader that names no request any lapse on the key
// counts. A lapse is remembered for as long as the claim lasted.
func (s *Store) HasLapsed(now effects.Time, hash, request uint64) bool {
	l := &s.lapses
	if request == 0 {
		k := l.keys.Get(l.byKey.Find(hash).Handle())
		return k != nil && k.until > now
	}
	return l.hasLapse(now, hash, request) || l.hasLapse(now, hash, 0)
}

// hasLapse reports whether a lapse is remembered and has not expired.
func (l *lapses) hasLapse(now effects.Time, hash, request uint64) bool {
	x := l.rows.Get(l.findLapse(hash, request))
	return x != nil && x.until > now
}
