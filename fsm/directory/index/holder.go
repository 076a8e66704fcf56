package index

import "github.com/kvferry/kvferry/fsm/table"

// A Holder is the number of a set of chunks, such as a location of a worker. Zero is no holder. A number is used
// again only after the last chunk of its former holder has been swept away.
type Holder uint16

// MaxHolders is the largest possible number of holders.
const MaxHolders = chainMark - 1

// A holderState is the state of a holder.
type holderState uint8

const (
	stateUnused  holderState = iota
	stateHidden              // being filled, and not found by lookups
	stateShown               // lookups find the holder
	stateRetired             // being swept away, and not found by lookups
)

// A holder is the row of a Holder. The holder itself and the chunks of the holder count in the shares of the group.
type holder struct {
	group    int
	owner    int    // owner, such as an instance: see FindPrefix
	rank     uint64 // key of the rank
	checksum uint64 // checksum of the chunks
	count    int    // number of chunks
	state    holderState
	nextFree Holder // next number in the list of free numbers
}

// holders is the table of all holders, by their numbers.
type holders struct {
	rows      []holder // row 0 is unused
	limit     int      // limit of holders
	firstFree Holder   // first of the free numbers
	used      int
	// chunkShare counts the chunks of all holders by group. Its last class counts the chunks of retired holders.
	chunkShare table.Share
	// holderShare counts the holders likewise.
	holderShare  table.Share
	retiredClass int // that last class
}

func newHolders(l Limits) holders {
	return holders{
		rows: make([]holder, 1, 4), limit: min(l.Holders, MaxHolders), retiredClass: l.Groups,
		chunkShare:  new(table.Share).Recycle(l.Chunks, l.Groups+1),
		holderShare: new(table.Share).Recycle(min(l.Holders, MaxHolders), l.Groups+1),
	}
}

// OpenHolder creates a holder of chunks of a rank, in a group from 0. owner, an instance for example, can be excluded
// from the results of FindPrefix. The holder is hidden from lookups until ShowHolder. OpenHolder returns 0 if the group
// has as many holders as it may have, including holders that are not swept away yet, or if all numbers are in use.
func (x *Index) OpenHolder(group, owner int, rank uint32) Holder {
	t := &x.holders
	id := t.firstFree
	switch {
	case !t.holderShare.HasRoom(group):
		return 0
	case id != 0:
		t.firstFree = t.rows[id].nextFree
	case len(t.rows) <= t.limit:
		id = Holder(len(t.rows))
		t.rows = append(t.rows, holder{})
	default:
		return 0
	}
	t.rows[id] = holder{group: group, owner: owner, rank: x.cipher.rankKey(rank), state: stateHidden}
	t.used++
	t.holderShare.Acquire(group)
	return id
}

// ShowHolder makes a holder with all chunks visible to lookups.
func (x *Index) ShowHolder(id Holder) { x.liveHolder(id).state = stateShown }

// RetireHolder hides a holder from lookups for good. The number becomes free when all chunks of the holder have been
// swept away.
func (x *Index) RetireHolder(id Holder) {
	t, h := &x.holders, x.liveHolder(id)
	h.state = stateRetired
	t.chunkShare.Add(h.group, -h.count)
	t.chunkShare.Add(t.retiredClass, h.count)
	t.holderShare.Release(h.group)
	t.holderShare.Acquire(t.retiredClass)
	x.sweep.retiredSince = true
	t.releaseIfEmpty(id)
}

// releaseIfEmpty frees the number of a retired holder without chunks.
func (t *holders) releaseIfEmpty(id Holder) {
	if h := &t.rows[id]; h.count == 0 {
		*h = holder{nextFree: t.firstFree}
		t.firstFree = id
		t.used--
		t.holderShare.Release(t.retiredClass)
	}
}

// liveHolder returns the row of a holder that was opened and not retired. The function panics for all further numbers.
func (x *Index) liveHolder(id Holder) *holder {
	h := &x.holders.rows[id]
	if h.state != stateHidden && h.state != stateShown {
		panic("BUG: a holder is used that was retired, or was never opened")
	}
	return h
}

// dropChunk counts the removal of a chunk of a retired holder.
func (t *holders) dropChunk(id Holder) {
	t.rows[id].count--
	t.chunkShare.Release(t.retiredClass)
	t.releaseIfEmpty(id)
}

// CountChunks returns the number of chunks of a holder, and a checksum that is equal in every index in which the holder
// has the same chunks.
func (x *Index) CountChunks(id Holder) (chunks int, sum uint64) {
	h := x.liveHolder(id)
	return h.count, h.checksum
}
