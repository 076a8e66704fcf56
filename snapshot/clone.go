package snapshot

import (
	"fmt"
	"reflect"
	"slices"
	"unsafe"
)

// A plan says where in a value of one type something must be done after its memory
// was copied as it is.
type plan struct {
	typ   reflect.Type
	size  uintptr
	plain bool // no pointer in it
	fixes []fix
}

type fixOp uint8

const (
	fixZero fixOp = iota
	fixSlice
	fixPointer
	fixMap
	fixInterface
)

type fix struct {
	at    uintptr
	op    fixOp
	typ   reflect.Type
	plain bool  // no pointer in it
	elem  *plan // of a slice, a pointer or a map
	are   []reflect.Type
	made  made
	nul   any // a nil pointer to typ: with an address instead, it is what stands there
}

// in is what stands at the field's place; as reflect.NewAt gives it, which looks for the pointer's type each time.
func (f *fix) in(at unsafe.Pointer) reflect.Value {
	v := f.nul
	(*[2]unsafe.Pointer)(unsafe.Pointer(&v))[1] = at // An interface is its type and, if that is a pointer, the pointer.
	return reflect.ValueOf(v).Elem()
}

// zero empties the field. What most are has a quicker way than that for any type.
func (f *fix) zero(at unsafe.Pointer) {
	switch {
	case f.plain:
		clear(unsafe.Slice((*byte)(at), f.typ.Size()))
	case f.typ.Kind() == reflect.Slice:
		*(*header)(at) = header{}
	default:
		f.in(at).SetZero()
	}
}

// made are slices with pointers in them that clones over each other have for one field.
type made struct {
	slices []reflect.Value
	taken  int
}

// header is a slice as it lies in memory.
type header struct {
	data     unsafe.Pointer
	len, cap int
}

// Clone returns a copy of *from. Slices of the copy have no spare room, so that
// appending to one never reaches memory of the other.
func Clone[T any](w *Walker, from *T) *T {
	w.over = false
	w.arena.begin()
	return clone(w, new(T), from)
}

// CloneOver is Clone in the memory of old: what it returned last with this walker, which nobody uses any more. Nil is
// none yet.
func CloneOver[T any](w *Walker, old, from *T) *T {
	if old == nil {
		old = new(T)
	}
	for _, m := range w.lent {
		m.taken = 0
	}
	w.over, w.lent = true, w.lent[:0]
	w.arena, w.under = w.under, w.arena
	w.arena.again()
	to := clone(w, old, from)
	w.arena, w.under = w.under, w.arena
	return to
}

func clone[T any](w *Walker, to, from *T) *T {
	p := w.plan(reflect.TypeFor[T]())
	clear(w.memo)
	*to = *from
	w.memo[unsafe.Pointer(from)] = unsafe.Pointer(to)
	w.mend(p, unsafe.Pointer(to))
	return to
}

func (w *Walker) plan(t reflect.Type) *plan {
	if p := w.plans[t]; p != nil {
		return p
	}
	p := &plan{typ: t, size: t.Size(), plain: plain(t)}
	w.plans[t] = p // before its parts: types may be recursive through pointers
	w.addFixes(p, nil, nil, t, 0)
	return p
}

func (w *Walker) addFixes(p *plan, owner reflect.Type, field *reflect.StructField, t reflect.Type, at uintptr) {
	add := func(f fix) {
		f.at, f.typ, f.nul = at, t, reflect.Zero(reflect.PointerTo(t)).Interface()
		f.plain = plain(t)
		p.fixes = append(p.fixes, f)
	}
	r, ok := w.ruleOf(owner, field, t)
	if ok {
		switch r.Copy {
		case Share:
			return
		case Zero:
			add(fix{op: fixZero})
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
				return // Plain elements.
			}
		}
	case reflect.Slice:
		add(fix{op: fixSlice, elem: w.plan(t.Elem())})
	case reflect.Pointer:
		add(fix{op: fixPointer, elem: w.plan(t.Elem())})
	case reflect.Map:
		if w.plan(t.Key()).fixes != nil {
			panic(fmt.Sprintf("BUG: a map with keys of type %s cannot be cloned", t.Key()))
		}
		add(fix{op: fixMap, elem: w.plan(t.Elem())})
	case reflect.Interface:
		add(fix{op: fixInterface, are: r.Are})
	case reflect.Chan, reflect.UnsafePointer:
		panic(fmt.Sprintf("BUG: a value of type %s is no plain tree", t))
	default: // Numbers; strings and functions never change.
	}
}

// mend makes the copy at to independent of what it was copied from.
func (w *Walker) mend(p *plan, to unsafe.Pointer) {
	for i := range p.fixes {
		f := &p.fixes[i]
		at := unsafe.Add(to, f.at)
		switch f.op {
		case fixZero:
			f.zero(at)
		case fixSlice:
			if s := (*header)(at); s.len != 0 && f.elem.size != 0 {
				w.mendSlice(f, s)
			} else if s.data != nil {
				*s = header{data: unsafe.Pointer(&none)}
			}
		case fixPointer:
			*(*unsafe.Pointer)(at) = w.copyPointer(f.elem, *(*unsafe.Pointer)(at))
		case fixMap:
			w.mendMap(f, at)
		case fixInterface:
			if t, held, _ := holds(f.typ, f.are, at); t != nil {
				*held = w.copyPointer(w.plan(t.Elem()), *held)
			}
		}
	}
}

