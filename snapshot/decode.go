package snapshot

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"reflect"
	"unsafe"
)

// decodeDepthMax is the number of values within values, through slices, pointers and maps, that the decoder follows.
// Example: a list of a million nodes would otherwise need the stack of a million calls.
const decodeDepthMax = 1000

// A decoder reads one tree. After the first error, it reads nothing more.
type decoder struct {
	w       *Walker
	all     []byte
	b       []byte // what is left of all
	err     *DecodeError
	memory  uint64 // how many bytes may still be allocated
	depth   int
	targets []codeTarget // of the pointers that were read, by their numbers
}

// Decode makes the state *into equal to the state that [Encode] wrote. *into must have been made like the encoded
// value, for example by the same constructor with the same arguments: its shared parts stay. The bytes may come from
// anywhere: Decode returns an error for bytes that Encode cannot have written for a value of this type, and allocates
// at most memoryMax bytes. After an error, *into must not be used.
func Decode[T any](w *Walker, into *T, b []byte, memoryMax uint64) error {
	t := reflect.TypeFor[T]()
	d := decoder{w: w, all: b, b: b, memory: memoryMax, targets: []codeTarget{{unsafe.Pointer(into), t}}}
	d.value(w.codePlanOf(t, true), unsafe.Pointer(into))
	if d.err == nil && len(d.b) > 0 {
		d.fail("%d bytes follow the state", len(d.b))
	}
	if d.err != nil {
		return d.err
	}
	return nil
}

// fail notes the first error.
func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = &DecodeError{Offset: len(d.all) - len(d.b), Reason: fmt.Sprintf(format, args...)}
	}
}

// uvarint reads a number.
func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 || n > 1 && d.b[n-1] == 0 {
		d.fail("a number is incomplete, too large or longer than necessary")
		return 0
	}
	d.b = d.b[n:]
	return v
}

// take returns the next n bytes, or nil after an error.
func (d *decoder) take(n uint64) []byte {
	if n > uint64(len(d.b)) {
		d.fail("%d bytes are missing", n-uint64(len(d.b)))
		return nil
	}
	b := d.b[:n:n]
	d.b = d.b[n:]
	return b
}

// reserve reports whether n values of a size may be allocated.
func (d *decoder) reserve(n uint64, size uintptr) bool {
	each := max(uint64(size), 1)
	if n > d.memory/each {
		d.fail("the state needs more memory than is allowed: %d values of %d bytes, and %d bytes are left", n, size, d.memory)
		return false
	}
	d.memory -= n * each
	return true
}

// value reads the value at base.
func (d *decoder) value(p *codePlan, base unsafe.Pointer) {
	if d.depth++; d.depth > decodeDepthMax {
		d.fail("values are nested more than %d deep", decodeDepthMax)
	}
	for i := range p.parts {
		if d.err != nil {
			break
		}
		c := &p.parts[i]
		at := unsafe.Add(base, c.at)
		switch c.op {
		case codeBytes:
			if from := d.take(uint64(c.size)); from != nil && d.checkBools(c, from) {
				copy(unsafe.Slice((*byte)(at), c.size), from)
			}
		case codeZero:
			reflect.NewAt(c.typ, at).Elem().SetZero()
		case codeString:
			*(*string)(at) = d.text()
		case codeSlice:
			d.slice(c, at)
		case codePointer:
			*(*unsafe.Pointer)(at) = d.pointer(c.elem)
		case codeMap:
			d.readMap(c, at)
		case codeInterface:
			d.readInterface(c, at)
		}
	}
	d.depth--
}

// text reads a string.
func (d *decoder) text() string {
	from := d.take(d.uvarint())
	if d.err != nil || !d.reserve(uint64(len(from)), 1) {
		return ""
	}
	return string(from)
}

// checkBools reports whether each bool within plain memory is 0 or 1: no other byte may be a bool.
func (d *decoder) checkBools(c *codePart, from []byte) bool {
	for _, at := range c.bools {
		if from[at] > 1 {
			d.fail("a bool is %d", from[at])
			return false
		}
	}
	return true
}

