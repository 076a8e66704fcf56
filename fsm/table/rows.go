package table

// Handle names one use of one slot of a Slab. Zero names nothing.
//
// The upper half counts the uses of the slot, so a handle of a removed row is not valid again before the slot was used
// 2^32 more times. No handle is kept for so long: a list, an index or a deadline drops a handle when the row ends, a
// driver only holds what is outstanding, and a reference that may outlive the row is compared by a number that does not
// repeat (kernel.Ref.Attempt, grant ids).
type Handle uint64

// makeHandle returns the handle of a use of a slot.
func makeHandle(slot int32, generation uint32) Handle {
	return Handle(generation)<<32 | Handle(uint32(slot+1))
}

// Slot returns the slot that the handle names.
func (h Handle) Slot() int32 { return int32(uint32(h)) - 1 }

// List is a doubly linked list of rows of one Slab. The zero value is empty.
type List struct {
	head Handle
	tail int32 // slot number plus 1; 0: none
	n    int32
}

// Len returns the number of elements.
func (l *List) Len() int { return int(l.n) }

// Front returns the first element, or zero if the list is empty.
func (l *List) Front() Handle { return l.head }

// row is what a Slab knows about a slot beside its value. The struct is small, because a table may have a row for each
// key.
type row struct {
	// life counts the uses of the slot.
	life uint32
	// prev and next are the neighbours in the list of the row: slot numbers plus 1. Invariant: a row that is in a list
	// is in use. In a free slot next is the free slot that is used next.
	prev, next int32
	// live reports whether the slot is in use.
	live bool `snap:"life"`
	// list reports whether the row is in a list.
	list bool
}

// rows is a Slab without its values: which slots are in use, and the lists through them.
//
// The type is separate from Slab to keep programs small. The compiler generates all methods of a generic type for each
// type of values, again in each package that uses such a table, and generates a further method for each promoted
// method. For the same reason operations that only this package uses are functions.
type rows struct {
	rows     Array[row]
	free     int32 // the free slot that is used next, plus 1; each free slot names the next
	lastFree int32 // the free slot that is used last, plus 1
	n        int
	max      int
}

// Len returns the number of rows in use.
func (s *rows) Len() int { return s.n }

// Max returns the bound of the table.
func (s *rows) Max() int { return s.max }

// Full reports whether the table is at its bound, so that Add would fail.
func (s *rows) Full() bool { return s.n >= s.max }

// recycleRows returns the rows of an empty table, in the memory of s.
func recycleRows(s *rows, max int) rows { return rows{rows: s.rows.Recycle(), max: max} }

// allocSlot begins a new use of a free slot and returns its handle, or zero if the table is full.
func allocSlot(s *rows) Handle {
	if s.Full() {
		return 0
	}
	slot := s.free - 1
	if slot < 0 {
		slot = int32(s.rows.Len())
		s.rows.Push(row{}, s.max)
	}
	r := s.rows.At(int(slot))
	if s.free != 0 {
		s.free = r.next
	}
	r.life++
	r.live, r.prev, r.next, r.list = true, 0, 0, false
	s.n++
	return makeHandle(slot, r.life)
}

// isLive reports whether the use that the handle names has not ended.
func isLive(s *rows, h Handle) bool {
	slot := int(uint32(h)) - 1
	if uint(slot) >= uint(s.rows.n) {
		return false
	}
	r := s.rows.At(slot)
	return r.live && r.life == uint32(h>>32)
}

// At returns the handle of the row in a slot, or zero if the slot is free or does not exist.
func (s *rows) At(slot int32) Handle {
	if uint(slot) >= uint(s.rows.n) {
		return 0
	}
	r := s.rows.At(int(slot))
	if !r.live {
		return 0
	}
	return makeHandle(slot, r.life)
}

// Slots returns the number of slots that were ever used. The slots 0 to Slots()-1 are the range for At.
func (s *rows) Slots() int32 { return int32(s.rows.Len()) }

// Remove removes a row and frees its slot. Remove panics if the row was removed before or is in a list.
func (s *rows) Remove(h Handle) {
	slot := h.Slot()
	if !isLive(s, h) {
		panic("BUG: removed from a slab twice")
	}
	r := s.rows.At(int(slot))
	if r.list {
		panic("BUG: removed from a slab while in a list")
	}
	r.live, r.next = false, 0
	s.n--
	if s.free == 0 {
		s.free = slot + 1
	} else {
		rowAt(s, s.lastFree).next = slot + 1
	}
	s.lastFree = slot + 1
}

