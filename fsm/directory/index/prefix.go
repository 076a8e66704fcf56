package index

// A Hit is a holder that has the first chunks of a prefix.
type Hit struct {
	Holder Holder
	Chunks int
}

// PrefixMost is the longest prefix that is looked up.
const PrefixMost = 1<<16 - 1

// ahead is the number of hashes that are looked up side by side, so that their rows are loaded from memory
// concurrently.
const ahead = 32

// perLine is the number of slots in a cache line. Most rows stand in the line of their home or in the next line.
const perLine = 4

// Prefix appends to hits the holders that have the first of these chunks of a rank, and the number of chunks that
// each has without a gap. Hidden and retired holders are excluded, and so are the holders of the owner but. The
// number of hits is at most [Limits.OfChunk]. At most PrefixMost hashes are examined.
func (x *Index) Prefix(rank uint32, hashes []uint64, but int, hits []Hit) []Hit {
	if len(x.run) < len(x.holders.rows) {
		x.run = make([]uint16, len(x.holders.rows)+len(x.holders.rows)/4)
	}
	begin, key := len(hits), x.hider.of(rank)
	hashes = hashes[:min(len(hashes), PrefixMost)]
	for from := 0; from < len(hashes); from += ahead {
		part := hashes[from:min(from+ahead, len(hashes))]
		var rows [ahead]uint64
		x.fetch(part, key, &rows)
		if from == 0 {
			hits = x.begin(rows[0], but, hits)
		}
		for i := range part {
			// A holder with all chunks before this hash and with this chunk has a further chunk.
			if from+i > 0 && !x.carry(rows[i], uint16(from+i)) || len(hits) == begin {
				return x.end(hits, begin)
			}
		}
	}
	return x.end(hits, begin)
}

// fetch looks up the rows of some hashes, 0 where there is none. Each loop starts all of the loop's loads before the
// next loop needs the first of them. Only the last two loops branch on loaded values.
func (x *Index) fetch(hashes []uint64, key uint64, rows *[ahead]uint64) {
	var places [ahead]uint64
	var in [ahead]*segment
	var home [ahead]int
	for i, hash := range hashes {
		places[i&(ahead-1)] = x.hider.hide(hash, key)
	}
	for i := range hashes {
		s := x.segmentOf(places[i&(ahead-1)])
		in[i&(ahead-1)], home[i&(ahead-1)] = s, s.home(places[i&(ahead-1)])
	}
	seen := uint64(0)
	for i := range hashes {
		slots, at := in[i&(ahead-1)].slots, home[i&(ahead-1)]
		seen |= slots[at].place | slots[min(at+perLine, len(slots)-1)].place
	}
	for i := range hashes {
		s, place := in[i&(ahead-1)], places[i&(ahead-1)]
		at := s.from(home[i&(ahead-1)], place)
		if rows[i&(ahead-1)] = 0; s.has(at, place) {
			rows[i&(ahead-1)] = s.slots[at].ids
		}
	}
	for i := range hashes {
		if ids := rows[i&(ahead-1)]; chained(ids) {
			seen |= uint64(x.blocks.at(chainHead(ids)).next)
		}
	}
	x.seen = seen
}

// begin appends the holders of the first chunk to hits.
func (x *Index) begin(ids uint64, but int, hits []Hit) []Hit {
	try := func(id Holder) {
		if h := &x.holders.rows[id]; h.state == shown && h.of != but {
			hits = append(hits, Hit{Holder: id})
			x.run[id] = 1
		}
	}
	if !chained(ids) {
		for ; ids != 0; ids >>= idBits {
			try(Holder(ids))
		}
		return hits
	}
	in := inHead(chainLen(ids))
	for number := chainHead(ids); number != 0; in = blockIDs {
		b := x.blocks.at(number)
		for _, id := range b.ids[:in] {
			try(id)
		}
		number = b.next
	}
	return hits
}

// carry extends the run of each holder that has had all chunks so far and has the next chunk. The result says whether
// there is a holder of this kind.
func (x *Index) carry(ids uint64, had uint16) bool {
	any, run := false, x.run
	if !chained(ids) {
		for ; ids != 0; ids >>= idBits {
			if r := &run[Holder(ids)]; *r == had {
				*r = had + 1
				any = true
			}
		}
		return any
	}
	in := inHead(chainLen(ids))
	for number := chainHead(ids); number != 0; in = blockIDs {
		b := x.blocks.at(number)
		for _, id := range b.ids[:in] {
			if r := &run[id]; *r == had {
				*r = had + 1
				any = true
			}
		}
		number = b.next
	}
	return any
}

// end fills in the chunk counts of the hits from begin on, and resets the runs.
func (x *Index) end(hits []Hit, begin int) []Hit {
	for i := begin; i < len(hits); i++ {
		h := &hits[i]
		h.Chunks = int(x.run[h.Holder])
		x.run[h.Holder] = 0
	}
	return hits
}
