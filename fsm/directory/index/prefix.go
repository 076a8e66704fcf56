package index

// A Hit is a holder that has the first chunks of a prefix.
type Hit struct {
	Holder Holder
	Chunks int
}

// MaxPrefix is the longest prefix that is looked up.
const MaxPrefix = 1<<16 - 1

// prefetchCount is the number of hashes that are looked up side by side, so that their rows are loaded from memory
// concurrently.
const prefetchCount = 32

// slotsPerLine is the number of slots in a cache line. Most rows stand in the line of their home or in the next line.
const slotsPerLine = 4

// FindPrefix appends to hits the holders that have the first of these chunks of a rank, and the number of chunks that
// each has without a gap. Hidden and retired holders are excluded, and so are the holders of excludedOwner. The number
// of hits is at most [Limits.HoldersPerChunk]. At most MaxPrefix hashes are examined.
func (x *Index) FindPrefix(rank uint32, hashes []uint64, excludedOwner int, hits []Hit) []Hit {
	if len(x.runLengths) < len(x.holders.rows) {
		x.runLengths = make([]uint16, len(x.holders.rows)+len(x.holders.rows)/4)
	}
	firstHit, key := len(hits), x.cipher.rankKey(rank)
	hashes = hashes[:min(len(hashes), MaxPrefix)]
	for from := 0; from < len(hashes); from += prefetchCount {
		part := hashes[from:min(from+prefetchCount, len(hashes))]
		var rows [prefetchCount]uint64
		x.fetchRows(part, key, &rows)
		if from == 0 {
			hits = x.beginRuns(rows[0], excludedOwner, hits)
		}
		for i := range part {
			// A holder with all chunks before this hash and with this chunk has a further chunk.
			if from+i > 0 && !x.extendRuns(rows[i], uint16(from+i)) || len(hits) == firstHit {
				return x.endRuns(hits, firstHit)
			}
		}
	}
	return x.endRuns(hits, firstHit)
}

// fetchRows looks up the rows of some hashes, 0 where there is none. Each loop starts all of the loop's loads before
// the next loop needs the first of them. Only the last two loops branch on loaded values.
func (x *Index) fetchRows(hashes []uint64, key uint64, rows *[prefetchCount]uint64) {
	var places [prefetchCount]uint64
	var segs [prefetchCount]*segment
	var homes [prefetchCount]int
	for i, hash := range hashes {
		places[i&(prefetchCount-1)] = x.cipher.placeOf(hash, key)
	}
	for i := range hashes {
		s := x.segmentOf(places[i&(prefetchCount-1)])
		segs[i&(prefetchCount-1)], homes[i&(prefetchCount-1)] = s, s.homeSlot(places[i&(prefetchCount-1)])
	}
	seen := uint64(0)
	for i := range hashes {
		slots, at := segs[i&(prefetchCount-1)].slots, homes[i&(prefetchCount-1)]
		seen |= slots[at].place | slots[min(at+slotsPerLine, len(slots)-1)].place
	}
	for i := range hashes {
		s, place := segs[i&(prefetchCount-1)], places[i&(prefetchCount-1)]
		at := s.findSlotFrom(homes[i&(prefetchCount-1)], place)
		if rows[i&(prefetchCount-1)] = 0; s.hasRow(at, place) {
			rows[i&(prefetchCount-1)] = s.slots[at].ids
		}
	}
	for i := range hashes {
		if ids := rows[i&(prefetchCount-1)]; isChain(ids) {
			seen |= uint64(x.blocks.blockAt(chainHead(ids)).next)
		}
	}
	x.prefetched = seen
}

// beginRuns appends the holders of the first chunk to hits.
func (x *Index) beginRuns(ids uint64, excludedOwner int, hits []Hit) []Hit {
	addHit := func(id Holder) {
		if h := &x.holders.rows[id]; h.state == stateShown && h.owner != excludedOwner {
			hits = append(hits, Hit{Holder: id})
			x.runLengths[id] = 1
		}
	}
	if !isChain(ids) {
		for ; ids != 0; ids >>= idBits {
			addHit(Holder(ids))
		}
		return hits
	}
	in := inHead(chainLen(ids))
	for number := chainHead(ids); number != 0; in = holdersPerBlock {
		b := x.blocks.blockAt(number)
		for _, id := range b.ids[:in] {
			addHit(id)
		}
		number = b.next
	}
	return hits
}

// extendRuns extends the run of each holder that has had all chunks so far and has the next chunk. The result says
// whether there is a holder of this kind.
func (x *Index) extendRuns(ids uint64, length uint16) bool {
	extended, run := false, x.runLengths
	if !isChain(ids) {
		for ; ids != 0; ids >>= idBits {
			if r := &run[Holder(ids)]; *r == length {
				*r = length + 1
				extended = true
			}
		}
		return extended
	}
	in := inHead(chainLen(ids))
	for number := chainHead(ids); number != 0; in = holdersPerBlock {
		b := x.blocks.blockAt(number)
		for _, id := range b.ids[:in] {
			if r := &run[id]; *r == length {
				*r = length + 1
				extended = true
			}
		}
		number = b.next
	}
	return extended
}

// endRuns fills in the chunk counts of the hits from firstHit on, and resets the runs.
func (x *Index) endRuns(hits []Hit, firstHit int) []Hit {
	for i := firstHit; i < len(hits); i++ {
		h := &hits[i]
		h.Chunks = int(x.runLengths[h.Holder])
		x.runLengths[h.Holder] = 0
	}
	return hits
}
