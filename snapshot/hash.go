package snapshot

import (
	"fmt"
	"math/bits"
	"reflect"
	"unsafe"
)

// Hasher hashes the words of a tree in order.
type Hasher struct {
	state uint64
	w     *Walker
}

// Word adds a number.
func (h *Hasher) Word(x uint64) {
	hi, lo := bits.Mul64(h.state^x^0x9E3779B97F4A7C15, 0xD1B54A32D192ED03^x>>32)
	h.state = hi ^ lo + bits.RotateLeft64(h.state, 23)
}

// Bytes adds a byte string and its length.
func (h *Hasher) Bytes(b []byte) {
	h.Word(uint64(len(b)))
	for len(b) >= 8 {
		h.Word(*(*uint64)(unsafe.Pointer(unsafe.SliceData(b))))
		b = b[8:]
	}
	last := uint64(0)
	for i, c := range b {
		last |= uint64(c) << (8 * i)
	}
	h.Word(last)
}

// Fork returns a separate hasher for parts whose order must not matter. The caller adds up the sums of all parts, and
// then adds the total as a word.
func (h *Hasher) Fork() Hasher { return Hasher{w: h.w, state: 0x632BE59BD9B4E019} }

// Sum returns the hash of all words so far.
func (h *Hasher) Sum() uint64 {
	x := h.state
	x ^= x >> 32
	x *= 0xD6E8FEB86659FD93
	return x ^ x>>32
}

// Value adds the value of type t at p, by its structure and the rules.
func (h *Hasher) Value(t reflect.Type, p unsafe.Pointer) { h.w.hashPlanOf(t).hashValue(h, p) }

// Hash returns the hash of *of, by its structure and the rules.
func Hash[T any](w *Walker, of *T) uint64 {
	h := Hasher{w: w}
	w.hashPlanOf(reflect.TypeFor[T]()).hashValue(&h, unsafe.Pointer(of))
	return h.Sum()
}

// A hashPlan lists the parts of values of a type, in the order in which they are hashed.
type hashPlan struct{ parts []part }

// partOp is the way in which a part of a value is hashed.
type partOp uint8

const (
	partWord8 partOp = iota
	partWord16
	partWord32
	partWord64
	partBytes // a slice of bytes or a string
	partSlice
	partPointer
	partMap
	partInterface
	partCustom
)

// A part is a part of a value that is hashed.
type part struct {
	at     uintptr
	op     partOp
	size   uintptr // of an element
	typ    reflect.Type
	elem   *hashPlan
	impls  []reflect.Type // of an interface
	custom func(h *Hasher, p unsafe.Pointer)
}

// hashPlanOf returns the plan for values of type t, and compiles the plan if necessary.
func (w *Walker) hashPlanOf(t reflect.Type) *hashPlan {
	if s := w.hashPlans[t]; s != nil {
		return s
	}
	s := &hashPlan{}
	w.hashPlans[t] = s
	w.addParts(s, nil, nil, t, 0)
	return s
}

// addParts appends to s the parts for a value of type t at offset at, according to the rule for the value.
func (w *Walker) addParts(s *hashPlan, owner reflect.Type, field *reflect.StructField, t reflect.Type, at uintptr) {
	if r, ok := w.ruleOf(owner, field, t); ok {
		switch {
		case r.Skip || r.Copy != Deep && r.Hash == nil && r.Compile == nil:
			return // What a clone does not have to itself cannot distinguish states.
		case r.Compile != nil:
			s.parts = append(s.parts, part{at: at, op: partCustom, custom: r.Compile(w, t)})
			return
		case r.Hash != nil:
			s.parts = append(s.parts, part{at: at, op: partCustom, custom: r.Hash})
			return
		case r.Implementations != nil:
			s.parts = append(s.parts, part{at: at, op: partInterface, typ: t, impls: r.Implementations})
			return
		}
	}
	w.addStructure(s, t, at)
}

