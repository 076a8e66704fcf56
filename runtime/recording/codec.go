package recording

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"reflect"
	"strings"
	"unsafe"

	"github.com/kvferry/kvferry/effects"
)

// A codec encodes and decodes the values of one type. Codecs are compiled from the types once, so that encoding needs no
// reflection. Unlike encoding/gob, a codec keeps nil and empty slices apart, because machines may, and includes
// unexported fields.
type codec struct {
	encode func(b []byte, p unsafe.Pointer) []byte
	decode func(r *decoder, p unsafe.Pointer)
}

// A decoder reads encoded values. After an error, it reads zeros.
type decoder struct {
	b   []byte
	err error
}

var errMalformed = errors.New("a record is malformed")

func (r *decoder) fail() {
	r.b = nil
	if r.err == nil {
		r.err = errMalformed
	}
}

func (r *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *decoder) varint() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

// length reads a length plus one. The length is at most the number of bytes that remain, so that a malformed record
// cannot make the decoder allocate memory without bounds. For zero, ok is false.
func (r *decoder) length() (n int, ok bool) {
	v := r.uvarint()
	if v == 0 {
		return 0, false
	}
	if v-1 > uint64(len(r.b)) {
		r.fail()
		return 0, false
	}
	return int(v - 1), true
}

// take returns the next n bytes. They belong to the record.
func (r *decoder) take(n int) []byte {
	if n > len(r.b) {
		r.fail()
		return make([]byte, n)
	}
	b := r.b[:n:n]
	r.b = r.b[n:]
	return b
}

// A registry compiles codecs, and lists the types that it has seen with their fields.
type registry struct {
	codecs map[reflect.Type]*codec
	schema strings.Builder
}

// schemaHash identifies the layout of all encoded types: builds with the same hash read each other's records.
func (g *registry) schemaHash() uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(g.schema.String()))
	return h.Sum64()
}

// codecOf returns the codec of a type. A type that contains itself, a map, a function, a channel or a float is a defect of
// the caller.
func (g *registry) codecOf(t reflect.Type) *codec {
	if c := g.codecs[t]; c != nil {
		return c
	}
	c := g.compile(t)
	g.codecs[t] = c
	return c
}

func (g *registry) compile(t reflect.Type) *codec {
	fmt.Fprintf(&g.schema, "%s %s %d\n", t, t.Kind(), t.Size())
	//exhaustive:ignore
	switch t.Kind() {
	case reflect.Bool, reflect.Uint8, reflect.Int8:
		return &codec{
			encode: func(b []byte, p unsafe.Pointer) []byte { return append(b, *(*byte)(p)) },
			decode: func(r *decoder, p unsafe.Pointer) {
				v := r.take(1)[0]
				if t.Kind() == reflect.Bool && v > 1 {
					r.fail()
					return
				}
				*(*byte)(p) = v
			},
		}
	case reflect.Uint16:
		return unsignedCodec[uint16]()
	case reflect.Uint32:
		return unsignedCodec[uint32]()
	case reflect.Uint64, reflect.Uint:
		return unsignedCodec[uint64]()
	case reflect.Int16:
		return signedCodec[int16]()
	case reflect.Int32:
		return signedCodec[int32]()
	case reflect.Int64, reflect.Int:
		return signedCodec[int64]()
	case reflect.String:
		return &codec{
			encode: func(b []byte, p unsafe.Pointer) []byte {
				s := *(*string)(p)
				return append(binary.AppendUvarint(b, uint64(len(s))+1), s...)
			},
			decode: func(r *decoder, p unsafe.Pointer) {
				n, _ := r.length()
				*(*string)(p) = string(r.take(n))
			},
		}
	case reflect.Array:
		return g.compileArray(t)
	case reflect.Slice:
		return g.compileSlice(t)
	case reflect.Pointer:
		return g.compilePointer(t)
	case reflect.Struct:
		return g.compileStruct(t)
	case reflect.Interface:
		if t == reflect.TypeFor[effects.CommandBody]() {
			return g.compileUnion(commandTypes)
		}
	}
	panic(fmt.Sprintf("BUG: a value of type %s cannot be recorded", t))
}

func unsignedCodec[T uint16 | uint32 | uint64]() *codec {
	return &codec{
		encode: func(b []byte, p unsafe.Pointer) []byte { return binary.AppendUvarint(b, uint64(*(*T)(p))) },
		decode: func(r *decoder, p unsafe.Pointer) {
			v := r.uvarint()
			if *(*T)(p) = T(v); uint64(T(v)) != v {
				r.fail()
			}
		},
	}
}

func signedCodec[T int16 | int32 | int64]() *codec {
	return &codec{
		encode: func(b []byte, p unsafe.Pointer) []byte { return binary.AppendVarint(b, int64(*(*T)(p))) },
		decode: func(r *decoder, p unsafe.Pointer) {
			v := r.varint()
			if *(*T)(p) = T(v); int64(T(v)) != v {
				r.fail()
			}
		},
	}
}

