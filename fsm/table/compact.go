package table

// Compact is an Index of half the size, for tables with a row for each key. It remembers a slot in place of a handle,
// so what is in it must live, and 32 bits of a hash: the caller compares what it finds by more than its hash.
//
//	for p := x.Seek(hash); p.Found(); p = x.Next(p) {
//	    if slab.Get(slab.At(p.Slot())).key == key { ... }
//	}
//
// It must not be changed between Seek and Next.
type Compact struct {
	cells []mark // a power of two, at most three quarters full
	n     int
}

// Emptied is as that of an Index.
func (x *Compact) Emptied() Compact {
	clear(x.cells)
	return Compact{cells: x.cells}
}

type mark struct {
	tag  uint32 // of the hash
	slot uint32 // from 1
}

// Spot is a position in a Compact.
type Spot struct {
	pos  int
	mark mark
}

// Found says whether the spot has an entry.
func (p Spot) Found() bool { return p.mark.slot != 0 }

// Slot is the entry's slot.
func (p Spot) Slot() int32 { return int32(p.mark.slot) - 1 }

func tagOf(hash uint64) uint32 { return uint32(mix(hash)) }

// Seek finds the first entry that may have this hash.
func (x *Compact) Seek(hash uint64) Spot {
	if x.n == 0 {
		return Spot{}
	}
	tag := tagOf(hash)
	return x.scan(tag, int(tag)&(len(x.cells)-1))
}

// Next finds the next entry that may have the same hash.
func (x *Compact) Next(p Spot) Spot { return x.scan(p.mark.tag, (p.pos+1)&(len(x.cells)-1)) }

func (x *Compact) scan(tag uint32, pos int) Spot {
	for ; x.cells[pos].slot != 0; pos = (pos + 1) & (len(x.cells) - 1) {
		if x.cells[pos].tag == tag {
			return Spot{pos: pos, mark: x.cells[pos]}
		}
	}
	return Spot{}
}

// Len is the number of entries.
func (x *Compact) Len() int { return x.n }

// Add inserts the slot of a handle.
func (x *Compact) Add(hash uint64, h Handle) {
	if 4*(x.n+1) > 3*len(x.cells) {
		x.grow()
	}
	x.put(mark{tag: tagOf(hash), slot: uint32(h.Slot() + 1)})
	x.n++
}

func (x *Compact) put(m mark) {
	pos := int(m.tag) & (len(x.cells) - 1)
	for x.cells[pos].slot != 0 {
		pos = (pos + 1) & (len(x.cells) - 1)
	}
	x.cells[pos] = m
}

func (x *Compact) grow() {
	old := x.cells
	x.cells = make([]mark, max(16, 2*len(old)))
	from := 0
	for from < len(old) && old[from].slot != 0 {
		from++
	}
	for i := range old {
		if m := old[(from+i)&(len(old)-1)]; m.slot != 0 {
			x.put(m)
		}
	}
}

// Remove takes out the slot of a handle, which must be there.
func (x *Compact) Remove(hash uint64, h Handle) {
	mask, slot := len(x.cells)-1, uint32(h.Slot()+1)
	pos := int(tagOf(hash)) & mask
	for x.cells[pos].slot != slot {
		if x.cells[pos].slot == 0 {
			panic("BUG: removed from an index twice")
		}
		pos = (pos + 1) & mask
	}
	x.n--
	// Close the gap, so that no probe ends too early and no tombstone remains.
	for next := (pos + 1) & mask; x.cells[next].slot != 0; next = (next + 1) & mask {
		if home := int(x.cells[next].tag) & mask; (next-home)&mask >= (next-pos)&mask {
			x.cells[pos] = x.cells[next]
			pos = next
		}
	}
	x.cells[pos] = mark{}
}
