package registrar

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// kept is a cache of replies, which are reused for identical lookups for a limited time. Misses are not cached, so
// that new chunks are found at once.
type kept struct {
	rows  table.Slab[keptAnswer]
	bySum table.Index
	order table.List // oldest first
}

type keptAnswer struct {
	sum     uint64
	first   protocol.ChunkHash
	chunks  int
	holders []Holder
	until   effects.Time
}

func (k *kept) emptied(most int) kept {
	return kept{rows: k.rows.Emptied(most), bySum: k.bySum.Emptied()}
}

func (k *kept) seek(sum uint64, hashes []protocol.ChunkHash) table.Handle {
	for p := k.bySum.Seek(sum); p.Found(); p = k.bySum.Next(p) {
		a := k.rows.Get(p.Handle())
		if a.sum == sum && a.chunks == len(hashes) && a.first == hashes[0] {
			return p.Handle()
		}
	}
	return 0
}

// atOnce is the number of expired replies that a lookup removes. A lookup adds at most one reply, so the expired
// replies disappear soon.
const atOnce = 2

// find returns the cached reply to a question, if there is one that has not expired.
func (k *kept) find(now effects.Time, sum uint64, hashes []protocol.ChunkHash) ([]Holder, bool) {
	for range atOnce {
		if h := k.order.Front(); h != 0 && k.rows.Get(h).until <= now {
			k.remove(h)
		}
	}
	h := k.seek(sum, hashes)
	if h == 0 || k.rows.Get(h).until <= now {
		return nil, false
	}
	return k.rows.Get(h).holders, true
}

// keep caches a reply. If the cache is full, the oldest reply is removed.
func (k *kept) keep(until effects.Time, q *question, holders []Holder) {
	if h := k.seek(q.sum, q.hashes); h != 0 {
		k.remove(h)
	}
	if k.rows.Full() && k.order.Len() > 0 {
		k.remove(k.order.Front())
	}
	h, a := k.rows.Add()
	if a == nil {
		return
	}
	*a = keptAnswer{sum: q.sum, first: q.hashes[0], chunks: len(q.hashes), holders: holders, until: until}
	k.bySum.Add(q.sum, h)
	k.rows.PushBack(&k.order, h)
}

func (k *kept) forget(sum uint64, hashes []protocol.ChunkHash) {
	if len(hashes) == 0 {
		return
	}
	if h := k.seek(sum, hashes); h != 0 {
		k.remove(h)
	}
}

func (k *kept) remove(h table.Handle) {
	a := k.rows.Get(h)
	k.bySum.Remove(a.sum, h)
	a.holders = nil
	k.rows.Unlink(&k.order, h)
	k.rows.Remove(h)
}
