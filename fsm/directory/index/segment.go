package index

import "math/bits"

// A slot contains a row; without a holder the slot is empty.
type slot struct {
	place uint64
	ids   uint64
}

// Sizes of a segment. The first segment of an index begins small, so that an index with few rows takes little memory.
// The halves of a split segment begin with three quarters of the largest size. A segment is full when 13 of 16 slots
// contain rows. With these sizes a row of a large segment takes 20 to 30 bytes, and few rows stand far from their
// homes.
const (
	slotsFirst     = 16
	slotsSplit     = 3072
	slotsMax       = 4096
	fullSixteenths = 13
)

// A segment contains, in sorted order, all rows with places that begin with the same depth bits. A row stands in the
// slot that its place selects (its home) or behind that slot, with no empty slot in between.
type segment struct {
	slots []slot
	// homes is the number of slots that can be homes. The remaining slots at the end hold rows that were displaced.
	homes   uint32
	rows    uint32
	maxRows uint32 // rows at which the segment is split
	depth   uint8
}

// newSegment returns an empty segment with the given number of slots.
func newSegment(slots int, depth uint8) segment {
	return segment{
		slots: make([]slot, slots), homes: uint32(slots - max(1, slots/64)), maxRows: uint32(slots / 16 * fullSixteenths),
		depth: depth,
	}
}

func (s *segment) homeSlot(place uint64) int {
	hi, _ := bits.Mul64(place<<s.depth, uint64(s.homes))
	return int(hi)
}

// isFull reports whether the segment has no room for a further row. A segment of the deepest level takes any number.
func (s *segment) isFull(maxDepth uint8) bool { return s.rows >= s.maxRows && s.depth < maxDepth }

// findSlot returns the first slot, from the home of the place on, that is empty or contains a place that is not
// smaller.
func (s *segment) findSlot(place uint64) int { return s.findSlotFrom(s.homeSlot(place), place) }

// findSlotFrom is like seek, for a place with the known home at.
func (s *segment) findSlotFrom(at int, place uint64) int {
	for at < len(s.slots) && s.slots[at].ids != 0 && s.slots[at].place < place {
		at++
	}
	return at
}

// hasRow reports whether the slot at, as returned by seek, contains the row of the place.
func (s *segment) hasRow(at int, place uint64) bool {
	return at < len(s.slots) && s.slots[at].ids != 0 && s.slots[at].place == place
}

// insertRow puts a row into the slot at, as returned by seek, and moves the rows behind that slot by a slot.
func (s *segment) insertRow(at int, row slot) {
	free := at
	for free < len(s.slots) && s.slots[free].ids != 0 {
		free++
	}
	if free == len(s.slots) { // More rows than usual were displaced behind the last home.
		s.slots = append(s.slots, slot{})
	}
	copy(s.slots[at+1:free+1], s.slots[at:free])
	s.slots[at] = row
	s.rows++
}

// removeRow deletes the row in a slot, and moves the rows behind that slot nearer to their homes.
func (s *segment) removeRow(at int) {
	next := at + 1
	for next < len(s.slots) && s.slots[next].ids != 0 && s.homeSlot(s.slots[next].place) < next {
		s.slots[next-1] = s.slots[next]
		next++
	}
	s.slots[next-1] = slot{}
	s.rows--
}

// fillRows copies sorted rows of another segment into an empty segment.
func (s *segment) fillRows(rows []slot) {
	at := 0
	for _, r := range rows {
		if r.ids == 0 {
			continue
		}
		if at = max(at, s.homeSlot(r.place)); at == len(s.slots) {
			s.slots = append(s.slots, slot{})
		}
		s.slots[at] = r
		at++
		s.rows++
	}
}
