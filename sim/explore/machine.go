package explore

import (
	"fmt"
	"reflect"
	"unsafe"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/sim/world"
	"github.com/kvferry/kvferry/snapshot"
)

// The hashes of the containers of machines leave out what no machine can observe: the positions in an index, the memory
// of dead slots, and the order in which two deadlines of different instants were set. TestEqualStatesGoOnAlike shows
// that states with equal hashes continue alike.

// machineRules returns the rules for the containers that ranks consist of. Everything else about the fields of a rank
// is stated by their tags.
func (s *shape) machineRules() []snapshot.Rule {
	return []snapshot.Rule{
		{Type: reflect.TypeFor[table.Slab[struct{}]](), Generic: true, Compile: compileSlab},
		{Type: reflect.TypeFor[table.Index](), Compile: compileIndex},
		{Type: reflect.TypeFor[table.Compact](), Compile: compileCompact},
		{Type: reflect.TypeFor[kernel.Timers](), Compile: s.compileTimers},
		{Type: reflect.TypeFor[kernel.Corrs](), Compile: compileCorrs},
		named(func(at effects.Time) uint64 { return s.age(int64(at)) }),
		named(s.birth),
	}
}

// birth returns what matters of the birth of a row, or of the number of times that rows of a class were condemned.
// Both matter only while a sweep is in progress, because a finished sweep leaves no condemned row.
func (s *shape) birth(b kernel.LossCount) uint64 {
	if !s.sweeps {
		return 0
	}
	return uint64(b)
}

// slab holds the offsets of the parts of a table.Slab.
type slab struct {
	rows             array
	values           array
	free, n          uintptr
	live, life       uintptr // in a row
	prev, next, list uintptr
	element          reflect.Type
}

// layoutOf returns the layout of a slab type.
func layoutOf(t reflect.Type) slab {
	at, rows := snapshot.Offset(t, "rows")
	inner, list := snapshot.Offset(rows, "rows")
	in := arrayOf(list, at+inner)
	row := in.element
	pieces, values := snapshot.Offset(t, "values")
	knows(t, 2)
	knows(rows, 5)
	knows(row, 5)
	element := values.Elem().Elem()
	return slab{
		rows: in, values: array{pieces: pieces, element: element}, element: element,
		free: at + snapshot.OffsetOf[int32](rows, "free"), n: at + snapshot.OffsetOf[int](rows, "n"),
		live: snapshot.OffsetOf[bool](row, "live"), life: snapshot.OffsetOf[uint32](row, "life"),
		prev: snapshot.OffsetOf[int32](row, "prev"), next: snapshot.OffsetOf[int32](row, "next"),
		list: snapshot.OffsetOf[bool](row, "list"),
	}
}

// knows panics unless t has the given number of fields. A rule that hashes values of t in its own way must know all
// fields of t, so that a new field is not left out silently.
func knows(t reflect.Type, fields int) {
	if t.NumField() != fields {
		panic(fmt.Sprintf("BUG: %s has %d fields and its rule knows %d: adapt the rule", t, t.NumField(), fields))
	}
}

// span is the memory layout of a slice.
type span struct {
	data unsafe.Pointer
	len  int
	cap  int
}

// array holds the offset of the pieces of a table.Array.
type array struct {
	pieces  uintptr
	element reflect.Type
}

// arrayOf returns the layout of an array of type t at an offset.
func arrayOf(t reflect.Type, at uintptr) array {
	pieces, of := snapshot.Offset(t, "pieces")
	knows(t, 2)
	return array{pieces: at + pieces, element: of.Elem().Elem()}
}

// each calls visit with every value.
func (a *array) each(p unsafe.Pointer, visit func(value unsafe.Pointer)) {
	size := a.element.Size()
	for _, piece := range *(*[]span)(unsafe.Add(p, a.pieces)) {
		for i := range piece.len {
			visit(unsafe.Add(piece.data, uintptr(i)*size))
		}
	}
}

