package index

// grow gives the segment of a place more room: twice the slots while it is small, and then a second segment, which gets
// half of its rows. However large the index is, no other row is touched; the table of segments is doubled now and then.
func (x *Index) grow(place uint64) {
	number := x.table[place>>(perWord-x.depth)]
	s := &x.segments[number]
	if slots := 8 * int(s.most) / 7; slots < slotsMost {
		larger := newSegment(2*slots, s.depth)
		larger.fill(s.slots)
		*s = larger
		return
	}
	x.split(number)
}

// split makes two segments of one.
func (x *Index) split(number uint32) {
	depth := x.segments[number].depth
	if depth == x.depth {
		x.widen()
	}
	// The rows are in order, and so those of the upper half are the last ones.
	s := &x.segments[number]
	x.spare = append(x.spare[:0], s.slots...)
	lower, bit := 0, uint64(1)<<(perWord-1-depth)
	prefix := uint64(0)
	for i, row := range x.spare {
		if row.ids == 0 {
			continue
		}
		if prefix = row.place >> (perWord - depth); row.place&bit == 0 {
			lower = i + 1
		}
	}
	clear(s.slots)
	s.rows, s.depth = 0, depth+1
	s.fill(x.spare[:lower])
	upper := newSegment(slotsMost, depth+1)
	upper.fill(x.spare[lower:])
	x.segments = append(x.segments, upper)
	from := (2*prefix + 1) << (x.depth - depth - 1)
	for i := range uint64(1) << (x.depth - depth - 1) {
		x.table[from+i] = uint32(len(x.segments) - 1)
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
