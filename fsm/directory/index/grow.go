package index

// growSegment gives the segment of a place more room. A small segment is doubled; a segment of full size is split in
// two, with half of the rows each. However large the index is, no row of another segment is touched. From time to time
// the table of segments is doubled.
func (x *Index) growSegment(place uint64) {
	number := x.segmentTable[place>>(wordBits-x.depth)]
	s := &x.segments[number]
	if slots := int(s.maxRows) / fullSixteenths * 16; slots < slotsMax {
		larger := newSegment(min(2*slots, slotsMax), s.depth)
		larger.fillRows(s.slots)
		*s = larger
		return
	}
	if s.depth == x.depth {
		x.widenTable()
	}
	x.splitSegment(number, place>>(wordBits-s.depth))
}

// splitSegment divides the segment number in two. All places of the segment begin with prefix.
func (x *Index) splitSegment(number uint32, prefix uint64) {
	s := &x.segments[number]
	rows, depth := s.slots, s.depth+1
	// The rows are sorted, so the rows of the upper half are the last ones.
	lower := 0
	for i, row := range rows {
		if row.ids != 0 && row.place>>(wordBits-depth)&1 == 0 {
			lower = i + 1
		}
	}
	upper := newSegment(slotsSplit, depth)
	upper.fillRows(rows[lower:])
	*s = newSegment(slotsSplit, depth)
	s.fillRows(rows[:lower])
	x.segments = append(x.segments, upper)
	entries := uint64(1) << (x.depth - depth) // of the table, for each half
	for i := range entries {
		x.segmentTable[(2*prefix+1)*entries+i] = uint32(len(x.segments) - 1)
	}
}

// widenTable doubles the table of segments, which then uses a further bit of each place.
func (x *Index) widenTable() {
	wider := make([]uint32, 2*len(x.segmentTable))
	for i, number := range x.segmentTable {
		wider[2*i], wider[2*i+1] = number, number
	}
	x.segmentTable = wider
	x.depth++
}