// at returns the value at index i.
func (a *array) at(p unsafe.Pointer, i int) unsafe.Pointer {
	pieces := *(*[]span)(unsafe.Add(p, a.pieces))
	for ; i >= pieces[0].len; pieces = pieces[1:] {
		i -= pieces[0].len
	}
	return unsafe.Add(pieces[0].data, uintptr(i)*a.element.Size())
}

// each calls visit with every row and its value.
func (s *slab) each(p unsafe.Pointer, visit func(row, value unsafe.Pointer, live bool)) {
	i := 0
	s.rows.each(p, func(row unsafe.Pointer) {
		visit(row, s.values.at(p, i), *(*bool)(unsafe.Add(row, s.live)))
		i++
	})
}

// compileSlab hashes the slots in order with their reuse counts, because handles contain both, and the order in which
// free slots will be used again. A free slot contributes only the state that the next row in the slot continues from.
func compileSlab(w *snapshot.Walker, t reflect.Type) func(h *snapshot.Hasher, p unsafe.Pointer) {
	s := layoutOf(t)
	past := w.PastHash(s.element)
	return func(h *snapshot.Hasher, p unsafe.Pointer) {
		s.each(p, func(row, value unsafe.Pointer, live bool) {
			h.Word(uint64(*(*uint32)(unsafe.Add(row, s.life))))
			if !live {
				if past != nil {
					past(h, value)
				}
				h.Word(0)
				return
			}
			h.Word(uint64(*(*int32)(unsafe.Add(row, s.prev))))
			h.Word(uint64(*(*int32)(unsafe.Add(row, s.next))))
			h.Word(1 + uint64(*(*byte)(unsafe.Add(row, s.list))))
			h.Value(s.element, value)
		})
		for free := *(*int32)(unsafe.Add(p, s.free)); free != 0; {
			h.Word(uint64(free))
			free = *(*int32)(unsafe.Add(s.rows.at(p, int(free-1)), s.next))
		}
		h.Word(uint64(*(*int)(unsafe.Add(p, s.n))))
	}
}

// compileIndex hashes which handles an index finds and, for equal hashes, the order in which the index finds the
// handles. The cells determine nothing else. The hashes follow from the elements.
func compileIndex(_ *snapshot.Walker, t reflect.Type) func(h *snapshot.Hasher, p unsafe.Pointer) {
	cells, bucket := parts(t)
	hash, handle := snapshot.OffsetOf[uint64](bucket, "hash"), snapshot.OffsetOf[table.Handle](bucket, "h")
	return func(h *snapshot.Hasher, p unsafe.Pointer) {
		index, total := (*table.Index)(p), uint64(0)
		cells(p, func(all *span) {
			for i := range all.len {
				b := unsafe.Add(all.data, uintptr(i)*bucket.Size())
				mine := *(*table.Handle)(unsafe.Add(b, handle))
				if mine == 0 {
					continue
				}
				ahead := uint64(0)
				for q := index.Find(*(*uint64)(unsafe.Add(b, hash))); q.Found() && q.Handle() != mine; q = index.Next(q) {
					ahead++
				}
				one := h.Fork()
				one.Word(uint64(mine))
				one.Word(ahead)
				total += one.Sum()
			}
		})
		h.Word(total)
	}
}

// compileCompact does the same as compileIndex for slots.
func compileCompact(_ *snapshot.Walker, t reflect.Type) func(h *snapshot.Hasher, p unsafe.Pointer) {
	cells, mark := parts(t)
	tag, slot := snapshot.OffsetOf[uint32](mark, "tag"), snapshot.OffsetOf[uint32](mark, "slot")
	return func(h *snapshot.Hasher, p unsafe.Pointer) {
		total := uint64(0)
		cells(p, func(all *span) {
			at := func(i int, field uintptr) uint32 {
				return *(*uint32)(unsafe.Add(all.data, uintptr(i)*mark.Size()+field))
			}
			for i := range all.len {
				mine := at(i, slot)
				if mine == 0 {
					continue
				}
				ahead := uint64(0) // of the same tag, starting at the tag's best position
				for j := int(at(i, tag)) & (all.len - 1); at(j, slot) != mine; j = (j + 1) & (all.len - 1) {
					if at(j, tag) == at(i, tag) {
						ahead++
					}
				}
				one := h.Fork()
				one.Word(uint64(mine))
				one.Word(ahead)
				total += one.Sum()
			}
		})
		h.Word(total)
	}
}

