package table

// Compact is an Index in about a third of the memory, for tables with a row for each key: a cell is half as large, and
// more cells are in use. It stores the slot of a row instead of a handle, so each row in the index must be in use, and
// each slot may be in the index at most once. Compact also stores only 32 bits of a hash, so the caller must compare
// what it finds by key:
//
//	for p := x.Find(hash); p.Found(); p = x.Next(p) {
//	    if slab.Get(slab.At(p.Slot())).key == key { ... }
//	}
//
// The index must not be changed between Find and Next.
type Compact struct {
	first compactPart
	more  []compactPart // further parts, as in an Index
	n     int
}

// Recycle returns an empty index in the memory of x. The caller must not use x afterwards.
func (x *Compact) Recycle() Compact {
	clear(x.first.cells)
	return Compact{first: compactPart{cells: x.first.cells}}
}

// compactPart is a part of a Compact: an open-addressing table.
type compactPart struct {
	cells []compactCell // a power of two of cells, at most three quarters full
	n     int
}

// compactCell is an entry. The zero value is an empty cell.
type compactCell struct {
	tag  uint32 // 32 bits of the hash
	slot uint32 // the slot number plus 1; 0: empty
}

// CompactProbe is a position in a Compact.
type CompactProbe struct {
	pos  int
	cell compactCell
}

// Found reports whether there is an entry at the probe.
func (p CompactProbe) Found() bool { return p.cell.slot != 0 }

// Slot returns the slot of the entry.
func (p CompactProbe) Slot() int32 { return int32(p.cell.slot) - 1 }

// tagOf returns the bits of a hash that a Compact stores.
func tagOf(hash uint64) uint32 { return uint32(mixHash(hash)) }

// findPart returns the part that holds the entries with a tag.
func (x *Compact) findPart(tag uint32) *compactPart {
	if parts := len(x.more) + 1; parts > 1 {
		return x.partAt(partOf(uint64(tag>>12), parts))
	}
	return &x.first
}

func (x *Compact) partAt(part int) *compactPart {
	if part == 0 {
		return &x.first
	}
	return &x.more[part-1]
}

// Find finds the first entry that may have this hash.
func (x *Compact) Find(hash uint64) CompactProbe {
	if x.n == 0 {
		return CompactProbe{}
	}
	tag := tagOf(hash)
	return x.findPart(tag).findFrom(tag, int(tag))
}

// Next finds the next entry that may have the same hash.
func (x *Compact) Next(p CompactProbe) CompactProbe {
	return x.findPart(p.cell.tag).findFrom(p.cell.tag, p.pos+1)
}

// findFrom finds the first entry with a tag at or behind a position.
func (t *compactPart) findFrom(tag uint32, pos int) CompactProbe {
	mask := len(t.cells) - 1
	for pos &= mask; t.cells[pos].slot != 0; pos = (pos + 1) & mask {
		if t.cells[pos].tag == tag {
			return CompactProbe{pos: pos, cell: t.cells[pos]}
		}
	}
	return CompactProbe{}
}

// Len returns the number of entries.
func (x *Compact) Len() int { return x.n }

// Add inserts the slot that h names under a hash.
func (x *Compact) Add(hash uint64, h Handle) {
	if x.n++; x.n > entriesPerPart*(len(x.more)+1) {
		x.addPart()
	}
	tag := tagOf(hash)
	x.findPart(tag).addEntry(compactCell{tag: tag, slot: uint32(h.Slot() + 1)})
}

// addPart adds a part, which takes about half of the entries of another part.
func (x *Compact) addPart() {
	number := len(x.more) + 1
	x.more = append(x.more, compactPart{})
	old := x.partAt(partToSplit(number))
	cells := old.cells
	*old = compactPart{cells: make([]compactCell, max(16, len(cells)/2))}
	x.partAt(number).cells = make([]compactCell, len(old.cells))
	from := findEmptyCompactCell(cells)
	for i := range cells {
		if m := cells[(from+i)&(len(cells)-1)]; m.slot != 0 {
			x.findPart(m.tag).addEntry(m)
		}
	}
}

func (t *compactPart) addEntry(m compactCell) {
	if 4*(t.n+1) > 3*len(t.cells) {
		t.growCells()
	}
	t.putEntry(m)
	t.n++
}

func (t *compactPart) putEntry(m compactCell) {
	mask := len(t.cells) - 1
	pos := int(m.tag) & mask
	for t.cells[pos].slot != 0 {
		pos = (pos + 1) & mask
	}
	t.cells[pos] = m
}

// growCells doubles the number of cells.
func (t *compactPart) growCells() {
	old := t.cells
	t.cells = make([]compactCell, max(16, 2*len(old)))
	from := findEmptyCompactCell(old)
	for i := range old {
		if m := old[(from+i)&(len(old)-1)]; m.slot != 0 {
			t.putEntry(m)
		}
	}
}

// findEmptyCompactCell does for a Compact what findEmptyCell does for an Index.
func findEmptyCompactCell(cells []compactCell) int {
	from := 0
	for from < len(cells) && cells[from].slot != 0 {
		from++
	}
	return from
}

// Remove removes the slot that h names, which must be in the index under this hash. Remove panics if it does not meet
// the slot; with another hash of the same run of cells it removes the slot and does not notice.
func (x *Compact) Remove(hash uint64, h Handle) {
	tag := tagOf(hash)
	x.findPart(tag).removeEntry(tag, uint32(h.Slot()+1))
	x.n--
}

func (t *compactPart) removeEntry(tag, slot uint32) {
	cells, mask := t.cells, len(t.cells)-1
	pos := int(tag) & mask
	for cells[pos].slot != slot {
		if cells[pos].slot == 0 {
			panic("BUG: removed from an index twice")
		}
		pos = (pos + 1) & mask
	}
	t.n--
	// Close the gap, so that no probe ends too early and no tombstone remains.
	for next := (pos + 1) & mask; cells[next].slot != 0; next = (next + 1) & mask {
		if home := int(cells[next].tag) & mask; (next-home)&mask >= (next-pos)&mask {
			cells[pos] = cells[next]
			pos = next
		}
	}
	cells[pos] = compactCell{}
}
