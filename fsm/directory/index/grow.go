package index

// grow gives the segment of a place more room: twice the slots while it is small, and then a second segment, which gets
// half of its rows. However large the index is, no other row is touched; the table of segments is doubled now and then.
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

// split makes two segments of one, the places of which begin with the prefix.
func (x *Index) split(number uint32, prefix uint64) {
	s := &x.segments[number]
	rows, depth := s.slots, s.depth+1
	// They are in order, and so those of the upper half are the last ones.
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

// widen looks at one bit more of each place.
func (x *Index) widen() {
	wider := make([]uint32, 2*len(x.table))
	for i, number := range x.table {
		wider[2*i], wider[2*i+1] = number, number
	}
	x.table = wider
	x.depth++
}
