package protocol

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
	"strconv"
)

// The values that several messages share: formats, shapes, dtypes and lists of numbers. What is
// left out when zero is the extension fields', whose absence means zero.

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

func (r *reader) shape(s *Shape) {
	*s = Shape{}
	n := r.arrayUpTo(ShapeRank, "")
	for i := range s.Dims[:n] {
		s.Dims[i] = r.uint32()
	}
	s.N = uint8(n)
}

func appendShape(b []byte, s Shape) []byte {
	b = appendArrayHeader(b, int(s.N))
	for _, d := range s.Dims[:s.N] {
		b = appendUint(b, uint64(d))
	}
	return b
}

// keys appends a list of cache-engine keys to vs; each is a view. What a list claims, here and below,
// is claimed by as many bytes, so room for all of it at once is a small multiple of the input.
func (r *reader) keys(vs [][]byte) [][]byte {
	n := r.arrayHeader()
	for vs = slices.Grow(vs, n); n > 0 && r.ok(); n-- {
		vs = append(vs, r.str(r.lim.KeyBytes, "KeyBytes"))
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

// float takes a number. A narrower one, and an integer, is widened, as the peers do.
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

// textOrNil takes a string or nil, which is empty.
func (r *reader) textOrNil() []byte {
	if c, ok := r.lead(); ok && c == 0xc0 {
		r.off++
		return nil
	}
	return r.text()
}

// parallel demands that the list in field, read at byte at, is as long as the one it runs beside.
func (r *reader) parallel(field string, at, got int, other string, want int) {
	if r.ok() && got != want {
		r.field = field
		r.fail(DecodeLengthMismatch, at, strconv.Itoa(got)+" elements", strconv.Itoa(want)+" as in "+other)
	}
}

func appendFloat(b []byte, v float64) []byte {
	return binary.BigEndian.AppendUint64(append(b, 0xcb), math.Float64bits(v))
}

// appendTextOrNil writes nil for an empty string.
func appendTextOrNil(b, s []byte) []byte {
	if len(s) == 0 {
		return append(b, 0xc0)
	}
	return appendStr(b, s)
}

func appendNonZero(b []byte, name string, v uint64) []byte {
	if v == 0 {
		return b
	}
	return appendUint(appendStr(b, name), v)
}

func appendNonEmpty(b []byte, name string, vs []uint64) []byte {
	if len(vs) == 0 {
		return b
	}
	return appendUints(b, name, vs)
}

func appendNonZeroUUID(b []byte, name string, u UUID) []byte {
	if u == (UUID{}) {
		return b
	}
	return appendUUID(appendStr(b, name), u)
}

func appendNonEmptyText(b []byte, name string, s []byte) []byte {
	if len(s) == 0 {
		return b
	}
	return appendStr(appendStr(b, name), s)
}

func appendTrue(b []byte, name string, v bool) []byte {
	if !v {
		return b
	}
	return appendBool(appendStr(b, name), true)
}

func appendNonEmptyTexts(b []byte, name string, vs [][]byte) []byte {
	if len(vs) == 0 {
		return b
	}
	return appendStrs(b, name, vs)
}

// ones counts the conditions that hold.
func ones(conditions ...bool) int { return bits.OnesCount64(marks(conditions...)) }

// marks has bit i where condition i holds.
func marks(conditions ...bool) (set uint64) {
	for i, c := range conditions {
		if c {
			set |= 1 << i
		}
	}
	return set
}