// addStructure appends to s the parts for a value of type t at offset at, according to the structure of t.
func (w *Walker) addStructure(s *hashPlan, t reflect.Type, at uintptr) {
	add := func(p part) { p.at, p.typ = at, t; s.parts = append(s.parts, p) }
	//exhaustive:ignore
	switch t.Kind() {
	case reflect.Struct:
		w.addStruct(s, t, at)
	case reflect.Array:
		for i := range t.Len() {
			w.addParts(s, nil, nil, t.Elem(), at+uintptr(i)*t.Elem().Size())
		}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 || t.Elem().Kind() == reflect.Bool {
			add(part{op: partBytes})
			return
		}
		add(part{op: partSlice, size: t.Elem().Size(), elem: w.hashPlanOf(t.Elem())})
	case reflect.String:
		add(part{op: partBytes})
	case reflect.Pointer:
		add(part{op: partPointer, elem: w.hashPlanOf(t.Elem())})
	case reflect.Map:
		add(part{op: partMap})
	case reflect.Bool, reflect.Int8, reflect.Uint8:
		add(part{op: partWord8})
	case reflect.Int16, reflect.Uint16:
		add(part{op: partWord16})
	case reflect.Int32, reflect.Uint32:
		add(part{op: partWord32})
	case reflect.Int, reflect.Int64, reflect.Uint, reflect.Uint64, reflect.Uintptr:
		add(part{op: partWord64})
	default:
		panic(fmt.Sprintf("BUG: a value of type %s needs a rule to be hashed", t))
	}
}

// addStruct appends to s the parts for a struct. A struct with a life flag is hashed only while the flag is true.
func (w *Walker) addStruct(s *hashPlan, t reflect.Type, at uintptr) {
	fields := func(s *hashPlan, at uintptr) {
		for i := range t.NumField() {
			f := t.Field(i)
			w.addParts(s, t, &f, f.Type, at+f.Offset)
		}
	}
	flag, ok := lifeFlagOffset(t)
	if !ok {
		fields(s, at)
		return
	}
	whole := &hashPlan{}
	fields(whole, 0)
	s.parts = append(s.parts, part{at: at, op: partCustom, custom: func(h *Hasher, p unsafe.Pointer) {
		if !*(*bool)(unsafe.Add(p, flag)) {
			h.Word(0)
			return
		}
		h.Word(1)
		whole.hashValue(h, p)
	}})
}

// hashValue hashes the value at base.
func (s *hashPlan) hashValue(h *Hasher, base unsafe.Pointer) {
	for i := range s.parts {
		p := &s.parts[i]
		at := unsafe.Add(base, p.at)
		switch p.op {
		case partWord8:
			h.Word(uint64(*(*uint8)(at)))
		case partWord16:
			h.Word(uint64(*(*uint16)(at)))
		case partWord32:
			h.Word(uint64(*(*uint32)(at)))
		case partWord64:
			h.Word(*(*uint64)(at))
		case partBytes: // A string has the layout of a slice without the capacity.
			b := (*struct {
				data unsafe.Pointer
				len  int
			})(at)
			h.Bytes(unsafe.Slice((*byte)(b.data), b.len))
		case partSlice:
			b := (*sliceHeader)(at)
			h.Word(uint64(b.len))
			for i := range b.len {
				p.elem.hashValue(h, unsafe.Add(b.data, uintptr(i)*p.size))
			}
		case partPointer:
			to := *(*unsafe.Pointer)(at)
			if to == nil {
				h.Word(0)
				continue
			}
			h.Word(1)
			p.elem.hashValue(h, to)
		case partMap:
			h.addMap(p.typ, at)
		case partInterface:
			t, held, nth := interfaceTarget(p.typ, p.impls, at)
			if t == nil {
				h.Word(0)
				continue
			}
			h.Word(1 + uint64(nth))
			h.Value(t.Elem(), *held)
		case partCustom:
			p.custom(h, at)
		}
	}
}

// addMap adds a map. The order of the entries does not matter.
func (h *Hasher) addMap(t reflect.Type, at unsafe.Pointer) {
	v := reflect.NewAt(t, at).Elem()
	total := uint64(v.Len())
	key, value := reflect.New(t.Key()), reflect.New(t.Elem())
	for it := v.MapRange(); it.Next(); {
		key.Elem().SetIterKey(it)
		value.Elem().SetIterValue(it)
		one := h.Fork()
		one.Value(t.Key(), key.UnsafePointer())
		one.Value(t.Elem(), value.UnsafePointer())
		total += one.Sum()
	}
	h.Word(total)
}
