package registrar

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// replyCache is a cache of replies, which are reused for identical lookups for a limited time. Misses are not cached,
// so that new chunks are found at once.
type replyCache struct {
	rows  table.Slab[cachedReply]
	bySum table.Index
	order table.List // oldest first
}

type cachedReply struct {
	sum     uint64
	first   protocol.ChunkHash
	chunks  int
	holders []Holder
	until   effects.Time
}

func (k *replyCache) recycle(limit int) replyCache {
	return replyCache{rows: k.rows.Recycle(limit), bySum: k.bySum.Recycle()}
}

func (k *replyCache) findHandle(sum uint64, hashes []protocol.ChunkHash) table.Handle {
	for p := k.bySum.Find(sum); p.Found(); p = k.bySum.Next(p) {
		a := k.rows.Get(p.Handle())
		if a.sum == sum && a.chunks == len(hashes) && a.first == hashes[0] {
			return p.Handle()
		}
	}
	return 0
}

// expirePerLookup is the number of expired replies that a lookup removes. A lookup adds at most one reply, so the
// expired replies disappear soon.
const expirePerLookup = 2

// findReply returns the cached reply to a question, if there is one that has not expired.
func (k *replyCache) findReply(now effects.Time, sum uint64, hashes []protocol.ChunkHash) ([]Holder, bool) {
	for range expirePerLookup {
		if h := k.order.Front(); h != 0 && k.rows.Get(h).until <= now {
			k.removeRow(h)
		}
	}
	h := k.findHandle(sum, hashes)
	if h == 0 || k.rows.Get(h).until <= now {
		return nil, false
	}
	return k.rows.Get(h).holders, true
}

// addReply caches a reply. If the cache is full, the oldest reply is removed.
func (k *replyCache) addReply(until effects.Time, q *lookup, holders []Holder) {
	if h := k.findHandle(q.sum, q.hashes); h != 0 {
		k.removeRow(h)
	}
	if k.rows.Full() && k.order.Len() > 0 {
		k.removeRow(k.order.Front())
	}
	h, a := k.rows.Add()
	if a == nil {
		return
	}
	*a = cachedReply{sum: q.sum, first: q.hashes[0], chunks: len(q.hashes), holders: holders, until: until}
	k.bySum.Add(q.sum, h)
	k.rows.PushBack(&k.order, h)
}

func (k *replyCache) forgetReply(sum uint64, hashes []protocol.ChunkHash) {
	if len(hashes) == 0 {
		return
	}
	if h := k.findHandle(sum, hashes); h != 0 {
		k.removeRow(h)
	}
}

func (k *replyCache) removeRow(h table.Handle) {
	a := k.rows.Get(h)
	k.bySum.Remove(a.sum, h)
	a.holders = nil
	k.rows.Unlink(&k.order, h)
	k.rows.Remove(h)
}
