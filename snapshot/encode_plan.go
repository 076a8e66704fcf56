package snapshot

import (
	"fmt"
	"hash/fnv"
	"reflect"
	"slices"
	"strings"
)

// A codePlan lists the parts of a value of a type in the order in which they are encoded.
type codePlan struct {
	typ   reflect.Type
	size  uintptr
	parts []codePart
	dense bool // the whole memory of the value is one part of plain bytes
}

// codeOp is the way in which a part of a value is encoded.
type codeOp uint8

const (
	codeBytes     codeOp = iota // plain memory, without padding
	codeZero                    // not encoded, and zero after decoding
	codeString                  // length, bytes
	codeSlice                   // 0 for nil or the length plus 1, elements
	codePointer                 // 0 for nil, 1 and the target, or the number of an earlier target plus 2
	codeMap                     // 0 for nil or the length plus 1, entries in the order of their encoded keys
	codeInterface               // 0 for nil or the number of the implementation plus 1, and the pointer
)

// A codePart is a part of a value that is encoded.
type codePart struct {
	at    uintptr
	size  uintptr
	op    codeOp
	typ   reflect.Type
	key   *codePlan // of a map
	elem  *codePlan // of a slice, a pointer or a map
	impls []reflect.Type
	bools []uintptr // where plain memory has values of type bool, from the beginning of the part
}

// A codePlanKey identifies a plan. A value is in place if it is a part of the memory of the root: the decoder writes
// such a value over another, and leaves the shared parts of the other as they are.
type codePlanKey struct {
	typ     reflect.Type
	inPlace bool
}

// codePlanOf returns the plan for values of type t, and compiles the plan if necessary.
func (w *Walker) codePlanOf(t reflect.Type, inPlace bool) *codePlan {
	k := codePlanKey{t, inPlace}
	if p := w.codePlans[k]; p != nil {
		return p
	}
	if w.codePlans == nil {
		w.codePlans = map[codePlanKey]*codePlan{}
	}
	p := &codePlan{typ: t, size: t.Size()}
	w.codePlans[k] = p // before its parts are compiled, because types may be recursive through pointers
	w.addCodeParts(p, nil, nil, t, 0, inPlace)
	p.dense = len(p.parts) == 1 && p.parts[0].op == codeBytes && p.parts[0].size == p.size
	return p
}

// addCodeParts appends to p the parts for a value of type t at offset at.
func (w *Walker) addCodeParts(p *codePlan, owner reflect.Type, field *reflect.StructField, t reflect.Type, at uintptr, inPlace bool) {
	add := func(c codePart) {
		c.at, c.size, c.typ = at, t.Size(), t
		p.parts = append(p.parts, c)
	}
	r, _ := w.ruleOf(owner, field, t)
	switch {
	case r.Copy == Zero:
		add(codePart{op: codeZero})
		return
	case r.Copy == Share && inPlace:
		return
	}
	//exhaustive:ignore
	switch t.Kind() {
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			w.addCodeParts(p, t, &f, f.Type, at+f.Offset, inPlace)
		}
	case reflect.Array:
		for i := range t.Len() {
			w.addCodeParts(p, nil, nil, t.Elem(), at+uintptr(i)*t.Elem().Size(), inPlace)
		}
	case reflect.String:
		add(codePart{op: codeString})
	case reflect.Slice:
		add(codePart{op: codeSlice, elem: w.codePlanOf(t.Elem(), false)})
	case reflect.Pointer:
		add(codePart{op: codePointer, elem: w.codePlanOf(t.Elem(), false)})
	case reflect.Map:
		key := w.codePlanOf(t.Key(), false)
		if slices.ContainsFunc(key.parts, func(c codePart) bool { return c.op != codeBytes && c.op != codeString }) {
			panic(fmt.Sprintf("BUG: a map with keys of type %s cannot be encoded", t.Key()))
		}
		add(codePart{op: codeMap, key: key, elem: w.codePlanOf(t.Elem(), false)})
	case reflect.Interface:
		if r.Implementations == nil {
			panic(fmt.Sprintf("BUG: an interface of type %s needs a rule with its implementations to be encoded", t))
		}
		add(codePart{op: codeInterface, impls: r.Implementations})
	case reflect.Chan, reflect.Func, reflect.UnsafePointer:
		panic(fmt.Sprintf("BUG: a value of type %s cannot be encoded", t))
	default:
		p.addPlain(at, t)
	}
}

// addPlain appends a number or a bool. Plain memory that follows on plain memory extends it.
func (p *codePlan) addPlain(at uintptr, t reflect.Type) {
	last := len(p.parts) - 1
	if last < 0 || p.parts[last].op != codeBytes || p.parts[last].at+p.parts[last].size != at {
		p.parts = append(p.parts, codePart{op: codeBytes, at: at})
		last++
	}
	c := &p.parts[last]
	if t.Kind() == reflect.Bool {
		c.bools = append(c.bools, at-c.at)
	}
	c.size += t.Size()
}

// LayoutHash identifies the layout of everything that [Encode] writes of a value of type T: the types and names of all
// fields, their places and their tags. Builds with the same hash read each other's bytes.
func LayoutHash[T any](w *Walker) uint64 {
	var text strings.Builder
	one := uint16(1)
	fmt.Fprintf(&text, "little-endian %t\n", *(*byte)(pointerTo(&one)) == 1)
	seen := map[codePlanKey]bool{}
	w.writeLayout(&text, seen, codePlanKey{reflect.TypeFor[T](), true})
	h := fnv.New64a()
	_, _ = h.Write([]byte(text.String()))
	return h.Sum64()
}

// writeLayout writes the layout of a type and of the types that it contains, each once.
func (w *Walker) writeLayout(text *strings.Builder, seen map[codePlanKey]bool, k codePlanKey) {
	if seen[k] {
		return
	}
	seen[k] = true
	fmt.Fprintf(text, "%s.%s %s %d\n", k.typ.PkgPath(), k.typ, k.typ.Kind(), k.typ.Size())
	if k.typ.Kind() == reflect.Struct {
		for i := range k.typ.NumField() {
			f := k.typ.Field(i)
			fmt.Fprintf(text, "  %s %s %d %s\n", f.Name, f.Type, f.Offset, wordOf(&f))
			if f.Type.Kind() == reflect.Struct && !w.isOutside(&f) {
				w.writeLayout(text, seen, codePlanKey{f.Type, k.inPlace})
			}
		}
	}
	for _, c := range w.codePlanOf(k.typ, k.inPlace).parts {
		fmt.Fprintf(text, "  %d+%d %d\n", c.at, c.size, c.op)
		for _, inner := range []*codePlan{c.key, c.elem} {
			if inner != nil {
				w.writeLayout(text, seen, codePlanKey{inner.typ, false})
			}
		}
		for _, impl := range c.impls {
			w.writeLayout(text, seen, codePlanKey{impl.Elem(), false})
		}
	}
}