// rowAt returns the row in a slot, given the slot number plus 1.
func rowAt(s *rows, slotPlus1 int32) *row { return s.rows.At(int(slotPlus1 - 1)) }

// PushBack appends a row to a list. PushBack panics if the row is in a list already.
func (s *rows) PushBack(l *List, h Handle) {
	r := s.rows.At(int(h.Slot()))
	if r.list {
		panic("BUG: element is in a list already")
	}
	r.list, r.prev, r.next = true, l.tail, 0
	if l.tail != 0 {
		rowAt(s, l.tail).next = h.Slot() + 1
	} else {
		l.head = h
	}
	l.tail = h.Slot() + 1
	l.n++
}

// PushFront inserts a row at the front of a list. PushFront panics if the row is in a list already.
func (s *rows) PushFront(l *List, h Handle) {
	r := s.rows.At(int(h.Slot()))
	if r.list {
		panic("BUG: element is in a list already")
	}
	r.list, r.prev, r.next = true, 0, l.head.Slot()+1
	if l.head != 0 {
		s.rows.At(int(l.head.Slot())).prev = h.Slot() + 1
	} else {
		l.tail = h.Slot() + 1
	}
	l.head = h
	l.n++
}

// InsertBefore inserts a row before another row of the list, or at the end of the list if before is zero. InsertBefore
// panics if the row is in a list already, or if the row before which to insert is in none.
func (s *rows) InsertBefore(l *List, h, before Handle) {
	switch before {
	case 0:
		s.PushBack(l, h)
		return
	case l.head:
		s.PushFront(l, h)
		return
	}
	r, next := s.rows.At(int(h.Slot())), s.rows.At(int(before.Slot()))
	if r.list || !next.list {
		panic("BUG: element is in a list already, or is to stand before one that is in none")
	}
	r.list, r.prev, r.next = true, next.prev, before.Slot()+1
	rowAt(s, next.prev).next, next.prev = h.Slot()+1, h.Slot()+1
	l.n++
}

// JoinLists appends all elements of another list to l. The other list is empty afterwards.
func (s *rows) JoinLists(l, other *List) {
	switch {
	case other.n == 0:
		return
	case l.n == 0:
		*l = *other
	default:
		rowAt(s, l.tail).next, s.rows.At(int(other.head.Slot())).prev = other.head.Slot()+1, l.tail
		l.tail, l.n = other.tail, l.n+other.n
	}
	*other = List{}
	checkLength(l)
}

// Unlink removes a row from the list l. Unlink panics if the row is in no list. The row must not be in a different
// list.
func (s *rows) Unlink(l *List, h Handle) {
	r := s.rows.At(int(h.Slot()))
	if !r.list {
		panic("BUG: element is in no list")
	}
	if r.prev != 0 {
		rowAt(s, r.prev).next = r.next
	} else {
		l.head = neighbourHandle(s, r.next)
	}
	if r.next != 0 {
		rowAt(s, r.next).prev = r.prev
	} else {
		l.tail = r.prev
	}
	r.list, r.prev, r.next = false, 0, 0
	l.n--
	checkLength(l)
}

// checkLength panics if the number of rows of a list contradicts the list's ends. A wrong number would stay unnoticed
// until the list is joined with another list, and then rows would be lost.
func checkLength(l *List) {
	if l.n < 0 || (l.n == 0) != (l.head == 0) || (l.n <= 1) != (l.head.Slot()+1 == l.tail) {
		panic("BUG: the number of rows of a list is wrong")
	}
}

// neighbourHandle returns the handle of a neighbour in a list, given its slot number plus 1.
func neighbourHandle(s *rows, neighbour int32) Handle {
	if neighbour == 0 {
		return 0
	}
	return makeHandle(neighbour-1, rowAt(s, neighbour).life)
}

// InList reports whether the row is in a list.
func (s *rows) InList(h Handle) bool { return s.rows.At(int(h.Slot())).list }

// Next returns the row after h in its list, or zero if h is the last.
func (s *rows) Next(h Handle) Handle { return neighbourHandle(s, s.rows.At(int(h.Slot())).next) }
