package snapshot

import (
	"fmt"
	"reflect"
	"slices"
	"unsafe"
)

// A clonePlan lists the places in a value of a type that must be treated after the memory of the value was copied
// unchanged.
type clonePlan struct {
	typ   reflect.Type
	size  uintptr
	plain bool // there is no pointer in it
	fixes []fix
	gaps  []gap // the memory of the value that belongs to no fix
}

// A gap is a range of the memory of a value.
type gap struct{ from, size uintptr }

// fixOp is the kind of treatment that a part of a copied value needs.
type fixOp uint8

const (
	fixZero fixOp = iota
	fixZeroPlain
	fixZeroSlice
	fixSlice
	fixPlainSlice    // a slice whose elements contain no pointer
	fixSliceOfSlices // a slice whose elements are slices
	fixPointer
	fixMap
	fixInterface
)

// A fix is a part of a copied value that must be treated. Plans of large types have hundreds of fixes, so a fix is
// small, and what only some kinds need is in rare.
type fix struct {
	at   uintptr
	size uintptr
	elem *clonePlan // of a slice, a pointer or a map
	rare *rareFix
	op   fixOp
}

// rareFix is the part of a fix that is not needed in each clone.
type rareFix struct {
	typ        reflect.Type
	impls      []reflect.Type
	reused     reusedSlices
	nilPointer any // a nil *typ; with an address put in its place it becomes a pointer to a value of typ
}

// valueAt returns the value at the field's address. The result is that of reflect.NewAt, which is slower because it
// looks up the pointer type in each call.
func (f *rareFix) valueAt(at unsafe.Pointer) reflect.Value {
	v := f.nilPointer
	(*[2]unsafe.Pointer)(unsafe.Pointer(&v))[1] = at // An interface that holds a pointer is its type and the pointer.
	return reflect.ValueOf(v).Elem()
}

// reusedSlices holds the slices with pointers that repeated clones with CloneInto use for one field.
type reusedSlices struct {
	slices []reflect.Value
	used   int
}

// sliceHeader is the layout of a slice in memory.
type sliceHeader struct {
	data     unsafe.Pointer
	len, cap int
}

// Clone returns a copy of *from. Slices of the copy have no spare capacity, so appending to a slice never changes
// memory of the original or of another clone.
func Clone[T any](w *Walker, from *T) *T {
	w.reusing = false
	w.arena.startNew()
	return cloneTo(w, new(T), from)
}

// CloneInto is like Clone, but reuses the memory of old, which must be the last result of CloneInto with this walker
// and must not be in use any more. A nil old means that there is no such result yet.
func CloneInto[T any](w *Walker, old, from *T) *T {
	if old == nil {
		old = new(T)
	}
	for _, m := range w.usedFields {
		m.used = 0
	}
	w.reusing, w.usedFields = true, w.usedFields[:0]
	w.arena, w.spareArena = w.spareArena, w.arena
	w.arena.startReused()
	to := cloneTo(w, old, from)
	w.arena, w.spareArena = w.spareArena, w.arena
	return to
}

func cloneTo[T any](w *Walker, to, from *T) *T {
	p := w.clonePlanOf(reflect.TypeFor[T]())
	clear(w.memo)
	*to = *from
	w.memo[unsafe.Pointer(from)] = unsafe.Pointer(to)
	w.detachValue(p, unsafe.Pointer(to))
	return to
}

// clonePlanOf returns the plan for values of type t, and compiles the plan if necessary.
func (w *Walker) clonePlanOf(t reflect.Type) *clonePlan {
	if p := w.clonePlans[t]; p != nil {
		return p
	}
	p := &clonePlan{typ: t, size: t.Size(), plain: isPlain(t)}
	w.clonePlans[t] = p // before its parts are compiled, because types may be recursive through pointers
	w.addFixes(p, nil, nil, t, 0)
	p.addGaps()
	return p
}

// addGaps lists the memory between the fixes.
func (p *clonePlan) addGaps() {
	from := uintptr(0)
	for i := range p.fixes {
		f := &p.fixes[i]
		if f.at > from {
			p.gaps = append(p.gaps, gap{from, f.at - from})
		}
		from = f.at + f.size
	}
	if p.size > from {
		p.gaps = append(p.gaps, gap{from, p.size - from})
	}
}

