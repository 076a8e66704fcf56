package snapshot

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"reflect"
	"slices"
	"unsafe"
)

// An encoder writes one tree.
type encoder struct {
	w    *Walker
	b    []byte
	memo map[codeTarget]uint64 // the numbers of the targets of pointers that were written
}

// A codeTarget is the target of a pointer.
type codeTarget struct {
	at  unsafe.Pointer
	typ reflect.Type
}

// Encode appends the state of *v to b, from which [Decode] makes an equal state. Encoded is what a clone has to itself:
// fields with the tag scratch are left out, and so are shared parts of *v itself, which Decode takes from the value
// that it writes over. Shared parts behind a slice, a pointer or a map are encoded, because the decoder has no other
// place to take them from. Equal states have equal encodings: nothing in the bytes depends on addresses, on padding, on
// spare capacity or on the order of maps.
func Encode[T any](w *Walker, b []byte, v *T) []byte {
	p := w.codePlanOf(reflect.TypeFor[T](), true)
	if w.codeMemo == nil {
		w.codeMemo = map[codeTarget]uint64{}
	}
	clear(w.codeMemo)
	e := encoder{w: w, b: b, memo: w.codeMemo}
	e.memo[codeTarget{unsafe.Pointer(v), p.typ}] = 0
	e.value(p, unsafe.Pointer(v))
	return e.b
}

// value writes the value at base.
func (e *encoder) value(p *codePlan, base unsafe.Pointer) {
	for i := range p.parts {
		c := &p.parts[i]
		at := unsafe.Add(base, c.at)
		switch c.op {
		case codeBytes:
			e.b = append(e.b, unsafe.Slice((*byte)(at), c.size)...)
		case codeZero:
		case codeString:
			s := *(*string)(at)
			e.b = append(binary.AppendUvarint(e.b, uint64(len(s))), s...)
		case codeSlice:
			e.slice(c, (*sliceHeader)(at))
		case codePointer:
			e.pointer(c.elem, *(*unsafe.Pointer)(at))
		case codeMap:
			e.addMap(c, at)
		case codeInterface:
			t, held, nth := interfaceTarget(c.typ, c.impls, at)
			if t == nil {
				e.b = append(e.b, 0)
				continue
			}
			e.b = binary.AppendUvarint(e.b, uint64(nth)+1)
			e.pointer(e.w.codePlanOf(t.Elem(), false), *held)
		}
	}
}

// slice writes a slice.
func (e *encoder) slice(c *codePart, s *sliceHeader) {
	if s.data == nil {
		e.b = append(e.b, 0)
		return
	}
	e.b = binary.AppendUvarint(e.b, uint64(s.len)+1)
	if c.elem.dense {
		e.b = append(e.b, unsafe.Slice((*byte)(s.data), uintptr(s.len)*c.elem.size)...)
		return
	}
	if len(c.elem.parts) == 0 {
		return
	}
	for i := range s.len {
		e.value(c.elem, unsafe.Add(s.data, uintptr(i)*c.elem.size))
	}
}

// pointer writes the target of a pointer, or the number of a target that was written before.
func (e *encoder) pointer(elem *codePlan, to unsafe.Pointer) {
	if to == nil {
		e.b = append(e.b, 0)
		return
	}
	k := codeTarget{to, elem.typ}
	if n, ok := e.memo[k]; ok {
		e.b = binary.AppendUvarint(e.b, n+2)
		return
	}
	e.memo[k] = uint64(len(e.memo))
	e.b = append(e.b, 1)
	e.value(elem, to)
}

// addMap writes a map in the order of its encoded keys.
func (e *encoder) addMap(c *codePart, at unsafe.Pointer) {
	v := reflect.NewAt(c.typ, at).Elem()
	if v.IsNil() {
		e.b = append(e.b, 0)
		return
	}
	type entry struct {
		key   []byte
		value reflect.Value
	}
	entries := make([]entry, 0, v.Len())
	for it := v.MapRange(); it.Next(); {
		key, value := reflect.New(c.key.typ), reflect.New(c.elem.typ)
		key.Elem().SetIterKey(it)
		value.Elem().SetIterValue(it)
		of := encoder{w: e.w} // Keys have no pointers.
		of.value(c.key, key.UnsafePointer())
		entries = append(entries, entry{of.b, value})
	}
	slices.SortFunc(entries, func(a, b entry) int { return bytes.Compare(a.key, b.key) })
	e.b = binary.AppendUvarint(e.b, uint64(len(entries))+1)
	for _, one := range entries {
		e.b = append(e.b, one.key...)
		e.value(c.elem, one.value.UnsafePointer())
	}
}

// pointerTo returns the address of *v.
func pointerTo[T any](v *T) unsafe.Pointer { return unsafe.Pointer(v) }

// A DecodeError says why bytes are no state.
type DecodeError struct {
	Offset int    // where in the bytes the error was found
	Reason string // what is wrong there
}

// Error returns the reason with its place.
func (e *DecodeError) Error() string {
	return fmt.Sprintf("byte %d of the state: %s", e.Offset, e.Reason)
}
