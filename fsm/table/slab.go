// Package table provides the containers in which state machines keep their state: slabs with stable handles, lists that
// run through the rows of a slab, hash indexes, and the shares of fairness classes in a bounded table.
//
// A room keeps its rows in a [Slab], refers to a row by its [Handle], and finds rows by key through an [Index]. A
// [List] puts rows of a slab in an order, for example by age.
//
// A caller may rely on the following:
//
//   - All containers are plain trees of slices, and their order depends only on the calls that were made. So the state
//     of a machine can be cloned, hashed and compared without methods of the containers (package snapshot).
//   - The handle of a removed row names no later row until the slot of the row was used 2^32 more times.
//   - A slab never grows beyond the bound that it was made with.
//   - A pointer into a slab is valid until the next row is added.
//
// Example: a table of puts with room for two.
//
//	h, x := puts.Add()     // slot 0 is used for the first time: h names that use
//	*x = put{operation: 5}
//	index.Add(hash(5), h)
//	index.Remove(hash(5), h)
//	puts.Remove(h)         // from now on puts.Get(h) is nil
//	i, x := puts.Add()     // slot 0 is used again, and i differs from h
package table

// Slab is a bounded table of values with stable handles. The slot that was freed first is used first, so what a free
// slot still holds stays readable for as long as possible.
type Slab[T any] struct {
	rows
	values [][]T `snap:"beside"` // a value for each row, in pieces like those of an Array
}

// NewSlab returns a table of at most max rows.
func NewSlab[T any](max int) Slab[T] { return Slab[T]{rows: rows{max: max}} }

// Recycle is NewSlab in the memory of s. The caller must not use s afterwards.
func (s *Slab[T]) Recycle(max int) Slab[T] {
	return Slab[T]{rows: recycleRows(&s.rows, max), values: recyclePieces(s.values)}
}

// Add takes a free slot and returns its handle and value. The value is as the last row in the slot left it, so that the
// slices in the value can be reused: the caller must set every field. Add returns zero and nil if the table is full.
func (s *Slab[T]) Add() (Handle, *T) {
	slots := s.Slots()
	h := allocSlot(&s.rows)
	if h == 0 {
		return 0, nil
	}
	slot := h.Slot()
	if slot == slots {
		var none T
		s.values = appendValue(s.values, int(slots), none, s.max)
	}
	return h, valueAt(s.values, int(slot))
}

// Get returns the value of a row, or nil if the row was removed or h is zero.
func (s *Slab[T]) Get(h Handle) *T {
	if !isLive(&s.rows, h) {
		return nil
	}
	return valueAt(s.values, int(h.Slot()))
}

// These bounds limit the capacity of the slices that a free slot keeps for its next row. Most rows fit, so that a
// steady state allocates nothing. If a slot kept all that its largest row needed, the table could use the memory of the
// largest row once for each slot.
const (
	keepElements = 256
	keepBytes    = 32 << 10
)

// TrimSlice returns the slice to keep in a slot when its row is removed: an empty slice with the memory of s, or nil if
// s is large.
func TrimSlice[T any](s []T) []T {
	if cap(s) > keepElements {
		return nil
	}
	return s[:0]
}

// TrimBytes is TrimSlice for bytes, with a larger bound.
func TrimBytes(b []byte) []byte {
	if cap(b) > keepBytes {
		return nil
	}
	return b[:0]
}