// addFixes appends to p the fixes for a value of type t at offset at.
func (w *Walker) addFixes(p *clonePlan, owner reflect.Type, field *reflect.StructField, t reflect.Type, at uintptr) {
	add := func(f fix) {
		f.at, f.size = at, t.Size()
		f.rare.typ, f.rare.nilPointer = t, reflect.Zero(reflect.PointerTo(t)).Interface()
		p.fixes = append(p.fixes, f)
	}
	r, ok := w.ruleOf(owner, field, t)
	if ok {
		switch r.Copy {
		case Share:
			return
		case Zero:
			add(fix{op: zeroOpOf(t), rare: &rareFix{}})
			return
		case Deep:
		}
	}
	//exhaustive:ignore
	switch t.Kind() {
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			w.addFixes(p, t, &f, f.Type, at+f.Offset)
		}
	case reflect.Array:
		for i := range t.Len() {
			before := len(p.fixes)
			w.addFixes(p, nil, nil, t.Elem(), at+uintptr(i)*t.Elem().Size())
			if len(p.fixes) == before {
				return // The elements are plain.
			}
		}
	case reflect.Slice:
		elem := w.clonePlanOf(t.Elem())
		add(fix{op: sliceOpOf(elem), elem: elem, rare: &rareFix{}})
	case reflect.Pointer:
		add(fix{op: fixPointer, elem: w.clonePlanOf(t.Elem()), rare: &rareFix{}})
	case reflect.Map:
		if w.clonePlanOf(t.Key()).fixes != nil {
			panic(fmt.Sprintf("BUG: a map with keys of type %s cannot be cloned", t.Key()))
		}
		add(fix{op: fixMap, elem: w.clonePlanOf(t.Elem()), rare: &rareFix{}})
	case reflect.Interface:
		add(fix{op: fixInterface, rare: &rareFix{impls: r.Implementations}})
	case reflect.Chan, reflect.UnsafePointer:
		panic(fmt.Sprintf("BUG: a value of type %s is no plain tree", t))
	default: // Numbers are copied already; strings and functions never change.
	}
}

// zeroOpOf returns how a value of type t is emptied. The most frequent kinds have a fast path.
func zeroOpOf(t reflect.Type) fixOp {
	switch {
	case isPlain(t):
		return fixZeroPlain
	case t.Kind() == reflect.Slice:
		return fixZeroSlice
	default:
		return fixZero
	}
}

// sliceOpOf returns how a slice of such elements is copied.
func sliceOpOf(elem *clonePlan) fixOp {
	switch {
	case elem.plain:
		return fixPlainSlice
	case elem.typ.Kind() == reflect.Slice:
		return fixSliceOfSlices
	default:
		return fixSlice
	}
}

// detachValue makes the copy at to independent of the original.
func (w *Walker) detachValue(p *clonePlan, to unsafe.Pointer) {
	for i := range p.fixes {
		f := &p.fixes[i]
		at := unsafe.Add(to, f.at)
		switch f.op {
		case fixZeroPlain:
			clear(unsafe.Slice((*byte)(at), f.size))
		case fixZeroSlice:
			*(*sliceHeader)(at) = sliceHeader{}
		case fixZero:
			f.rare.valueAt(at).SetZero()
		case fixPlainSlice, fixSliceOfSlices, fixSlice:
			if s := (*sliceHeader)(at); s.data != nil {
				w.detachSlice(f, s)
			}
		case fixPointer:
			if p := (*unsafe.Pointer)(at); *p != nil {
				*p = w.copyPointer(f.elem, *p)
			}
		case fixMap:
			w.detachMap(f, at)
		case fixInterface:
			if t, held, _ := interfaceTarget(f.rare.typ, f.rare.impls, at); t != nil {
				*held = w.copyPointer(w.clonePlanOf(t.Elem()), *held)
			}
		}
	}
}

// detachSlice copies the elements of a slice that is not nil.
func (w *Walker) detachSlice(f *fix, s *sliceHeader) {
	size, n := f.elem.size, s.len
	if n == 0 || size == 0 {
		*s = sliceHeader{data: unsafe.Pointer(&emptyMemory)}
		return
	}
	if f.op == fixPlainSlice {
		bytes := uintptr(n) * size
		data := w.arena.cutBytes(bytes)
		copy(unsafe.Slice((*byte)(data), bytes), unsafe.Slice((*byte)(s.data), bytes))
		*s = sliceHeader{data: data, len: n, cap: n}
		return
	}
	made := w.newSlice(f, n)
	data := made.UnsafePointer()
	if f.op == fixSliceOfSlices {
		copy(unsafe.Slice((*sliceHeader)(data), n), unsafe.Slice((*sliceHeader)(s.data), n))
	} else {
		reflect.Copy(made, f.rare.valueAt(unsafe.Pointer(s)))
	}
	*s = sliceHeader{data: data, len: n, cap: n}
	if len(f.elem.fixes) == 0 {
		return
	}
	for i := range n {
		w.detachValue(f.elem, unsafe.Add(data, uintptr(i)*size))
	}
}

