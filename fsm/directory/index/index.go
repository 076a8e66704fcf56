package index

import "math/bits"

// Limits bounds an index.
type Limits struct {
	// Chunks limits the chunks of all holders together: a chunk of two holders counts twice.
	Chunks int
	// Holders limits the holders, including retired holders that are not swept away yet. At most HoldersMost.
	Holders int
	// Groups is the number of groups of holders. No group takes more holders or chunks than remain free for further
	// groups.
	Groups  int
	OfChunk int // holders of a chunk
}

// Index stores which holder has which chunk.
type Index struct {
	limits Limits `snap:"share"`
	// deepest is the depth at which segments are not split any more. Only somebody with knowledge of the seed could
	// direct more rows than usual to a segment of this depth.
	deepest  uint8 `snap:"share"`
	hider    hider
	depth    uint8
	segments []segment
	// table maps the first depth bits of a place to the number of the segment.
	table   []uint32
	rows    int
	blocks  blocks
	holders holders
	sweep   sweep

	// run is, for each holder, the number of chunks of the looked-up prefix that the holder has.
	run []uint16 `snap:"scratch"`
	// groups counts, for each group, the holders of the row under examination. Between uses all counts are 0.
	groups []int32 `snap:"scratch"`
	// seen stores values that fetch loads in advance, so that the compiler cannot remove the loads.
	seen uint64 `snap:"scratch"`
}

// New returns an empty index. The seed must be kept secret.
func New(l Limits, seed uint64) Index {
	return Index{
		limits: l, deepest: uint8(bits.Len(uint(l.Chunks/slotsMost))) + 4, hider: newHider(seed),
		segments: []segment{newSegment(slotsFirst, 0)}, table: []uint32{0},
		holders: newHolders(l),
	}
}

// Outcome is the result of Add and Remove.
type Outcome uint8

// The outcomes.
const (
	Changed Outcome = iota
	Already         // nothing had to be changed
	// Crowded: the chunk has as many holders as it may have, and no group has the chunk more often than the group of
	// this holder will; or the group of this holder has as many chunks as it may have.
	Crowded
)

func (x *Index) segmentOf(place uint64) *segment {
	return &x.segments[x.table[place>>(perWord-x.depth)]]
}

// Add records that a holder has a chunk.
func (x *Index) Add(id Holder, hash uint64) Outcome {
	h := x.live(id)
	place := x.hider.hide(hash, h.rank)
	s := x.segmentOf(place)
	at := s.seek(place)
	there := s.has(at, place)
	if !x.holders.share.May(h.group) {
		if there && x.blocks.holds(s.slots[at].ids, id) {
			return Already
		}
		return Crowded
	}
	if there {
		return x.addTo(&s.slots[at], id, hash)
	}
	if s.full(x.deepest) {
		x.grow(place)
		s = x.segmentOf(place)
		at = s.seek(place)
	}
	s.insert(at, slot{place: place, ids: uint64(id)})
	x.rows++
	x.count(id, hash)
	return Changed
}

// addTo adds a holder to an existing row. If the row is full, addTo makes room by removing retired holders, and then
// by displacing a holder of another group.
func (x *Index) addTo(row *slot, id Holder, hash uint64) Outcome {
	ids, what := x.blocks.join(row.ids, id, x.limits.OfChunk)
	if what == crowded { // Retired holders make room.
		ids, what = x.blocks.join(x.sift(ids), id, x.limits.OfChunk)
	}
	if what == crowded && x.displace(&ids, id, hash) {
		ids, what = x.blocks.join(ids, id, x.limits.OfChunk)
	}
	row.ids = ids
	switch what {
	case already:
		return Already
	case crowded:
		return Crowded
	case changed:
	}
	x.count(id, hash)
	return Changed
}

// displace removes a chunk from a holder of the group that has the chunk most often, if this is more often than the
// group of id will have the chunk. So no group can prevent a holder of another group from being found with a chunk.
// The result says whether a holder was removed. displace examines all holders of the row, at most [Limits.OfChunk].
func (x *Index) displace(ids *uint64, id Holder, hash uint64) bool {
	if x.groups == nil {
		x.groups = make([]int32, x.limits.Groups)
	}
	most, victim, mine := int32(0), Holder(0), x.holders.rows[id].group
	x.each(*ids, func(other Holder) {
		group := x.holders.rows[other].group
		x.groups[group]++
		if n := x.groups[group]; group != mine && n > most {
			most, victim = n, other
		}
	})
	own := x.groups[mine]
	x.each(*ids, func(other Holder) { x.groups[x.holders.rows[other].group] = 0 })
	if most <= own+1 {
		return false
	}
	*ids, _ = x.blocks.leave(*ids, victim)
	x.uncount(victim, hash)
	return true
}

// each calls f for each holder of a row.
func (x *Index) each(ids uint64, f func(Holder)) {
	if !chained(ids) {
		for ; ids != 0; ids >>= idBits {
			f(Holder(ids))
		}
		return
	}
	in := inHead(chainLen(ids))
	for number := chainHead(ids); number != 0; in = blockIDs {
		b := x.blocks.at(number)
		for _, id := range b.ids[:in] {
			f(id)
		}
		number = b.next
	}
}

func (x *Index) uncount(id Holder, hash uint64) {
	h := &x.holders.rows[id]
	h.count--
	h.sum -= sumOf(hash)
	x.holders.share.Give(h.group)
}

func (x *Index) count(id Holder, hash uint64) {
	h := &x.holders.rows[id]
	h.count++
	h.sum += sumOf(hash)
	x.holders.share.Take(h.group)
}

// Remove records that a holder does not have a chunk any more.
func (x *Index) Remove(id Holder, hash uint64) Outcome {
	h := x.live(id)
	place := x.hider.hide(hash, h.rank)
	s := x.segmentOf(place)
	at := s.seek(place)
	if !s.has(at, place) {
		return Already
	}
	ids, what := x.blocks.leave(s.slots[at].ids, id)
	if what == already {
		return Already
	}
	if s.slots[at].ids = ids; ids == 0 {
		s.remove(at)
		x.rows--
	}
	x.uncount(id, hash)
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

// Figures returns the current counts.
func (x *Index) Figures() Figures {
	f := Figures{
		Rows: x.rows, Chunks: x.holders.share.All(), Retired: x.holders.share.Of(x.holders.gone), Holders: x.holders.used,
		Bytes: x.blocks.bytes() + 40*cap(x.segments) + 4*cap(x.table) + 40*cap(x.holders.rows) + 2*cap(x.run),
	}
	for i := range x.segments {
		f.Bytes += 16 * cap(x.segments[i].slots)
	}
	return f
}
