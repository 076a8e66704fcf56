package index

import "math/bits"

// Limits of an index.
type Limits struct {
	Chunks  int // of all holders together: the same chunk at two of them counts twice
	Holders int // at most HoldersMost, those counted that are not swept away yet
	Groups  int // of holders, each of which has no more than it leaves, of places and of chunks
	OfChunk int // holders of one chunk
}

// Index remembers who holds which chunk.
type Index struct {
	limits   Limits `snap:"share"`
	deepest  uint8  `snap:"share"` // segments; it would take the seed to have more rows than others at that depth
	hider    hider
	depth    uint8
	segments []segment
	table    []uint32 // by the first bits of a place, as many as depth: its segment
	rows     int
	blocks   blocks
	holders  holders
	sweep    sweep

	run    []uint16 `snap:"scratch"` // by holder: how much of a prefix it has
	groups []int32  `snap:"scratch"` // how many holders of a row each has; zeros but while it is looked at
	seen   uint64   `snap:"scratch"` // of what was loaded early, so that it is loaded
}

// New returns an index in which nobody has anything. The seed is a secret.
func New(l Limits, seed uint64) Index {
	return Index{
		limits: l, deepest: uint8(bits.Len(uint(l.Chunks/slotsMost))) + 4, hider: newHider(seed),
		segments: []segment{newSegment(slotsFirst, 0)}, table: []uint32{0},
		holders: newHolders(l),
	}
}

// Outcome is what came of Add and Remove.
type Outcome uint8

// Outcomes.
const (
	Changed Outcome = iota
	Already         // it was so
	Crowded         // the chunk has as many holders as it may, and no group has it more often than this holder's; or
	//                 this is one more than the holder's group may have
)

func (x *Index) segmentOf(place uint64) *segment {
	return &x.segments[x.table[place>>(perWord-x.depth)]]
}

// Add notes that a holder has a chunk.
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

// addTo does so where others have it.
func (x *Index) addTo(row *slot, id Holder, hash uint64) Outcome {
	ids, what := x.blocks.join(row.ids, id, x.limits.OfChunk)
	if what == crowded { // Those that are gone make room.
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

// displace takes a chunk from a holder of the group that has it most often, if that is more often than the group of id
// will: so no group keeps others from being found with a chunk. It looks at all that have it, [Limits.OfChunk] at most.
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

// each calls f with each holder of a row.
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

// Remove notes that a holder has a chunk no more.
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

// Figures of an index.
type Figures struct {
	Rows    int // hashes, each counted once for each rank
	Chunks  int // of all holders, those counted that are not swept away yet
	Retired int // of these, of holders that are retired
	Holders int
	Bytes   int // of memory
}

// Figures counts.
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
