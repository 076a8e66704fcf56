// Package table holds the containers that machines keep their state in: slabs with stable handles, lists threaded
// through them, hash indexes, and shares of bounded tables.
//
// A caller may rely on this: all are plain trees of slices whose order depends on nothing but the calls made, so state
// can be cloned, hashed and compared without a method of its own; a handle of a row that went names no later row until
// its slot was used 2^32 times; and no slab grows beyond the bound that it was made with. A pointer into a slab is good
// until the next row is made.
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

// A cell is small beside its value: a table may have one for each key.
type cell[T any] struct {
	value      T
	life       uint32
	prev, next int32 // in its list: slots, from 1; what is in a list lives
	live       bool  `snap:"life"`
	list       bool
}

// Slab is a bounded table with stable handles. Freed slots are used again oldest
// first, so what a dead slot remembers stays readable as long as possible.
type Slab[T any] struct {
	cells Array[cell[T]]
	free  int32 // the free slot that is used next, from 1; each names the one after it
	freed int32 // the last of them
	n     int
	max   int
}

// NewSlab returns a table of at most max elements.
func NewSlab[T any](max int) Slab[T] { return Slab[T]{max: max} }

// Emptied returns what NewSlab does, in the memory of s, which is not used any more.
func (s *Slab[T]) Emptied(max int) Slab[T] {
	return Slab[T]{cells: s.cells.Emptied(), max: max}
}

// Len is the number of live elements.
func (s *Slab[T]) Len() int { return s.n }

// Max is the bound.
func (s *Slab[T]) Max() int { return s.max }

// Full says that Add would refuse.
func (s *Slab[T]) Full() bool { return s.n >= s.max }

// Add makes a slot live. Its value is as the slot's last life left it, so that its
// slices can be used again: the caller sets every field. It returns zero and nil
// when the table is full.
func (s *Slab[T]) Add() (Handle, *T) {
	if s.Full() {
		return 0, nil
	}
	slot := s.free - 1
	if slot < 0 {
		slot = int32(s.cells.Len())
		s.cells.Push(cell[T]{}, s.max)
	}
	c := s.cells.At(int(slot))
	if s.free != 0 {
		s.free = c.next
	}
	c.life++
	c.live, c.prev, c.next, c.list = true, 0, 0, false
	s.n++
	return handle(slot, c.life), &c.value
}

// Get returns the element, or nil when the handle's life is over.
func (s *Slab[T]) Get(h Handle) *T {
	slot := int(uint32(h)) - 1
	if uint(slot) >= uint(s.cells.n) {
		return nil
	}
	c := s.cells.At(slot)
	if !c.live || c.life != uint32(h>>32) {
		return nil
	}
	return &c.value
}

// At returns the live handle at a slot, and zero for a free one.
func (s *Slab[T]) At(slot int32) Handle {
	if uint(slot) >= uint(s.cells.n) {
		return 0
	}
	c := s.cells.At(int(slot))
	if !c.live {
		return 0
	}
	return handle(slot, c.life)
}

// Slots is the number of slots ever used: the range for At.
func (s *Slab[T]) Slots() int32 { return int32(s.cells.Len()) }

// Remove ends the element's life. It must be in no list.
func (s *Slab[T]) Remove(h Handle) {
	slot := h.Slot()
	if s.Get(h) == nil {
		panic("BUG: removed from a slab twice")
	}
	c := s.cells.At(int(slot))
	if c.list {
		panic("BUG: removed from a slab while in a list")
	}
	c.live, c.next = false, 0
	s.n--
	if s.free == 0 {
		s.free = slot + 1
	} else {
		s.at(s.freed).next = slot + 1
	}
	s.freed = slot + 1
}

// at is the cell of a slot, from 1.
func (s *Slab[T]) at(slot int32) *cell[T] { return s.cells.At(int(slot - 1)) }

// PushBack appends an element that is in no list.
func (s *Slab[T]) PushBack(l *List, h Handle) {
	c := s.cells.At(int(h.Slot()))
	if c.list {
		panic("BUG: element is in a list already")
	}
	c.list, c.prev, c.next = true, l.tail, 0
	if l.tail != 0 {
		s.at(l.tail).next = h.Slot() + 1
	} else {
		l.head = h
	}
	l.tail = h.Slot() + 1
	l.n++
}

// PushFront prepends an element that is in no list.
func (s *Slab[T]) PushFront(l *List, h Handle) {
	c := s.cells.At(int(h.Slot()))
	if c.list {
		panic("BUG: element is in a list already")
	}
	c.list, c.prev, c.next = true, 0, l.head.Slot()+1
	if l.head != 0 {
		s.cells.At(int(l.head.Slot())).prev = h.Slot() + 1
	} else {
		l.tail = h.Slot() + 1
	}
	l.head = h
	l.n++
}

// Insert puts an element that is in no list before another one of the list, or at its end if that is zero.
func (s *Slab[T]) Insert(l *List, h, before Handle) {
	switch before {
	case 0:
		s.PushBack(l, h)
		return
	case l.head:
		s.PushFront(l, h)
		return
	}
	c, next := s.cells.At(int(h.Slot())), s.cells.At(int(before.Slot()))
	if c.list || !next.list {
		panic("BUG: element is in a list already, or is to stand before one that is in none")
	}
	c.list, c.prev, c.next = true, next.prev, before.Slot()+1
	s.at(next.prev).next, next.prev = h.Slot()+1, h.Slot()+1
	l.n++
}

// Join appends all of another list, which is empty then.
func (s *Slab[T]) Join(l, other *List) {
	switch {
	case other.n == 0:
		return
	case l.n == 0:
		*l = *other
	default:
		s.at(l.tail).next, s.cells.At(int(other.head.Slot())).prev = other.head.Slot()+1, l.tail
		l.tail, l.n = other.tail, l.n+other.n
	}
	*other = List{}
}

// Unlink takes an element out of the list that it is in.
func (s *Slab[T]) Unlink(l *List, h Handle) {
	c := s.cells.At(int(h.Slot()))
	if !c.list {
		panic("BUG: element is in no list")
	}
	if c.prev != 0 {
		s.at(c.prev).next = c.next
	} else {
		l.head = s.listed(c.next)
	}
	if c.next != 0 {
		s.at(c.next).prev = c.prev
	} else {
		l.tail = c.prev
	}
	c.list, c.prev, c.next = false, 0, 0
	l.n--
}

// listed is the handle of a neighbour in a list.
func (s *Slab[T]) listed(neighbour int32) Handle {
	if neighbour == 0 {
		return 0
	}
	return handle(neighbour-1, s.at(neighbour).life)
}

// Listed says whether the element is in a list.
func (s *Slab[T]) Listed(h Handle) bool { return s.cells.At(int(h.Slot())).list }

// Next is the element after h in its list, or zero.
func (s *Slab[T]) Next(h Handle) Handle { return s.listed(s.cells.At(int(h.Slot())).next) }

// What a free slot keeps for its next life: enough for most, so that a steady state allocates nothing. Were it what the
// largest life needed, a table could hold as many times its largest entry as it ever had slots.
const (
	keepElements = 256
	keepBytes    = 32 << 10
)

// Shed empties a slice of a slot whose life ends.
func Shed[T any](s []T) []T {
	if cap(s) > keepElements {
		return nil
	}
	return s[:0]
}

// ShedBytes does so for bytes.
func ShedBytes(b []byte) []byte {
	if cap(b) > keepBytes {
		return nil
	}
	return b[:0]
}