// mendSlice copies the elements of a slice that has some.
func (w *Walker) mendSlice(f *fix, s *header) {
	size, n := f.elem.size, s.len
	if f.elem.plain {
		bytes := uintptr(n) * size
		data := w.arena.take(bytes)
		copy(unsafe.Slice((*byte)(data), bytes), unsafe.Slice((*byte)(s.data), bytes))
		*s = header{data: data, len: n, cap: n}
		return
	}
	from := f.in(unsafe.Pointer(s))
	made := w.room(f, n)
	reflect.Copy(made, from)
	data := made.UnsafePointer()
	*s = header{data: data, len: n, cap: n}
	if len(f.elem.fixes) == 0 {
		return
	}
	for i := range n {
		w.mend(f.elem, unsafe.Add(data, uintptr(i)*size))
	}
}

// room is a slice of n for a field.
func (w *Walker) room(f *fix, n int) reflect.Value {
	if !w.over {
		return reflect.MakeSlice(f.typ, n, n)
	}
	m := &f.made
	if m.taken == 0 {
		w.lent = append(w.lent, m)
	}
	if m.taken == len(m.slices) {
		m.slices = append(m.slices, reflect.MakeSlice(f.typ, n, n))
	} else if m.slices[m.taken].Len() < n {
		m.slices[m.taken] = reflect.MakeSlice(f.typ, n, n)
	}
	m.taken++
	return m.slices[m.taken-1]
}

// holds says what kind of pointer is in the interface at p, which of those that it can be, and where in the interface
// the pointer itself stands; nil if none is.
func holds(t reflect.Type, are []reflect.Type, p unsafe.Pointer) (is reflect.Type, held *unsafe.Pointer, nth int) {
	v := reflect.NewAt(t, p).Elem()
	if v.IsNil() {
		return nil, nil, 0
	}
	is = v.Elem().Type()
	if nth = slices.Index(are, is); nth < 0 || is.Kind() != reflect.Pointer {
		panic(fmt.Sprintf("BUG: an interface of type %s needs a rule that names %s to be cloned or hashed", t, is))
	}
	return is, &(*[2]unsafe.Pointer)(p)[1], nth // An interface is its type and, if that is a pointer, the pointer.
}

// none is what empty slices point to: they are not nil.
var none uint64

// copyPointer copies what p points to; a pointer met before gives the copy made then.
func (w *Walker) copyPointer(elem *plan, p unsafe.Pointer) unsafe.Pointer {
	if p == nil {
		return nil
	}
	if to, ok := w.memo[p]; ok {
		return to
	}
	made := reflect.New(elem.typ)
	to := made.UnsafePointer()
	w.memo[p] = to
	made.Elem().Set(reflect.NewAt(elem.typ, p).Elem())
	w.mend(elem, to)
	return to
}

func (w *Walker) mendMap(f *fix, at unsafe.Pointer) {
	v := reflect.NewAt(f.typ, at).Elem()
	if v.IsNil() {
		return
	}
	made := reflect.MakeMapWithSize(f.typ, v.Len())
	for it := v.MapRange(); it.Next(); {
		value := reflect.New(f.elem.typ)
		value.Elem().Set(it.Value())
		w.mend(f.elem, value.UnsafePointer())
		made.SetMapIndex(it.Key(), value.Elem())
	}
	v.Set(made)
}

// plain says whether values of t hold no pointer, so that the collector need not know
// their memory.
func plain(t reflect.Type) bool {
	//exhaustive:ignore
	switch t.Kind() {
	case reflect.Struct:
		for i := range t.NumField() {
			if !plain(t.Field(i).Type) {
				return false
			}
		}
		return true
	case reflect.Array:
		return plain(t.Elem())
	case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint,
		reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr, reflect.Float32, reflect.Float64:
		return true
	default:
		return false
	}
}

// arena cuts the memory of one clone's plain slices out of one piece, as large as the
// clone before needed.
type arena struct {
	words []uint64
	taken int
}

func (a *arena) begin() {
	a.words = make([]uint64, 0, max(256, a.taken+a.taken/8))
	a.taken = 0
}

// again begins a clone in the memory of the one before.
func (a *arena) again() {
	if a.taken > cap(a.words) {
		a.begin()
	}
	a.words, a.taken = a.words[:0], 0
}

func (a *arena) take(bytes uintptr) unsafe.Pointer {
	n := int(bytes+7) / 8
	a.taken += n
	if len(a.words)+n > cap(a.words) {
		return unsafe.Pointer(unsafe.SliceData(make([]uint64, n)))
	}
	at := len(a.words)
	a.words = a.words[:at+n]
	return unsafe.Pointer(&a.words[at])
}
