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
func (s *stateHasher) machineRules() []snapshot.Rule {
	return []snapshot.Rule{
		{Type: reflect.TypeFor[table.Slab[struct{}]](), Generic: true, Compile: compileSlab},
		{Type: reflect.TypeFor[table.Index](), Compile: compileIndex},
		{Type: reflect.TypeFor[table.Compact](), Compile: compileCompact},
		{Type: reflect.TypeFor[kernel.Timers](), Compile: s.compileTimers},
		{Type: reflect.TypeFor[kernel.Corrs](), Compile: compileCorrs},
		nameRule(func(at effects.Time) uint64 { return s.ageOf(int64(at)) }),
		nameRule(s.birthHash),
	}
}

// birthHash returns what matters of the birth of a row, or of the number of times that rows of a class were condemned.
// Both matter only while a sweep is in progress, because a finished sweep leaves no condemned row.
func (s *stateHasher) birthHash(b kernel.LossCount) uint64 {
	if !s.hasWorkLeft {
		return 0
	}
	return uint64(b)
}

// slabLayout holds the offsets of the parts of a table.Slab.
type slabLayout struct {
	rows             arrayLayout
	values           arrayLayout
	free, n          uintptr
	live, life       uintptr // in a row
	prev, next, list uintptr
	element          reflect.Type
}

// slabLayoutOf returns the layout of a slab type.
func slabLayoutOf(t reflect.Type) slabLayout {
	at, rows := snapshot.Offset(t, "rows")
	inner, list := snapshot.Offset(rows, "rows")
	rowArray := arrayLayoutOf(list, at+inner)
	row := rowArray.element
	pieces, values := snapshot.Offset(t, "values")
	requireFields(t, 2)
	requireFields(rows, 5)
	requireFields(row, 5)
	element := values.Elem().Elem()
	return slabLayout{
		rows: rowArray, values: arrayLayout{pieces: pieces, element: element}, element: element,
		free: at + snapshot.OffsetOf[int32](rows, "free"), n: at + snapshot.OffsetOf[int](rows, "n"),
		live: snapshot.OffsetOf[bool](row, "live"), life: snapshot.OffsetOf[uint32](row, "life"),
		prev: snapshot.OffsetOf[int32](row, "prev"), next: snapshot.OffsetOf[int32](row, "next"),
		list: snapshot.OffsetOf[bool](row, "list"),
	}
}

// requireFields panics unless t has the given number of fields. A rule that hashes values of t in its own way must know
// all fields of t, so that a new field is not left out silently.
func requireFields(t reflect.Type, fields int) {
	if t.NumField() != fields {
		panic(fmt.Sprintf("BUG: %s has %d fields, but its hash rule knows %d: adapt the rule", t, t.NumField(), fields))
	}
}

// sliceHeader is the memory layout of a slice.
type sliceHeader struct {
	data unsafe.Pointer
	len  int
	cap  int
}

// arrayLayout holds the offset of the pieces of a table.Array.
type arrayLayout struct {
	pieces  uintptr
	element reflect.Type
}

// arrayLayoutOf returns the layout of an array of type t at an offset.
func arrayLayoutOf(t reflect.Type, at uintptr) arrayLayout {
	pieces, of := snapshot.Offset(t, "pieces")
	requireFields(t, 2)
	return arrayLayout{pieces: at + pieces, element: of.Elem().Elem()}
}

// forEach calls visit with every value.
func (a *arrayLayout) forEach(p unsafe.Pointer, visit func(value unsafe.Pointer)) {
	size := a.element.Size()
	for _, piece := range *(*[]sliceHeader)(unsafe.Add(p, a.pieces)) {
		for i := range piece.len {
			visit(unsafe.Add(piece.data, uintptr(i)*size))
		}
	}
}

// elementAt returns the value at index i.
func (a *arrayLayout) elementAt(p unsafe.Pointer, i int) unsafe.Pointer {
	pieces := *(*[]sliceHeader)(unsafe.Add(p, a.pieces))
	for ; i >= pieces[0].len; pieces = pieces[1:] {
		i -= pieces[0].len
	}
	return unsafe.Add(pieces[0].data, uintptr(i)*a.element.Size())
}

// forEach calls visit with every row and its value.
func (s *slabLayout) forEach(p unsafe.Pointer, visit func(row, value unsafe.Pointer, live bool)) {
	i := 0
	s.rows.forEach(p, func(row unsafe.Pointer) {
		visit(row, s.values.elementAt(p, i), *(*bool)(unsafe.Add(row, s.live)))
		i++
	})
}

