package protocol

import "strconv"

// skipValue skips the value of an unknown field, of any type, at the given depth in the message.
//
// Only the structure is checked: every length against the remaining bytes, and nesting against Limits.Depth. The other
// limits bound what a decoder keeps, and nothing of an unknown field is kept. The time is linear in the number of
// skipped bytes, because every element has at least one byte.
func (r *reader) skipValue(depth int) {
	at := r.off
	c, ok := r.peekByte()
	if !ok {
		return
	}
	switch {
	case c < 0x80, c >= 0xe0, c == 0xc0, c == 0xc2, c == 0xc3: // fixint, nil, bool
		r.off++
	case c&0xf0 == 0x80:
		r.off++
		r.skipElements(at, depth, 2*uint64(c&0x0f))
	case c&0xf0 == 0x90:
		r.off++
		r.skipElements(at, depth, uint64(c&0x0f))
	case c&0xe0 == 0xa0:
		r.off++
		r.readBytes(at, uint64(c&0x1f))
	case c >= 0xc4 && c <= 0xc6: // bin
		r.skipCounted(at, 1<<(c-0xc4), 0)
	case c >= 0xc7 && c <= 0xc9: // ext: a type byte before the data
		r.skipCounted(at, 1<<(c-0xc7), 1)
	case c == 0xca || c == 0xcb: // float
		r.off++
		r.readBytes(at, 4<<(c-0xca))
	case c >= 0xcc && c <= 0xcf: // uint
		r.readNumber(1 << (c - 0xcc))
	case c >= 0xd0 && c <= 0xd3: // int
		r.readNumber(1 << (c - 0xd0))
	case c >= 0xd4 && c <= 0xd8: // fixext
		r.off++
		r.readBytes(at, 1+1<<(c-0xd4))
	case c >= 0xd9 && c <= 0xdb: // str
		r.skipCounted(at, 1<<(c-0xd9), 0)
	case c == 0xdc || c == 0xdd: // array
		if n, ok := r.readNumber(2 << (c - 0xdc)); ok {
			r.skipElements(at, depth, n)
		}
	case c == 0xde || c == 0xdf: // map
		if n, ok := r.readNumber(2 << (c - 0xde)); ok {
			r.skipElements(at, depth, 2*n)
		}
	default:
		r.failType(at, "")
	}
}

// skipCounted skips a length of width bytes, as many bytes as the length states, and extra bytes.
func (r *reader) skipCounted(at, width int, extra uint64) {
	if n, ok := r.readNumber(width); ok {
		r.readBytes(at, n+extra)
	}
}

// skipElements skips n elements of a list or map at depth.
func (r *reader) skipElements(at, depth int, n uint64) {
	if limit := min(r.lim.Depth, depthMax); depth > limit {
		r.fail(DecodeTooDeep, at, strconv.Itoa(depth)+" levels", atMost(limit, "Depth"))
		return
	}
	if n > uint64(len(r.b)-r.off) {
		r.failTruncated(at)
		return
	}
	for ; n > 0 && r.ok(); n-- {
		r.skipValue(depth + 1)
	}
}

// typeName returns the name of the msgpack type that a lead byte announces.
func typeName(c byte) string {
	switch {
	case c < 0x80, c >= 0xe0, c >= 0xcc && c <= 0xd3:
		return "int"
	case c < 0x90, c == 0xde, c == 0xdf:
		return "map"
	case c < 0xa0, c == 0xdc, c == 0xdd:
		return "array"
	case c < 0xc0, c >= 0xd9 && c <= 0xdb:
		return "str"
	case c == 0xc0:
		return "nil"
	case c == 0xc2, c == 0xc3:
		return "bool"
	case c >= 0xc4 && c <= 0xc6:
		return "bin"
	case c == 0xca, c == 0xcb:
		return "float"
	case c == 0xc1:
		return "reserved byte"
	}
	return "ext"
}
