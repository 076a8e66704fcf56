package protocol

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
	"strconv"
)

// The values that several messages share: formats, shapes, dtypes and lists.

func (r *reader) format() Format {
	at := r.off
	v, negative := r.integer()
	if negative || v >= uint64(formats) {
		r.fail(DecodeUnknownFormat, at, integerText(v, negative), "0 to "+strconv.Itoa(int(formats)-1))
		return FormatUndefined
	}
	return Format(v)
}

func (r *reader) dtype() Dtype {
	at := r.off
	name := r.text()
	d, ok := ParseDtype(name)
	if r.ok() && !ok {
		r.fail(DecodeUnknownDtype, at, quote(name), "a name such as \"bfloat16\"")
	}
	return d
}

func (r *reader) shape() (s Shape) {
	n := r.arrayUpTo(ShapeRank, "")
	for i := range s.Dims[:n] {
		s.Dims[i] = r.uint32()
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

// keys appends a list of cache-engine keys to vs; each key is a view. Growing vs at once by the stated length is safe,
// here and below, because arrayUpTo refuses more elements than there are bytes: the memory is a small multiple of the
// input.
func (r *reader) keys(vs [][]byte) [][]byte {
	n := r.arrayHeader()
	for vs = slices.Grow(vs, n); n > 0 && r.ok(); n-- {
		vs = append(vs, r.str(r.lim.KeyBytes, "KeyBytes"))
	}
	return vs
}

// texts appends a list to vs.
func (r *reader) texts(vs [][]byte) [][]byte {
	n := r.arrayHeader()
	for vs = slices.Grow(vs, n); n > 0 && r.ok(); n-- {
		vs = append(vs, r.text())
	}
	return vs
}

// uuids appends a list to vs.
func (r *reader) uuids(vs []UUID) []UUID {
	n := r.arrayHeader()
	for vs = slices.Grow(vs, n); n > 0 && r.ok(); n-- {
		vs = append(vs, r.uuid())
	}
	return vs
}

// pullIDs appends a list to vs.
func (r *reader) pullIDs(vs []PullID) []PullID {
	n := r.arrayHeader()
	for vs = slices.Grow(vs, n); n > 0 && r.ok(); n-- {
		vs = append(vs, r.pullID())
	}
	return vs
}

// uint64Pair reads an array of two numbers.
func (r *reader) uint64Pair() [2]uint64 {
	r.fixedArray(2)
	return [2]uint64{r.uint64(), r.uint64()}
}

// uint64s appends a list to vs.
func (r *reader) uint64s(vs []uint64) []uint64 {
	n := r.arrayHeader()
	for vs = slices.Grow(vs, n); n > 0 && r.ok(); n-- {
		vs = append(vs, r.uint64())
	}
	return vs
}

// int64s appends a list to vs.
func (r *reader) int64s(vs []int64) []int64 {
	n := r.arrayHeader()
	for vs = slices.Grow(vs, n); n > 0 && r.ok(); n-- {
		vs = append(vs, r.int64())
	}
	return vs
}

// float reads a number. Narrower floats and integers are widened, as the peers do.
func (r *reader) float() float64 {
	c, ok := r.lead()
	switch {
	case !ok:
		return 0
	case c == 0xca:
		v, _ := r.number(4)
		return float64(math.Float32frombits(uint32(v)))
	case c == 0xcb:
		v, _ := r.number(8)
		return math.Float64frombits(v)
	case typeName(c) != "int":
		r.failType(r.off, "float")
		return 0
	}
	v, negative := r.integer()
	if negative {
		return float64(int64(v))
	}
	return float64(v)
}

// nilByte is msgpack's nil.
const nilByte = 0xc0

// takesNil reads a nil and reports true if a nil is next; otherwise it reads nothing.
func (r *reader) takesNil() bool {
	if c, ok := r.lead(); !ok || c != nilByte {
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

// ones returns the number of conditions that are true.
func ones(conditions ...bool) int { return bits.OnesCount64(marks(conditions...)) }

// marks returns a set with bit i if condition i is true.
func marks(conditions ...bool) (set uint64) {
	for i, c := range conditions {
		if c {
			set |= 1 << i
		}
	}
	return set
}
