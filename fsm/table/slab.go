// Package table holds the containers that machines keep their state in: slabs with stable handles, lists threaded
// through them, hash indexes, and shares of bounded tables.
//
// A caller may rely on this: all are plain trees of slices whose order depends on nothing but the calls made, so state
// can be cloned, hashed and compared without a method of its own; a handle of a row that went names no later row until
// its slot was used 2^32 times; and no slab grows beyond the bound that it was made with. A pointer into a slab is good
// until the next row is made.
package table

// Slab is a bounded table with stable handles. Freed slots are used again oldest
// first, so what a dead slot remembers stays readable as long as possible.
type Slab[T any] struct {
	rows
	values [][]T `snap:"beside"` // one for each row, in pieces as those of an Array
}

// NewSlab returns a table of at most max elements.
func NewSlab[T any](max int) Slab[T] { return Slab[T]{rows: rows{max: max}} }

// Emptied returns what NewSlab does, in the memory of s, which is not used any more.
func (s *Slab[T]) Emptied(max int) Slab[T] {
	return Slab[T]{rows: emptiedRows(&s.rows, max), values: emptied(s.values)}
}

// Add makes a slot live. Its value is as the slot's last life left it, so that its
// slices can be used again: the caller sets every field. It returns zero and nil
// when the table is full.
func (s *Slab[T]) Add() (Handle, *T) {
	slots := s.Slots()
	h := begin(&s.rows)
	if h == 0 {
		return 0, nil
	}
	slot := h.Slot()
	if slot == slots {
		var none T
		s.values = pushed(s.values, int(slots), none, s.max)
	}
	return h, place(s.values, int(slot))
}

// Get returns the element, or nil when the handle's life is over.
func (s *Slab[T]) Get(h Handle) *T {
	if !lives(&s.rows, h) {
		return nil
	}
	return place(s.values, int(h.Slot()))
}

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
