package table

// Handle names one life of one slot of a Slab. Zero names nothing. A handle of an
// earlier life is not valid again before the slot's 2^32nd next one. Nobody keeps one so long: lists, indexes and
// deadlines let go of what they name when it ends, drivers hold what is outstanding only, and what refers to somebody
// who may be gone compares a number of its own that does not end (kernel.Ref.Attempt, grant ids).
type Handle uint64

func handle(slot int32, life uint32) Handle { return Handle(life)<<32 | Handle(uint32(slot+1)) }

// Slot is the position behind the handle.
func (h Handle) Slot() int32 { return int32(uint32(h)) - 1 }

// List is a doubly linked list of slots of one Slab. The zero value is empty.
type List struct {
	head Handle
	tail int32 // a slot, from 1
	n    int32
}

// Len is the number of elements.
func (l *List) Len() int { return int(l.n) }

// Front is the oldest element, or zero.
func (l *List) Front() Handle { return l.head }

// A row is what a Slab knows of a slot beside its value. It is small: a table may have one for each key.
type row struct {
	life       uint32
	prev, next int32 // in its list: slots, from 1; what is in a list lives
	live       bool  `snap:"life"`
	list       bool
}

// rows are all of a Slab but its values: which slots live, and the lists through them. They are apart because the
// compiler makes all methods of a generic type for each type of values, anew in each package that knows such a table,
// and makes a method more for each that is promoted: what nobody else calls is a function.
type rows struct {
	rows  Array[row]
	free  int32 // the free slot that is used next, from 1; each names the one after it
	freed int32 // the last of them
	n     int
	max   int
}

// Len is the number of live elements.
func (s *rows) Len() int { return s.n }

// Max is the bound.
func (s *rows) Max() int { return s.max }

// Full says that Add would refuse.
func (s *rows) Full() bool { return s.n >= s.max }

// emptiedRows are those of a table without elements, in the memory of s.
func emptiedRows(s *rows, max int) rows { return rows{rows: s.rows.Emptied(), max: max} }

// begin makes a slot live. It returns zero when the table is full.
func begin(s *rows) Handle {
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
	return handle(slot, r.life)
}

// lives says whether the handle's life is not over.
func lives(s *rows, h Handle) bool {
	slot := int(uint32(h)) - 1
	if uint(slot) >= uint(s.rows.n) {
		return false
	}
	r := s.rows.At(slot)
	return r.live && r.life == uint32(h>>32)
}

// At returns the live handle at a slot, and zero for a free one.
func (s *rows) At(slot int32) Handle {
	if uint(slot) >= uint(s.rows.n) {
		return 0
	}
	r := s.rows.At(int(slot))
	if !r.live {
		return 0
	}
	return handle(slot, r.life)
}

// Slots is the number of slots ever used: the range for At.
func (s *rows) Slots() int32 { return int32(s.rows.Len()) }

// Remove ends the element's life. It must be in no list.
func (s *rows) Remove(h Handle) {
	slot := h.Slot()
	if !lives(s, h) {
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
		at(s, s.freed).next = slot + 1
	}
	s.freed = slot + 1
}

// at is the row of a slot, from 1.
func at(s *rows, slot int32) *row { return s.rows.At(int(slot - 1)) }

// PushBack appends an element that is in no list.
func (s *rows) PushBack(l *List, h Handle) {
	r := s.rows.At(int(h.Slot()))
	if r.list {
		panic("BUG: element is in a list already")
	}
	r.list, r.prev, r.next = true, l.tail, 0
	if l.tail != 0 {
		at(s, l.tail).next = h.Slot() + 1
	} else {
		l.head = h
	}
	l.tail = h.Slot() + 1
	l.n++
}

// PushFront prepends an element that is in no list.
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

// Insert puts an element that is in no list before another one of the list, or at its end if that is zero.
func (s *rows) Insert(l *List, h, before Handle) {
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
	at(s, next.prev).next, next.prev = h.Slot()+1, h.Slot()+1
	l.n++
}

// Join appends all of another list, which is empty then.
func (s *rows) Join(l, other *List) {
	switch {
	case other.n == 0:
		return
	case l.n == 0:
		*l = *other
	default:
		at(s, l.tail).next, s.rows.At(int(other.head.Slot())).prev = other.head.Slot()+1, l.tail
		l.tail, l.n = other.tail, l.n+other.n
	}
	*other = List{}
}

// Unlink takes an element out of the list that it is in.
func (s *rows) Unlink(l *List, h Handle) {
	r := s.rows.At(int(h.Slot()))
	if !r.list {
		panic("BUG: element is in no list")
	}
	if r.prev != 0 {
		at(s, r.prev).next = r.next
	} else {
		l.head = listed(s, r.next)
	}
	if r.next != 0 {
		at(s, r.next).prev = r.prev
	} else {
		l.tail = r.prev
	}
	r.list, r.prev, r.next = false, 0, 0
	l.n--
}

// listed is the handle of a neighbour in a list.
func listed(s *rows, neighbour int32) Handle {
	if neighbour == 0 {
		return 0
	}
	return handle(neighbour-1, at(s, neighbour).life)
}

// Listed says whether the element is in a list.
func (s *rows) Listed(h Handle) bool { return s.rows.At(int(h.Slot())).list }

// Next is the element after h in its list, or zero.
func (s *rows) Next(h Handle) Handle { return listed(s, s.rows.At(int(h.Slot())).next) }