func (g *registry) compileArray(t reflect.Type) *codec {
	n, size := t.Len(), t.Elem().Size()
	if t.Elem().Kind() == reflect.Uint8 {
		return &codec{
			encode: func(b []byte, p unsafe.Pointer) []byte { return append(b, unsafe.Slice((*byte)(p), n)...) },
			decode: func(r *decoder, p unsafe.Pointer) { copy(unsafe.Slice((*byte)(p), n), r.take(n)) },
		}
	}
	elem := g.codecOf(t.Elem())
	return &codec{
		encode: func(b []byte, p unsafe.Pointer) []byte {
			for i := range n {
				b = elem.encode(b, unsafe.Add(p, uintptr(i)*size))
			}
			return b
		},
		decode: func(r *decoder, p unsafe.Pointer) {
			for i := range n {
				elem.decode(r, unsafe.Add(p, uintptr(i)*size))
			}
		},
	}
}

// sliceHeader is the layout of a slice.
type sliceHeader struct {
	data unsafe.Pointer
	len  int
	cap  int
}

func (g *registry) compileSlice(t reflect.Type) *codec {
	if t.Elem().Kind() == reflect.Uint8 {
		return &codec{
			encode: func(b []byte, p unsafe.Pointer) []byte {
				s := *(*[]byte)(p)
				if s == nil {
					return append(b, 0)
				}
				return append(binary.AppendUvarint(b, uint64(len(s))+1), s...)
			},
			decode: func(r *decoder, p unsafe.Pointer) {
				if n, ok := r.length(); ok {
					*(*[]byte)(p) = append(make([]byte, 0, n), r.take(n)...)
				}
			},
		}
	}
	elem, size := g.codecOf(t.Elem()), t.Elem().Size()
	return &codec{
		encode: func(b []byte, p unsafe.Pointer) []byte {
			s := (*sliceHeader)(p)
			if s.data == nil {
				return append(b, 0)
			}
			b = binary.AppendUvarint(b, uint64(s.len)+1)
			for i := range s.len {
				b = elem.encode(b, unsafe.Add(s.data, uintptr(i)*size))
			}
			return b
		},
		decode: func(r *decoder, p unsafe.Pointer) {
			n, ok := r.length()
			if !ok {
				return
			}
			s := reflect.NewAt(t, p).Elem()
			s.Set(reflect.MakeSlice(t, n, n))
			for i := range n {
				elem.decode(r, unsafe.Add(s.UnsafePointer(), uintptr(i)*size))
			}
		},
	}
}

func (g *registry) compilePointer(t reflect.Type) *codec {
	elem := g.codecOf(t.Elem())
	return &codec{
		encode: func(b []byte, p unsafe.Pointer) []byte {
			to := *(*unsafe.Pointer)(p)
			if to == nil {
				return append(b, 0)
			}
			return elem.encode(append(b, 1), to)
		},
		decode: func(r *decoder, p unsafe.Pointer) {
			if r.take(1)[0] == 0 {
				return
			}
			to := reflect.New(t.Elem())
			elem.decode(r, to.UnsafePointer())
			*(*unsafe.Pointer)(p) = to.UnsafePointer()
		},
	}
}

func (g *registry) compileStruct(t reflect.Type) *codec {
	type field struct {
		at uintptr
		c  *codec
	}
	fields := make([]field, t.NumField())
	for i := range fields {
		f := t.Field(i)
		fmt.Fprintf(&g.schema, ".%s %s\n", f.Name, f.Type)
		fields[i] = field{f.Offset, g.codecOf(f.Type)}
	}
	return &codec{
		encode: func(b []byte, p unsafe.Pointer) []byte {
			for i := range fields {
				b = fields[i].c.encode(b, unsafe.Add(p, fields[i].at))
			}
			return b
		},
		decode: func(r *decoder, p unsafe.Pointer) {
			for i := range fields {
				fields[i].c.decode(r, unsafe.Add(p, fields[i].at))
			}
		},
	}
}

// compileUnion returns the codec of an interface type with methods, whose values are pointers to the given types or nil. A
// value of another type is encoded as nil; [registry.canEncode] says before whether there is one.
func (g *registry) compileUnion(types []reflect.Type) *codec {
	codecs, numbers := make([]*codec, len(types)), map[reflect.Type]uint64{}
	for i, t := range types {
		codecs[i], numbers[reflect.PointerTo(t)] = g.codecOf(t), uint64(i)+1
	}
	return &codec{
		encode: func(b []byte, p unsafe.Pointer) []byte {
			v := reflect.ValueOf(*(*effects.CommandBody)(p))
			if !v.IsValid() || numbers[v.Type()] == 0 || v.IsNil() {
				return append(b, 0)
			}
			n := numbers[v.Type()]
			return codecs[n-1].encode(binary.AppendUvarint(b, n), v.UnsafePointer())
		},
		decode: func(r *decoder, p unsafe.Pointer) {
			n := r.uvarint()
			if n == 0 {
				return
			}
			if n > uint64(len(types)) {
				r.fail()
				return
			}
			v := reflect.New(types[n-1])
			codecs[n-1].decode(r, v.UnsafePointer())
			*(*effects.CommandBody)(p) = v.Interface().(effects.CommandBody)
		},
	}
}
