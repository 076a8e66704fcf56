package index

import (
	"math/bits"

	"github.com/kvferry/kvferry/fsm/table"
)

// Limits bounds an index.
type Limits struct {
	// Chunks limits the chunks of all holders together: a chunk of two holders counts twice.
	Chunks int
	// Holders limits the holders, including retired holders that are not swept away yet. At most MaxHolders.
	Holders int
	// Groups is the number of groups of holders. No group takes more holders or chunks than remain free for further
	// groups.
	Groups          int
	HoldersPerChunk int // holders of a chunk
}

// Index stores which holder has which chunk.
type Index struct {
	limits Limits `snap:"share"`
	// maxDepth is the depth at which segments are not split any more. Only somebody with knowledge of the seed could
	// direct more rows than usual to a segment of this depth.
	maxDepth uint8 `snap:"share"`
	cipher   placeCipher
	depth    uint8
	segments []segment
	// segmentTable maps the first depth bits of a place to the number of the segment.
	segmentTable []uint32
	rowCount     int
	blocks       blocks
	holders      holders
	sweep        sweep

	// runLengths is, for each holder, the number of chunks of the looked-up prefix that the holder has.
	runLengths []uint16 `snap:"scratch"`
	// groupCounts counts, for each group, the holders of the row under examination. Between uses all counts are 0.
	groupCounts []int32 `snap:"scratch"`
	// prefetched stores values that fetch loads in advance, so that the compiler cannot remove the loads.
	prefetched uint64 `snap:"scratch"`
}

// New returns an empty index. The seed must be kept secret.
func New(l Limits, seed uint64) Index {
	return Index{
		limits: l, maxDepth: uint8(bits.Len(uint(l.Chunks/slotsMax))) + 4, cipher: newPlaceCipher(seed),
		segments: []segment{newSegment(slotsFirst, 0)}, segmentTable: []uint32{0},
		holders: newHolders(l),
	}
}

// Outcome is the result of Add and Remove.
type Outcome uint8

// The outcomes.
const (
	Changed   Outcome = iota
	Unchanged         // nothing had to be changed
	// Crowded: the chunk has as many holders as it may have, and no group has the chunk more often than the group of
	// this holder will; or the group of this holder has as many chunks as it may have.
	Crowded
)

func (x *Index) segmentOf(place uint64) *segment {
	return &x.segments[x.segmentTable[place>>(wordBits-x.depth)]]
}

// Add records that a holder has a chunk.
func (x *Index) Add(id Holder, hash uint64) Outcome {
	h := x.liveHolder(id)
	place := x.cipher.placeOf(hash, h.rank)
	s := x.segmentOf(place)
	at := s.findSlot(place)
	present := s.hasRow(at, place)
	if !x.holders.chunkShare.HasRoom(h.group) {
		if present && x.blocks.hasHolder(s.slots[at].ids, id) {
			return Unchanged
		}
		return Crowded
	}
	if present {
		return x.addToRow(&s.slots[at], id, hash)
	}
	if s.isFull(x.maxDepth) {
		x.growSegment(place)
		s = x.segmentOf(place)
		at = s.findSlot(place)
	}
	s.insertRow(at, slot{place: place, ids: uint64(id)})
	x.rowCount++
	x.countChunk(id, hash)
	return Changed
}

// addToRow adds a holder to an existing row. If the row is full, addToRow makes room by removing retired holders, and
// then by displacing a holder of another group.
func (x *Index) addToRow(row *slot, id Holder, hash uint64) Outcome {
	ids, what := x.blocks.addHolder(row.ids, id, x.limits.HoldersPerChunk)
	if what == rowCrowded { // Retired holders make room.
		ids, what = x.blocks.addHolder(x.removeRetired(ids), id, x.limits.HoldersPerChunk)
	}
	if what == rowCrowded && x.displaceHolder(&ids, id, hash) {
		ids, what = x.blocks.addHolder(ids, id, x.limits.HoldersPerChunk)
	}
	row.ids = ids
	switch what {
	case rowUnchanged:
		return Unchanged
	case rowCrowded:
		return Crowded
	case rowChanged:
	}
	x.countChunk(id, hash)
	return Changed
}