// compileSlab hashes the slots in order with their reuse counts, because handles contain both, and the order in which
// free slots will be used again. A free slot contributes only the state that the next row in the slot continues from.
func compileSlab(w *snapshot.Walker, t reflect.Type) func(h *snapshot.Hasher, p unsafe.Pointer) {
	s := slabLayoutOf(t)
	past := w.PastHash(s.element)
	return func(h *snapshot.Hasher, p unsafe.Pointer) {
		s.forEach(p, func(row, value unsafe.Pointer, live bool) {
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
			free = *(*int32)(unsafe.Add(s.rows.elementAt(p, int(free-1)), s.next))
		}
		h.Word(uint64(*(*int)(unsafe.Add(p, s.n))))
	}
}

// compileIndex hashes which handles an index finds and, for equal hashes, the order in which the index finds the
// handles. The cells determine nothing else. The hashes follow from the elements.
func compileIndex(_ *snapshot.Walker, t reflect.Type) func(h *snapshot.Hasher, p unsafe.Pointer) {
	cells, bucket := indexCells(t)
	hash, handle := snapshot.OffsetOf[uint64](bucket, "hash"), snapshot.OffsetOf[table.Handle](bucket, "h")
	return func(h *snapshot.Hasher, p unsafe.Pointer) {
		index, total := (*table.Index)(p), uint64(0)
		cells(p, func(all *sliceHeader) {
			for i := range all.len {
				b := unsafe.Add(all.data, uintptr(i)*bucket.Size())
				own := *(*table.Handle)(unsafe.Add(b, handle))
				if own == 0 {
					continue
				}
				ahead := uint64(0)
				for q := index.Find(*(*uint64)(unsafe.Add(b, hash))); q.Found() && q.Handle() != own; q = index.Next(q) {
					ahead++
				}
				sum := h.Fork()
				sum.Word(uint64(own))
				sum.Word(ahead)
				total += sum.Sum()
			}
		})
		h.Word(total)
	}
}

// compileCompact does the same as compileIndex for slots.
func compileCompact(_ *snapshot.Walker, t reflect.Type) func(h *snapshot.Hasher, p unsafe.Pointer) {
	cells, mark := indexCells(t)
	tag, slot := snapshot.OffsetOf[uint32](mark, "tag"), snapshot.OffsetOf[uint32](mark, "slot")
	return func(h *snapshot.Hasher, p unsafe.Pointer) {
		total := uint64(0)
		cells(p, func(all *sliceHeader) {
			at := func(i int, field uintptr) uint32 {
				return *(*uint32)(unsafe.Add(all.data, uintptr(i)*mark.Size()+field))
			}
			for i := range all.len {
				own := at(i, slot)
				if own == 0 {
					continue
				}
				ahead := uint64(0) // of the same tag, starting at the tag's best position
				for j := int(at(i, tag)) & (all.len - 1); at(j, slot) != own; j = (j + 1) & (all.len - 1) {
					if at(j, tag) == at(i, tag) {
						ahead++
					}
				}
				sum := h.Fork()
				sum.Word(uint64(own))
				sum.Word(ahead)
				total += sum.Sum()
			}
		})
		h.Word(total)
	}
}

// indexCells returns a function that visits the cells of each part of an index of type t, and the type of the cells.
func indexCells(t reflect.Type) (cells func(p unsafe.Pointer, visit func(all *sliceHeader)), cell reflect.Type) {
	first, part := snapshot.Offset(t, "first")
	more, _ := snapshot.Offset(t, "more")
	cellsOffset, list := snapshot.Offset(part, "cells")
	cell = list.Elem()
	requireFields(t, 3)
	requireFields(part, 2)
	requireFields(cell, 2)
	return func(p unsafe.Pointer, visit func(all *sliceHeader)) {
		visit((*sliceHeader)(unsafe.Add(p, first+cellsOffset)))
		rest := (*sliceHeader)(unsafe.Add(p, more))
		for i := range rest.len {
			visit((*sliceHeader)(unsafe.Add(rest.data, uintptr(i)*part.Size()+cellsOffset)))
		}
	}, cell
}

// compileTimers hashes each deadline as its purpose and its time from now. For deadlines at the same instant, the order
// in which they were set matters as well.
func (s *stateHasher) compileTimers(w *snapshot.Walker, t reflect.Type) func(h *snapshot.Hasher, p unsafe.Pointer) {
	timers, inner := snapshot.Offset(t, "timers")
	l := slabLayoutOf(inner)
	ref, refType := snapshot.Offset(l.element, "ref")
	at, list := snapshot.Offset(t, "heap")
	heap := arrayLayoutOf(list, at)
	due := heap.element
	instant, seq := snapshot.OffsetOf[effects.Time](due, "at"), snapshot.OffsetOf[uint64](due, "seq")
	id := snapshot.OffsetOf[kernel.TimerID](due, "id")
	requireFields(t, 3)
	requireFields(l.element, 2)
	requireFields(due, 3)
	return func(h *snapshot.Hasher, p unsafe.Pointer) {
		total := uint64(0)
		heap.forEach(p, func(d unsafe.Pointer) {
			dueAt, order := *(*int64)(unsafe.Add(d, instant)), *(*uint64)(unsafe.Add(d, seq))
			ahead := uint64(0)
			heap.forEach(p, func(o unsafe.Pointer) {
				if *(*int64)(unsafe.Add(o, instant)) == dueAt && *(*uint64)(unsafe.Add(o, seq)) < order {
					ahead++
				}
			})
			slot := int((*kernel.TimerID)(unsafe.Add(d, id)).Slot())
			hash := h.Fork()
			hash.Word(s.ageOf(dueAt))
			hash.Word(ahead)
			hash.Value(refType, unsafe.Add(l.values.elementAt(unsafe.Add(p, timers), slot), ref))
			total += hash.Sum()
		})
		h.Word(total)
	}
}

// compileCorrs hashes the outstanding operations, independent of their numbers.
func compileCorrs(w *snapshot.Walker, t reflect.Type) func(h *snapshot.Hasher, p unsafe.Pointer) {
	at, inner := snapshot.Offset(t, "refs")
	l := slabLayoutOf(inner)
	requireFields(t, 1)
	return func(h *snapshot.Hasher, p unsafe.Pointer) {
		total := uint64(0)
		l.forEach(unsafe.Add(p, at), func(_, value unsafe.Pointer, live bool) {
			if live {
				hash := h.Fork()
				hash.Value(l.element, value)
				total += hash.Sum()
			}
		})
		h.Word(total)
	}
}

// hashOutstanding hashes what a machine uses a Corr for, because the number may differ in another history.
func (s *stateHasher) hashOutstanding(h *snapshot.Hasher, n *world.Node, life uint32, c effects.Corr) {
	if n == nil || !n.Up || n.Incarnation != life {
		h.Word(1)
		return
	}
	s.run.HashOutstanding(h, n, c)
}
