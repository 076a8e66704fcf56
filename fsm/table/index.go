package table

// Index finds handles by hash. It is an open-addressing table. Different keys may have equal hashes, so the caller
// compares keys:
//
//	for p := x.Find(hash); p.Found(); p = x.Next(p) {
//	    if slab.Get(p.Handle()).key == key { ... }
//	}
//
// Entries with the same hash are found in the order in which they were added. The index must not be changed between
// Find and Next. However large the index is, adding an entry moves at most the entries of one part.
type Index struct {
	first indexPart
	more  []indexPart // further parts of an index with many entries; see partOf
	n     int
}

// Recycle returns an empty index in the memory of x. The caller must not use x afterwards. The size of that memory has
// no effect that a caller can observe.
func (x *Index) Recycle() Index {
	if x.n > 0 { // Else all cells are empty already.
		clear(x.first.cells)
	}
	return Index{first: indexPart{cells: x.first.cells}}
}

// indexPart is a part of an index.
type indexPart struct {
	cells []indexCell // a power of two of cells, at most half full
	n     int
}

// indexCell is an entry. The zero value is an empty cell.
type indexCell struct {
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

// findPart returns the part that holds the entries with a mixed hash.
func (x *Index) findPart(mixed uint64) *indexPart {
	if parts := len(x.more) + 1; parts > 1 {
		return x.partAt(partOf(mixed>>15, parts))
	}
	return &x.first
}

func (x *Index) partAt(part int) *indexPart {
	if part == 0 {
		return &x.first
	}
	return &x.more[part-1]
}

// Find finds the first entry with this hash.
func (x *Index) Find(hash uint64) Probe {
	if x.n == 0 {
		return Probe{}
	}
	mixed := mixHash(hash)
	return x.findPart(mixed).findFrom(hash, int(mixed))
}

// Next finds the next entry with the same hash.
func (x *Index) Next(p Probe) Probe { return x.findPart(mixHash(p.hash)).findFrom(p.hash, p.pos+1) }

// findFrom finds the first entry with a hash at or behind a position.
func (t *indexPart) findFrom(hash uint64, pos int) Probe {
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
	if x.n++; x.n > entriesPerPart*(len(x.more)+1) {
		x.addPart()
	}
	x.findPart(mixHash(hash)).addEntry(indexCell{hash, h})
}

// addPart adds a part, which takes about half of the entries of another part.
func (x *Index) addPart() {
	number := len(x.more) + 1
	x.more = append(x.more, indexPart{})
	old := x.partAt(partToSplit(number))
	cells := old.cells
	*old = indexPart{cells: make([]indexCell, max(16, len(cells)/2))}
	x.partAt(number).cells = make([]indexCell, len(old.cells))
	from := findEmptyCell(cells)
	for i := range cells {
		if b := cells[(from+i)&(len(cells)-1)]; b.h != 0 {
			x.findPart(mixHash(b.hash)).addEntry(b)
		}
	}
}

func (t *indexPart) addEntry(b indexCell) {
	if 2*(t.n+1) > len(t.cells) {
		t.growCells()
	}
	t.putEntry(b)
	t.n++
}

func (t *indexPart) putEntry(b indexCell) {
	mask := len(t.cells) - 1
	pos := int(mixHash(b.hash)) & mask
	for t.cells[pos].h != 0 {
		pos = (pos + 1) & mask
	}
	t.cells[pos] = b
}

// growCells doubles the number of cells.
func (t *indexPart) growCells() {
	old := t.cells
	t.cells = make([]indexCell, max(16, 2*len(old)))
	from := findEmptyCell(old)
	for i := range old {
		if b := old[(from+i)&(len(old)-1)]; b.h != 0 {
			t.putEntry(b)
		}
	}
}

// findEmptyCell returns the index of an empty cell. Entries that are read from there, round the end of the cells, keep
// the order in which Find and Next find them: a run that goes on at the beginning of the cells is read after its part
// at the end.
func findEmptyCell(cells []indexCell) int {
	from := 0
	for from < len(cells) && cells[from].h != 0 {
		from++
	}
	return from
}

// Remove removes an entry. Remove panics if the entry is not in the index.
func (x *Index) Remove(hash uint64, h Handle) {
	x.findPart(mixHash(hash)).removeEntry(hash, h)
	x.n--
}

func (t *indexPart) removeEntry(hash uint64, h Handle) {
	cells, mask := t.cells, len(t.cells)-1
	pos := int(mixHash(hash)) & mask
	for cells[pos].h != h || cells[pos].hash != hash {
		if cells[pos].h == 0 {
			panic("BUG: removed from an index twice")
		}
		pos = (pos + 1) & mask
	}
	t.n--
	// Close the gap, so that no probe ends too early and no tombstone remains.
	for next := (pos + 1) & mask; cells[next].h != 0; next = (next + 1) & mask {
		home := int(mixHash(cells[next].hash)) & mask
		if (next-home)&mask >= (next-pos)&mask {
			cells[pos] = cells[next]
			pos = next
		}
	}
	cells[pos] = indexCell{}
}
