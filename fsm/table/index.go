package table

// Index finds handles by hash: an open-addressing table. Equal hashes may stand
// for different keys, so the caller compares:
//
//	for p := x.Seek(hash); p.Found(); p = x.Next(p) {
//	    if slab.Get(p.Handle()).key == key { ... }
//	}
//
// Entries with the same hash are found in the order in which they were added. The index must not be changed between
// Seek and Next. However large it is, an entry more moves those of one part at the most.
type Index struct {
	first buckets
	more  []buckets // once there are many entries: see partOf
	n     int
}

// Emptied returns an index without entries, in the memory of x, which is not used any more. How much that is makes no
// difference that anybody can see.
func (x *Index) Emptied() Index {
	if x.n > 0 { // Else all cells are empty already.
		clear(x.first.cells)
	}
	return Index{first: buckets{cells: x.first.cells}}
}

// buckets are a part of an index.
type buckets struct {
	cells []bucket // a power of two, at most half full
	n     int
}

type bucket struct {
	hash uint64
	h    Handle
}

// Probe is a position in an Index.
type Probe struct {
	hash uint64
	pos  int
	h    Handle
}

// Found says whether the probe stands on an entry with its hash.
func (p Probe) Found() bool { return p.h != 0 }

// Handle is the entry's handle.
func (p Probe) Handle() Handle { return p.h }

// of is the part in which the entries with a mixed hash are.
func (x *Index) of(mixed uint64) *buckets {
	if parts := len(x.more) + 1; parts > 1 {
		return x.at(partOf(mixed>>15, parts))
	}
	return &x.first
}

func (x *Index) at(part int) *buckets {
	if part == 0 {
		return &x.first
	}
	return &x.more[part-1]
}

// Seek finds the first entry with this hash.
func (x *Index) Seek(hash uint64) Probe {
	if x.n == 0 {
		return Probe{}
	}
	mixed := mix(hash)
	return x.of(mixed).scan(hash, int(mixed))
}

// Next finds the next entry with the same hash.
func (x *Index) Next(p Probe) Probe { return x.of(mix(p.hash)).scan(p.hash, p.pos+1) }

func (t *buckets) scan(hash uint64, pos int) Probe {
	mask := len(t.cells) - 1
	for pos &= mask; t.cells[pos].h != 0; pos = (pos + 1) & mask {
		if t.cells[pos].hash == hash {
			return Probe{hash: hash, pos: pos, h: t.cells[pos].h}
		}
	}
	return Probe{}
}

// Len is the number of entries.
func (x *Index) Len() int { return x.n }

// Add inserts an entry.
func (x *Index) Add(hash uint64, h Handle) {
	if x.n++; x.n > perPart*(len(x.more)+1) {
		x.split()
	}
	x.of(mix(hash)).add(bucket{hash, h})
}

// split makes one part more, of entries of another.
func (x *Index) split() {
	number := len(x.more) + 1
	x.more = append(x.more, buckets{})
	old := x.at(splits(number))
	cells := old.cells
	*old = buckets{cells: make([]bucket, max(16, len(cells)/2))}
	x.at(number).cells = make([]bucket, len(old.cells))
	from := gap(cells)
	for i := range cells {
		if b := cells[(from+i)&(len(cells)-1)]; b.h != 0 {
			x.of(mix(b.hash)).add(b)
		}
	}
}

func (t *buckets) add(b bucket) {
	if 2*(t.n+1) > len(t.cells) {
		t.grow()
	}
	t.put(b)
	t.n++
}

func (t *buckets) put(b bucket) {
	mask := len(t.cells) - 1
	pos := int(mix(b.hash)) & mask
	for t.cells[pos].h != 0 {
		pos = (pos + 1) & mask
	}
	t.cells[pos] = b
}

func (t *buckets) grow() {
	old := t.cells
	t.cells = make([]bucket, max(16, 2*len(old)))
	from := gap(old)
	for i := range old {
		if b := old[(from+i)&(len(old)-1)]; b.h != 0 {
			t.put(b)
		}
	}
}

// gap is a place behind which entries stand in the order in which they are found: those that go on at the beginning
// come after those at the end.
func gap(cells []bucket) int {
	from := 0
	for from < len(cells) && cells[from].h != 0 {
		from++
	}
	return from
}

// Remove takes out the entry, which must be there.
func (x *Index) Remove(hash uint64, h Handle) {
	x.of(mix(hash)).remove(hash, h)
	x.n--
}

func (t *buckets) remove(hash uint64, h Handle) {
	cells, mask := t.cells, len(t.cells)-1
	pos := int(mix(hash)) & mask
	for cells[pos].h != h || cells[pos].hash != hash {
		if cells[pos].h == 0 {
			panic("BUG: removed from an index twice")
		}
		pos = (pos + 1) & mask
	}
	t.n--
	// Close the gap, so that no probe ends too early and no tombstone remains.
	for next := (pos + 1) & mask; cells[next].h != 0; next = (next + 1) & mask {
		home := int(mix(cells[next].hash)) & mask
		if (next-home)&mask >= (next-pos)&mask {
			cells[pos] = cells[next]
			pos = next
		}
	}
	cells[pos] = bucket{}
}
