package index

import "math/bits"

// A slot is a row, or empty when nobody holds it.
type slot struct {
	place uint64
	ids   uint64
}

// Sizes of a segment. The first one of an index begins small, so that an index of a few rows takes little; the halves
// of one that is split begin with three quarters of the largest. A segment is full when 13 of 16 of its slots are rows.
// So large ones take 20 to 30 bytes for a row, and few rows stand far from their homes.
const (
	slotsFirst = 16
	slotsSplit = 3072
	slotsMost  = 4096
	fullOf16   = 13
)

// A segment has all rows whose places begin with the same bits, as many as its depth, in their order. A row stands in
// the slot that its place names (home) or behind it, with no empty slot between.
type segment struct {
	slots []slot
	homes uint32 // slots that places name; the last ones are only for rows that were pushed behind
	rows  uint32
	most  uint32 // rows, before it is split
	depth uint8
}

// newSegment returns one of so many slots.
func newSegment(slots int, depth uint8) segment {
	return segment{
		slots: make([]slot, slots), homes: uint32(slots - max(1, slots/64)), most: uint32(slots / 16 * fullOf16),
		depth: depth,
	}
}

func (s *segment) home(place uint64) int {
	hi, _ := bits.Mul64(place<<s.depth, uint64(s.homes))
	return int(hi)
}

// full says whether one row more is too much. One of the deepest takes what comes.
func (s *segment) full(deepest uint8) bool { return s.rows >= s.most && s.depth < deepest }

// seek finds the first slot that is empty or whose place is no smaller.
func (s *segment) seek(place uint64) int { return s.from(s.home(place), place) }

// from does so from the home of the place on.
func (s *segment) from(at int, place uint64) int {
	for at < len(s.slots) && s.slots[at].ids != 0 && s.slots[at].place < place {
		at++
	}
	return at
}

// has says whether a slot that seek found is the row of that place.
func (s *segment) has(at int, place uint64) bool {
	return at < len(s.slots) && s.slots[at].ids != 0 && s.slots[at].place == place
}

// insert makes room for a row at a slot that seek found, and pushes those behind it on.
func (s *segment) insert(at int, row slot) {
	free := at
	for free < len(s.slots) && s.slots[free].ids != 0 {
		free++
	}
	if free == len(s.slots) { // More rows were pushed behind the last home than usual.
		s.slots = append(s.slots, slot{})
	}
	copy(s.slots[at+1:free+1], s.slots[at:free])
	s.slots[at] = row
	s.rows++
}

// remove takes the row at a slot out, and moves those behind it nearer to their homes.
func (s *segment) remove(at int) {
	next := at + 1
	for next < len(s.slots) && s.slots[next].ids != 0 && s.home(s.slots[next].place) < next {
		s.slots[next-1] = s.slots[next]
		next++
	}
	s.slots[next-1] = slot{}
	s.rows--
}

// fill sets rows, which are in order and stand elsewhere, into a segment that is empty.
func (s *segment) fill(rows []slot) {
	at := 0
	for _, r := range rows {
		if r.ids == 0 {
			continue
		}
		if at = max(at, s.home(r.place)); at == len(s.slots) {
			s.slots = append(s.slots, slot{})
		}
		s.slots[at] = r
		at++
		s.rows++
	}
}
