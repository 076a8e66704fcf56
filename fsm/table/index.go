package table

// Index finds handles by hash. It is an open-addressing table. Different keys may have equal hashes, so the caller
// compares keys:
//
//	for p := x.Seek(hash); p.Found(); p = x.Next(p) {
//	    if slab.Get(p.Handle()).key == key { ... }
//	}
//
// Entries with the same hash are found in the order in which they were added. The index must not be changed between
// Seek and Next. However large the index is, adding an entry moves at most the entries of one part.
type Index struct {
	first buckets
	more  []buckets // further parts of an index with many entries; see partOf
	n     int
}

// Emptied returns an empty index in the memory of x. The caller must not use x afterwards. The size of that memory has
// no effect that a caller can observe.
func (x *Index) Emptied() Index {
	if x.n > 0 { // Else all cells are empty already.
		clear(x.first.cells)
	}
	return Index{first: buckets{cells: x.first.cells}}
}

// buckets is a part of an index.
type buckets struct {
	cells []bucket // a power of two of cells, at most half full
	n     int
}

// bucket is an entry. The zero bucket is an empty cell.
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

// Found reports whether there is an entry with the sought hash at the probe.
func (p Probe) Found() bool { return p.h != 0 }

// Handle returns the handle of the entry.
func (p Probe) Handle() Handle { return p.h }

// of returns the part that holds the entries with a mixed hash.
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

// scan finds the first entry with a hash at or behind a position.
func (t *buckets) scan(hash uint64, pos int) Probe {
	mask := len(t.cells) - 1
	for pos &= mask; t.cells[pos].h != 0; pos = (pos + 1) & mask {
		if t.cells[pos].hash == hash {
			return Probe{hash: hash, pos: pos, h: t.cells[pos].h}
		}
	}
	return Probe{}
}

// Len returns the number of entries.
func (x *Index) Len() int { return x.n }

// Add inserts an entry.
func (x *Index) Add(hash uint64, h Handle) {
	if x.n++; x.n > perPart*(len(x.more)+1) {
		x.split()
	}
	x.of(mix(hash)).add(bucket{hash, h})
}

// split adds a part, which takes about half of the entries of another part.
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

// grow doubles the number of cells.
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

// gap returns the index of an empty cell. Entries that are read from there, round the end of the cells, keep the order
// in which Seek and Next find them: a run that goes on at the beginning of the cells is read after its part at the end.
func gap(cells []bucket) int {
	from := 0
	for from < len(cells) && cells[from].h != 0 {
		from++
	}
	return from
}

// Remove removes an entry. Remove panics if the entry is not in the index.
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