// parts returns a function that visits the cells of each part of an index of type t, and the type of the cells.
func parts(t reflect.Type) (cells func(p unsafe.Pointer, visit func(all *span)), cell reflect.Type) {
	first, part := snapshot.Offset(t, "first")
	more, _ := snapshot.Offset(t, "more")
	in, list := snapshot.Offset(part, "cells")
	cell = list.Elem()
	knows(t, 3)
	knows(part, 2)
	knows(cell, 2)
	return func(p unsafe.Pointer, visit func(all *span)) {
		visit((*span)(unsafe.Add(p, first+in)))
		rest := (*span)(unsafe.Add(p, more))
		for i := range rest.len {
			visit((*span)(unsafe.Add(rest.data, uintptr(i)*part.Size()+in)))
		}
	}, cell
}

// compileTimers hashes each deadline as its purpose and its time from now. For deadlines at the same instant, the order
// in which they were set matters as well.
func (s *shape) compileTimers(w *snapshot.Walker, t reflect.Type) func(h *snapshot.Hasher, p unsafe.Pointer) {
	timers, inner := snapshot.Offset(t, "timers")
	l := layoutOf(inner)
	ref, refType := snapshot.Offset(l.element, "ref")
	at, list := snapshot.Offset(t, "heap")
	heap := arrayOf(list, at)
	due := heap.element
	instant, seq := snapshot.OffsetOf[effects.Time](due, "at"), snapshot.OffsetOf[uint64](due, "seq")
	id := snapshot.OffsetOf[kernel.TimerID](due, "id")
	knows(t, 3)
	knows(l.element, 2)
	knows(due, 3)
	return func(h *snapshot.Hasher, p unsafe.Pointer) {
		total := uint64(0)
		heap.each(p, func(d unsafe.Pointer) {
			mine, order := *(*int64)(unsafe.Add(d, instant)), *(*uint64)(unsafe.Add(d, seq))
			ahead := uint64(0)
			heap.each(p, func(o unsafe.Pointer) {
				if *(*int64)(unsafe.Add(o, instant)) == mine && *(*uint64)(unsafe.Add(o, seq)) < order {
					ahead++
				}
			})
			slot := int((*kernel.TimerID)(unsafe.Add(d, id)).Slot())
			one := h.Fork()
			one.Word(s.age(mine))
			one.Word(ahead)
			one.Value(refType, unsafe.Add(l.values.at(unsafe.Add(p, timers), slot), ref))
			total += one.Sum()
		})
		h.Word(total)
	}
}

// compileCorrs hashes the outstanding operations, independent of their numbers.
func compileCorrs(w *snapshot.Walker, t reflect.Type) func(h *snapshot.Hasher, p unsafe.Pointer) {
	at, inner := snapshot.Offset(t, "refs")
	l := layoutOf(inner)
	knows(t, 1)
	return func(h *snapshot.Hasher, p unsafe.Pointer) {
		total := uint64(0)
		l.each(unsafe.Add(p, at), func(_, value unsafe.Pointer, live bool) {
			if live {
				one := h.Fork()
				one.Value(l.element, value)
				total += one.Sum()
			}
		})
		h.Word(total)
	}
}

// outstanding hashes what a machine uses a Corr for, because the number may differ in another history.
func (s *shape) outstanding(h *snapshot.Hasher, n *world.Node, life uint32, c effects.Corr) {
	if n == nil || !n.Up || n.Life != life {
		h.Word(1)
		return
	}
	s.run.Outstanding(h, n, c)
}
