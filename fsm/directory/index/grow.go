package index

// grow gives the segment of a place more room. A small segment is doubled; a segment of full size is split in two,
// with half of the rows each. However large the index is, no row of another segment is touched. From time to time the
// table of segments is doubled.
func (x *Index) grow(place uint64) {
	number := x.table[place>>(perWord-x.depth)]
	s := &x.segments[number]
	if slots := int(s.most) / fullOf16 * 16; slots < slotsMost {
		larger := newSegment(min(2*slots, slotsMost), s.depth)
		larger.fill(s.slots)
		*s = larger
		return
	}
	if s.depth == x.depth {
		x.widen()
	}
	x.split(number, place>>(perWord-s.depth))
}

// split divides the segment number in two. All places of the segment begin with prefix.
func (x *Index) split(number uint32, prefix uint64) {
	s := &x.segments[number]
	rows, depth := s.slots, s.depth+1
	// The rows are sorted, so the rows of the upper half are the last ones.
	lower := 0
	for i, row := range rows {
		if row.ids != 0 && row.place>>(perWord-depth)&1 == 0 {
			lower = i + 1
		}
	}
	upper := newSegment(slotsSplit, depth)
	upper.fill(rows[lower:])
	*s = newSegment(slotsSplit, depth)
	s.fill(rows[:lower])
	x.segments = append(x.segments, upper)
	entries := uint64(1) << (x.depth - depth) // of the table, for each half
	for i := range entries {
		x.table[(2*prefix+1)*entries+i] = uint32(len(x.segments) - 1)
	}
}

// widen doubles the table of segments, which then uses a further bit of each place.
func (x *Index) widen() {
	wider := make([]uint32, 2*len(x.table))
	for i, number := range x.table {
		wider[2*i], wider[2*i+1] = number, number
	}
	x.table = wider
	x.depth++
}
