package table

// Compact is an Index of half the size, for tables with a row for each key. It stores the slot of a row instead of a
// handle, so each row in the index must be in use. Compact also stores only 32 bits of a hash, so the caller must
// compare what it finds by key:
//
//	for p := x.Seek(hash); p.Found(); p = x.Next(p) {
//	    if slab.Get(slab.At(p.Slot())).key == key { ... }
//	}
//
// The index must not be changed between Seek and Next.
type Compact struct {
	first marks
	more  []marks // further parts, as in an Index
	n     int
}

// Emptied returns an empty index in the memory of x. The caller must not use x afterwards.
func (x *Compact) Emptied() Compact {
	clear(x.first.cells)
	return Compact{first: marks{cells: x.first.cells}}
}

// marks is a part of a Compact: an open-addressing table.
type marks struct {
	cells []mark // a power of two of cells, at most three quarters full
	n     int
}

// mark is an entry. The zero mark is an empty cell.
type mark struct {
	tag  uint32 // 32 bits of the hash
	slot uint32 // the slot number plus 1; 0: empty
}

// Spot is a position in a Compact.
type Spot struct {
	pos  int
	mark mark
}

// Found reports whether there is an entry at the spot.
func (p Spot) Found() bool { return p.mark.slot != 0 }

// Slot returns the slot of the entry.
func (p Spot) Slot() int32 { return int32(p.mark.slot) - 1 }

// tagOf returns the bits of a hash that a Compact stores.
func tagOf(hash uint64) uint32 { return uint32(mix(hash)) }

// of returns the part that holds the entries with a tag.
func (x *Compact) of(tag uint32) *marks {
	if parts := len(x.more) + 1; parts > 1 {
		return x.at(partOf(uint64(tag>>12), parts))
	}
	return &x.first
}

func (x *Compact) at(part int) *marks {
	if part == 0 {
		return &x.first
	}
	return &x.more[part-1]
}

// Seek finds the first entry that may have this hash.
func (x *Compact) Seek(hash uint64) Spot {
	if x.n == 0 {
		return Spot{}
	}
	tag := tagOf(hash)
	return x.of(tag).scan(tag, int(tag))
}

// Next finds the next entry that may have the same hash.
func (x *Compact) Next(p Spot) Spot { return x.of(p.mark.tag).scan(p.mark.tag, p.pos+1) }

// scan finds the first entry with a tag at or behind a position.
func (t *marks) scan(tag uint32, pos int) Spot {
	mask := len(t.cells) - 1
	for pos &= mask; t.cells[pos].slot != 0; pos = (pos + 1) & mask {
		if t.cells[pos].tag == tag {
			return Spot{pos: pos, mark: t.cells[pos]}
		}
	}
	return Spot{}
}

// Len returns the number of entries.
func (x *Compact) Len() int { return x.n }

// Add inserts the slot that h names under a hash.
func (x *Compact) Add(hash uint64, h Handle) {
	if x.n++; x.n > perPart*(len(x.more)+1) {
		x.split()
	}
	tag := tagOf(hash)
	x.of(tag).add(mark{tag: tag, slot: uint32(h.Slot() + 1)})
}

// split adds a part, which takes about half of the entries of another part.
func (x *Compact) split() {
	number := len(x.more) + 1
	x.more = append(x.more, marks{})
	old := x.at(splits(number))
	cells := old.cells
	*old = marks{cells: make([]mark, max(16, len(cells)/2))}
	x.at(number).cells = make([]mark, len(old.cells))
	from := gapOf(cells)
	for i := range cells {
		if m := cells[(from+i)&(len(cells)-1)]; m.slot != 0 {
			x.of(m.tag).add(m)
		}
	}
}

func (t *marks) add(m mark) {
	if 4*(t.n+1) > 3*len(t.cells) {
		t.grow()
	}
	t.put(m)
	t.n++
}

func (t *marks) put(m mark) {
	mask := len(t.cells) - 1
	pos := int(m.tag) & mask
	for t.cells[pos].slot != 0 {
		pos = (pos + 1) & mask
	}
	t.cells[pos] = m
}

// grow doubles the number of cells.
func (t *marks) grow() {
	old := t.cells
	t.cells = make([]mark, max(16, 2*len(old)))
	from := gapOf(old)
	for i := range old {
		if m := old[(from+i)&(len(old)-1)]; m.slot != 0 {
			t.put(m)
		}
	}
}

// gapOf is gap for a Compact.
func gapOf(cells []mark) int {
	from := 0
	for from < len(cells) && cells[from].slot != 0 {
		from++
	}
	return from
}

// Remove removes the slot that h names. Remove panics if the slot is not in the index under this hash.
func (x *Compact) Remove(hash uint64, h Handle) {
	tag := tagOf(hash)
	x.of(tag).remove(tag, uint32(h.Slot()+1))
	x.n--
}

func (t *marks) remove(tag, slot uint32) {
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
	cells[pos] = mark{}
}