// newSlice returns a slice of at least n elements for a field.
func (w *Walker) newSlice(f *fix, n int) reflect.Value {
	if !w.reusing {
		return reflect.MakeSlice(f.rare.typ, n, n)
	}
	m := &f.rare.reused
	if m.used == 0 {
		w.usedFields = append(w.usedFields, m)
	}
	if m.used == len(m.slices) {
		m.slices = append(m.slices, reflect.MakeSlice(f.rare.typ, n, n))
	} else if m.slices[m.used].Len() < n {
		m.slices[m.used] = reflect.MakeSlice(f.rare.typ, n, n)
	}
	m.used++
	return m.slices[m.used-1]
}

// interfaceTarget returns the pointer type in the interface at p, the address of the pointer within the interface, and
// the index of the type in impls, or nil if the interface is nil. It panics if impls does not list the type.
func interfaceTarget(t reflect.Type, are []reflect.Type, p unsafe.Pointer) (typ reflect.Type, target *unsafe.Pointer, index int) {
	v := reflect.NewAt(t, p).Elem()
	if v.IsNil() {
		return nil, nil, 0
	}
	typ = v.Elem().Type()
	if index = slices.Index(are, typ); index < 0 || typ.Kind() != reflect.Pointer {
		panic(fmt.Sprintf("BUG: an interface of type %s needs a rule that names %s to be cloned or hashed", t, typ))
	}
	return typ, &(*[2]unsafe.Pointer)(p)[1], index // An interface that holds a pointer is its type and the pointer.
}

// emptyMemory is the memory to which empty slices point that are not nil.
var emptyMemory uint64

// copyPointer copies the value to which p points, which is not nil. For a pointer that was met before it returns the copy made then.
func (w *Walker) copyPointer(elem *clonePlan, p unsafe.Pointer) unsafe.Pointer {
	if to, ok := w.memo[p]; ok {
		return to
	}
	made := reflect.New(elem.typ)
	to := made.UnsafePointer()
	w.memo[p] = to
	made.Elem().Set(reflect.NewAt(elem.typ, p).Elem())
	w.detachValue(elem, to)
	return to
}

// detachMap copies a map and its values.
func (w *Walker) detachMap(f *fix, at unsafe.Pointer) {
	v := reflect.NewAt(f.rare.typ, at).Elem()
	if v.IsNil() {
		return
	}
	made := reflect.MakeMapWithSize(f.rare.typ, v.Len())
	for it := v.MapRange(); it.Next(); {
		value := reflect.New(f.elem.typ)
		value.Elem().Set(it.Value())
		w.detachValue(f.elem, value.UnsafePointer())
		made.SetMapIndex(it.Key(), value.Elem())
	}
	v.Set(made)
}

// isPlain reports whether values of t hold no pointer, so that the garbage collector need not scan their memory.
func isPlain(t reflect.Type) bool {
	//exhaustive:ignore
	switch t.Kind() {
	case reflect.Struct:
		for i := range t.NumField() {
			if !isPlain(t.Field(i).Type) {
				return false
			}
		}
		return true
	case reflect.Array:
		return isPlain(t.Elem())
	case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint,
		reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr, reflect.Float32, reflect.Float64:
		return true
	default:
		return false
	}
}

// An arena cuts the memory of a clone's plain slices out of a single allocation, as large as the preceding clone
// needed.
type arena struct {
	words []uint64
	taken int
}

// startNew allocates memory for a new clone.
func (a *arena) startNew() {
	a.words = make([]uint64, 0, max(256, a.taken+a.taken/8))
	a.taken = 0
}

// startReused begins a clone in the memory of the preceding clone.
func (a *arena) startReused() {
	if a.taken > cap(a.words) {
		a.startNew()
	}
	a.words, a.taken = a.words[:0], 0
}

// cutBytes returns memory for the given number of bytes.
func (a *arena) cutBytes(bytes uintptr) unsafe.Pointer {
	n := int(bytes+7) / 8
	a.taken += n
	if len(a.words)+n > cap(a.words) {
		return unsafe.Pointer(unsafe.SliceData(make([]uint64, n)))
	}
	at := len(a.words)
	a.words = a.words[:at+n]
	return unsafe.Pointer(&a.words[at])
}
