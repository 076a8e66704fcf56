package snapshot

import (
	"bytes"
	"reflect"
	"unsafe"
)

// Same reports whether two values are equal, byte by byte, in everything that a clone has. Then their hashes are equal
// too, and Same is faster than two hashes. If Same returns false, the values may still differ only in parts that are
// not hashed, or contain maps with entries.
func Same[T any](w *Walker, a, b *T) bool {
	clear(w.memo)
	return w.sameValue(w.clonePlanOf(reflect.TypeFor[T]()), unsafe.Pointer(a), unsafe.Pointer(b))
}

// sameValue compares the memory between the parts of p, and then the parts.
func (w *Walker) sameValue(p *clonePlan, a, b unsafe.Pointer) bool {
	for _, g := range p.gaps {
		if !sameBytes(unsafe.Add(a, g.from), unsafe.Add(b, g.from), g.size) {
			return false
		}
	}
	for i := range p.fixes {
		if f := &p.fixes[i]; !w.samePart(f, unsafe.Add(a, f.at), unsafe.Add(b, f.at)) {
			return false
		}
	}
	return true
}

// samePart compares the parts of two values that a fix describes.
func (w *Walker) samePart(f *fix, a, b unsafe.Pointer) bool {
	switch f.op {
	case fixZero, fixZeroPlain, fixZeroSlice:
		return true
	case fixSlice, fixPlainSlice, fixSliceOfSlices:
		x, y := (*sliceHeader)(a), (*sliceHeader)(b)
		if x.len != y.len || (x.data == nil) != (y.data == nil) {
			return false
		}
		if len(f.elem.fixes) == 0 {
			return x.len == 0 || sameBytes(x.data, y.data, uintptr(x.len)*f.elem.size)
		}
		for i := range x.len {
			at := uintptr(i) * f.elem.size
			if !w.sameValue(f.elem, unsafe.Add(x.data, at), unsafe.Add(y.data, at)) {
				return false
			}
		}
		return true
	case fixPointer:
		return w.sameTarget(f.elem, *(*unsafe.Pointer)(a), *(*unsafe.Pointer)(b))
	case fixInterface:
		t, x, _ := interfaceTarget(f.rare.typ, f.rare.impls, a)
		u, y, _ := interfaceTarget(f.rare.typ, f.rare.impls, b)
		return t == u && (t == nil || w.sameTarget(w.clonePlanOf(t.Elem()), *x, *y))
	case fixMap:
		return reflect.NewAt(f.rare.typ, a).Elem().Len()+reflect.NewAt(f.rare.typ, b).Elem().Len() == 0
	}
	panic("BUG: no such part")
}

// sameTarget compares the values to which two pointers point. If one pointer was met before, both must have been met
// together.
func (w *Walker) sameTarget(elem *clonePlan, a, b unsafe.Pointer) bool {
	if a == nil || b == nil {
		return a == b
	}
	if met, ok := w.memo[a]; ok {
		return met == b
	}
	w.memo[a] = b
	return w.sameValue(elem, a, b)
}

// sameBytes compares n bytes.
func sameBytes(a, b unsafe.Pointer, n uintptr) bool {
	return bytes.Equal(unsafe.Slice((*byte)(a), n), unsafe.Slice((*byte)(b), n))
}
