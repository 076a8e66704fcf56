package protocol

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
	"strconv"
)

// The values that several messages share: formats, shapes, dtypes and lists.

func (r *reader) readFormat() Format {
	at := r.off
	v, negative := r.readInteger()
	if negative || v >= uint64(formats) {
		r.fail(DecodeUnknownFormat, at, integerText(v, negative), "0 to "+strconv.Itoa(int(formats)-1))
		return FormatUndefined
	}
	return Format(v)
}

func (r *reader) readDtype() Dtype {
	at := r.off
	name := r.readText()
	d, ok := ParseDtype(name)
	if r.ok() && !ok {
		r.fail(DecodeUnknownDtype, at, quoteBytes(name), "a name such as \"bfloat16\"")
	}
	return d
}

func (r *reader) readShape() (s Shape) {
	n := r.readArrayHeaderUpTo(ShapeRank, "")
	for i := range s.Dims[:n] {
		s.Dims[i] = r.readUint32()
	}
	s.N = uint8(n)
	return s
}

func appendShape(b []byte, s Shape) []byte {
	b = appendArrayHeader(b, int(s.N))
	for _, d := range s.Dims[:s.N] {
		b = appendUint(b, uint64(d))
	}
	return b
}

// readKeys appends a list of cache-engine keys to vs; each key is a view. Growing vs at once by the stated length is
// safe, here and below, because readArrayHeaderUpTo refuses more elements than there are bytes: the memory is a small
// multiple of the input.
func (r *reader) readKeys(vs [][]byte) [][]byte {
	n := r.readArrayHeader()
	for vs = slices.Grow(vs, n); n > 0 && r.ok(); n-- {
		vs = append(vs, r.readString(r.lim.KeyBytes, "KeyBytes"))
	}
	return vs
}

// readTexts appends a list to vs.
func (r *reader) readTexts(vs [][]byte) [][]byte {
	n := r.readArrayHeader()
	for vs = slices.Grow(vs, n); n > 0 && r.ok(); n-- {
		vs = append(vs, r.readText())
	}
	return vs
}

// readUUIDs appends a list to vs.
func (r *reader) readUUIDs(vs []UUID) []UUID {
	n := r.readArrayHeader()
	for vs = slices.Grow(vs, n); n > 0 && r.ok(); n-- {
		vs = append(vs, r.readUUID())
	}
	return vs
}

// readPullIDs appends a list to vs.
func (r *reader) readPullIDs(vs []PullID) []PullID {
	n := r.readArrayHeader()
	for vs = slices.Grow(vs, n); n > 0 && r.ok(); n-- {
		vs = append(vs, r.readPullID())
	}
	return vs
}

// readUint64Pair reads an array of two numbers.
func (r *reader) readUint64Pair() [2]uint64 {
	r.readFixedArray(2)
	return [2]uint64{r.readUint64(), r.readUint64()}
}

// readUint64s appends a list to vs.
func (r *reader) readUint64s(vs []uint64) []uint64 {
	n := r.readArrayHeader()
	for vs = slices.Grow(vs, n); n > 0 && r.ok(); n-- {
		vs = append(vs, r.readUint64())
	}
	return vs
}

// readInt64s appends a list to vs.
func (r *reader) readInt64s(vs []int64) []int64 {
	n := r.readArrayHeader()
	for vs = slices.Grow(vs, n); n > 0 && r.ok(); n-- {
		vs = append(vs, r.readInt64())
	}
	return vs
}

// readFloat reads a number. Narrower floats and integers are widened, as the peers do.
func (r *reader) readFloat() float64 {
	c, ok := r.peekByte()
	switch {
	case !ok:
		return 0
	case c == 0xca:
		v, _ := r.readNumber(4)
		return float64(math.Float32frombits(uint32(v)))
	case c == 0xcb:
		v, _ := r.readNumber(8)
		return math.Float64frombits(v)
	case typeName(c) != "int":
		r.failType(r.off, "float")
		return 0
	}
	v, negative := r.readInteger()
	if negative {
		return float64(int64(v))
	}
	return float64(v)
}

// nilByte is msgpack's nil.
const nilByte = 0xc0

// takeNil reads a nil and reports true if a nil is next; otherwise it reads nothing.
func (r *reader) takeNil() bool {
	if c, ok := r.peekByte(); !ok || c != nilByte {
		return false
	}
	r.off++
	return true
}

func appendFloat(b []byte, v float64) []byte {
	return binary.BigEndian.AppendUint64(append(b, 0xcb), math.Float64bits(v))
}

func appendPullIDs(b []byte, vs []PullID) []byte {
	b = appendArrayHeader(b, len(vs))
	for _, v := range vs {
		b = appendPullID(b, v)
	}
	return b
}

// countTrue returns the number of conditions that are true.
func countTrue(conditions ...bool) int { return bits.OnesCount64(maskOf(conditions...)) }

// maskOf returns a set with bit i if condition i is true.
func maskOf(conditions ...bool) (set uint64) {
	for i, c := range conditions {
		if c {
			set |= 1 << i
		}
	}
	return set
}