// displaceHolder removes a chunk from a holder of the group that has the chunk most often, if this is more often than
// the group of id will have the chunk. So no group can prevent a holder of another group from being found with a chunk.
// The result says whether a holder was removed. displaceHolder examines all holders of the row, at most
// [Limits.HoldersPerChunk].
func (x *Index) displaceHolder(ids *uint64, id Holder, hash uint64) bool {
	if x.groupCounts == nil {
		x.groupCounts = make([]int32, x.limits.Groups)
	}
	largest, victim, ownGroup := int32(0), Holder(0), x.holders.rows[id].group
	x.forEachHolder(*ids, func(other Holder) {
		group := x.holders.rows[other].group
		x.groupCounts[group]++
		if n := x.groupCounts[group]; group != ownGroup && n > largest {
			largest, victim = n, other
		}
	})
	ownCount := x.groupCounts[ownGroup]
	x.forEachHolder(*ids, func(other Holder) { x.groupCounts[x.holders.rows[other].group] = 0 })
	if largest <= ownCount+1 {
		return false
	}
	*ids, _ = x.blocks.removeHolder(*ids, victim)
	x.uncountChunk(victim, hash)
	return true
}

// forEachHolder calls f for each holder of a row.
func (x *Index) forEachHolder(ids uint64, f func(Holder)) {
	if !isChain(ids) {
		for ; ids != 0; ids >>= idBits {
			f(Holder(ids))
		}
		return
	}
	in := inHead(chainLen(ids))
	for number := chainHead(ids); number != 0; in = holdersPerBlock {
		b := x.blocks.blockAt(number)
		for _, id := range b.ids[:in] {
			f(id)
		}
		number = b.next
	}
}

func (x *Index) uncountChunk(id Holder, hash uint64) {
	h := &x.holders.rows[id]
	h.count--
	h.checksum -= chunkChecksum(hash)
	x.holders.chunkShare.Release(h.group)
}

func (x *Index) countChunk(id Holder, hash uint64) {
	h := &x.holders.rows[id]
	h.count++
	h.checksum += chunkChecksum(hash)
	x.holders.chunkShare.Acquire(h.group)
}

// Remove records that a holder does not have a chunk any more.
func (x *Index) Remove(id Holder, hash uint64) Outcome {
	h := x.liveHolder(id)
	place := x.cipher.placeOf(hash, h.rank)
	s := x.segmentOf(place)
	at := s.findSlot(place)
	if !s.hasRow(at, place) {
		return Unchanged
	}
	ids, outcome := x.blocks.removeHolder(s.slots[at].ids, id)
	if outcome == rowUnchanged {
		return Unchanged
	}
	if s.slots[at].ids = ids; ids == 0 {
		s.removeRow(at)
		x.rowCount--
	}
	x.uncountChunk(id, hash)
	return Changed
}

// Figures counts the contents of an index.
type Figures struct {
	Rows int // hashes, each counted once for each rank
	// Chunks counts the chunks of all holders, including chunks that are not swept away yet.
	Chunks  int
	Retired int // chunks, among these, of retired holders
	Holders int
	Bytes   int // memory in use
}

// RecountShares counts the holders and the chunks of each group again. Retired holders are a group of their own.
func (x *Index) RecountShares(r *table.Recount) {
	t := &x.holders
	groupOf := func(h *holder) int {
		if h.state == stateRetired {
			return t.retiredClass
		}
		return h.group
	}
	for i := range t.rows {
		if h := &t.rows[i]; h.state != stateUnused {
			r.Add(groupOf(h), 1)
		}
	}
	r.ReportShare("holders", &t.holderShare, table.Bounded)
	for i := range t.rows {
		if h := &t.rows[i]; h.state != stateUnused {
			r.Add(groupOf(h), h.count)
		}
	}
	r.ReportShare("chunks", &t.chunkShare, table.Bounded)
}

// Figures returns the current counts.
func (x *Index) Figures() Figures {
	f := Figures{
		Rows: x.rowCount, Chunks: x.holders.chunkShare.Total(), Retired: x.holders.chunkShare.CountOf(x.holders.retiredClass),
		Holders: x.holders.used,
		Bytes:   x.blocks.countBytes() + 40*cap(x.segments) + 4*cap(x.segmentTable) + 40*cap(x.holders.rows) + 2*cap(x.runLengths),
	}
	for i := range x.segments {
		f.Bytes += 16 * cap(x.segments[i].slots)
	}
	return f
}