// length reads a length, and reports false for nil.
func (d *decoder) length() (n uint64, ok bool) {
	n = d.uvarint()
	return n - 1, n > 0 && d.err == nil
}

// slice reads a slice.
func (d *decoder) slice(c *codePart, at unsafe.Pointer) {
	s := reflect.NewAt(c.typ, at).Elem()
	s.SetZero()
	n, ok := d.length()
	if !ok {
		return
	}
	if c.elem.dense && n > uint64(len(d.b))/uint64(c.elem.size) {
		d.fail("a slice of %d values of %d bytes is longer than the rest of the state", n, c.elem.size)
		return
	}
	if !d.reserve(n, c.elem.size) {
		return
	}
	s.Set(reflect.MakeSlice(c.typ, int(n), int(n)))
	data := s.UnsafePointer()
	if !c.elem.dense {
		if len(c.elem.parts) == 0 {
			return
		}
		for i := uint64(0); i < n && d.err == nil; i++ {
			d.value(c.elem, unsafe.Add(data, uintptr(i)*c.elem.size))
		}
		return
	}
	from := d.take(n * uint64(c.elem.size))
	if plain := &c.elem.parts[0]; len(plain.bools) > 0 {
		for rest := from; len(rest) > 0; rest = rest[c.elem.size:] {
			if !d.checkBools(plain, rest) {
				s.SetZero()
				return
			}
		}
	}
	copy(unsafe.Slice((*byte)(data), len(from)), from)
}

// pointer reads a pointer, and its target unless the target was read before.
func (d *decoder) pointer(elem *codePlan) unsafe.Pointer {
	n := d.uvarint()
	switch {
	case d.err != nil || n == 0:
		return nil
	case n > 1:
		if n -= 2; n >= uint64(len(d.targets)) || d.targets[n].typ != elem.typ {
			d.fail("a pointer leads to target %d, which is not a %v that was read before", n, elem.typ)
			return nil
		}
		return d.targets[n].at
	}
	if !d.reserve(1, elem.size+unsafe.Sizeof(codeTarget{})) {
		return nil
	}
	to := reflect.New(elem.typ).UnsafePointer()
	d.targets = append(d.targets, codeTarget{to, elem.typ})
	d.value(elem, to)
	return to
}

// readInterface reads an interface that holds a pointer.
func (d *decoder) readInterface(c *codePart, at unsafe.Pointer) {
	v := reflect.NewAt(c.typ, at).Elem()
	v.SetZero()
	n := d.uvarint()
	if n == 0 || d.err != nil {
		return
	}
	if n > uint64(len(c.impls)) {
		d.fail("a %v has the implementation %d of %d", c.typ, n, len(c.impls))
		return
	}
	t := c.impls[n-1]
	if to := d.pointer(d.w.codePlanOf(t.Elem(), false)); d.err == nil {
		v.Set(reflect.NewAt(t.Elem(), to))
	}
}

// readMap reads a map. The keys must be in order, so that none is there twice.
func (d *decoder) readMap(c *codePart, at unsafe.Pointer) {
	v := reflect.NewAt(c.typ, at).Elem()
	v.SetZero()
	n, ok := d.length()
	if !ok || !d.reserve(n, 2*(c.key.size+c.elem.size)+16) { // Maps keep spare room.
		return
	}
	if n > uint64(len(d.b)) && len(c.key.parts) > 0 {
		d.fail("a map of %d entries is longer than the rest of the state", n)
		return
	}
	made := reflect.MakeMapWithSize(c.typ, int(n))
	var before []byte
	for i := uint64(0); i < n && d.err == nil; i++ {
		key, value := reflect.New(c.key.typ), reflect.New(c.elem.typ)
		start := d.b
		d.value(c.key, key.UnsafePointer())
		own := start[:len(start)-len(d.b)]
		if d.err == nil && i > 0 && bytes.Compare(before, own) >= 0 {
			d.fail("the keys of a map are not in order")
		}
		before = own
		if d.value(c.elem, value.UnsafePointer()); d.err == nil {
			made.SetMapIndex(key.Elem(), value.Elem())
		}
	}
	v.Set(made)
}
