package foreign

import "encoding/binary"

func isInteger(c byte) bool { return c < 0x80 || c >= 0xe0 || c >= 0xcc && c <= 0xd3 }
func isText(c byte) bool    { return c&0xe0 == 0xa0 || c >= 0xd9 && c <= 0xdb }
func isBytes(c byte) bool   { return c >= 0xc4 && c <= 0xc6 }
func isList(c byte) bool    { return c&0xf0 == 0x90 || c == 0xdc || c == 0xdd }
func isMap(c byte) bool     { return c&0xf0 == 0x80 || c == 0xde || c == 0xdf }

// lead returns the first byte of the next value without reading it.
func (e *encoder) lead(depth int) (byte, bool) {
	if e.bad = e.bad || e.off >= len(e.in) || depth > depthMax; e.bad {
		return 0, false
	}
	return e.in[e.off], true
}

// span reads n bytes.
func (e *encoder) span(n int) []byte {
	if e.bad = e.bad || n < 0 || n > len(e.in)-e.off; e.bad {
		return nil
	}
	e.off += n
	return e.in[e.off-n : e.off]
}

// number reads a big-endian number of width bytes.
func (e *encoder) number(width int) (v uint64) {
	for _, b := range e.span(width) {
		v = v<<8 | uint64(b)
	}
	return v
}

// length reads the lead byte of a value and returns the length of the value. The length is in the bits mask of a lead
// byte from fix on, or in the 1, 2 or 4 bytes behind a lead byte from wide on.
func (e *encoder) length(fix, mask, wide byte) int {
	c := e.in[e.off]
	e.off++
	if mask != 0 && c&^mask == fix {
		return int(c & mask)
	}
	return int(e.number(1 << (c - wide)))
}

// count reads the lead byte of a list or map and returns the number of elements or fields.
func (e *encoder) count(fix, wide byte) int {
	c := e.in[e.off]
	e.off++
	if c&0xf0 == fix {
		return int(c & 0x0f)
	}
	return int(e.number(2 << (c - wide)))
}

// width draws a width among the widths 1 << i that hold v, from narrowest to widest. Without the choice form, the
// result is the smallest such width.
func (e *encoder) width(of Forms, v uint64, least, most int) int {
	for least < most && v>>(8*least) != 0 {
		least *= 2
	}
	if e.forms&of != 0 {
		for wider := e.draw(4); wider > 0 && least < most; wider-- {
			least *= 2
		}
	}
	return least
}

// put writes a lead byte and a number of width bytes.
func (e *encoder) put(lead byte, v uint64, width int) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], v)
	e.out = append(append(e.out, lead), b[8-width:]...)
}

// log returns the binary logarithm of a width of 1, 2, 4 or 8.
func log(width int) byte { return [9]byte{2: 1, 4: 2, 8: 3}[width] }

// short reports whether a value is written in the short form, which has no separate length, if the value fits that
// form.
func (e *encoder) short(of Forms, fits bool) bool {
	return fits && (e.forms&of == 0 || e.draw(4) == 0)
}

// header writes the header of a list or map of n elements.
func (e *encoder) header(fix, wide byte, n int) {
	if e.bad {
		return
	}
	if e.short(Counts, n < 16) {
		e.out = append(e.out, fix|byte(n))
		return
	}
	width := e.width(Counts, uint64(n), 2, 4)
	e.put(wide+log(width)-1, uint64(n), width)
}

func (e *encoder) text() {
	s := e.span(e.length(0xa0, 0x1f, 0xd9))
	if e.bad {
		return
	}
	if e.short(Texts, len(s) < 32) {
		e.out = append(e.out, 0xa0|byte(len(s)))
	} else {
		width := e.width(Texts, uint64(len(s)), 1, 4)
		e.put(0xd9+log(width), uint64(len(s)), width)
	}
	e.out = append(e.out, s...)
}

func (e *encoder) bytes() {
	s := e.span(e.length(0, 0, 0xc4))
	if e.bad {
		return
	}
	width := e.width(Texts, uint64(len(s)), 1, 4)
	e.put(0xc4+log(width), uint64(len(s)), width)
	e.out = append(e.out, s...)
}

// integer reads a number in any form, and writes the number in a form that is drawn.
func (e *encoder) integer(c byte) {
	e.off++
	v, negative := uint64(c), false
	switch {
	case c >= 0xe0:
		v, negative = uint64(int64(int8(c))), true
	case c >= 0xd0:
		width := 1 << (c - 0xd0)
		unused := 64 - 8*width
		s := int64(e.number(width)<<unused) >> unused
		v, negative = uint64(s), s < 0
	case c >= 0xcc:
		v = e.number(1 << (c - 0xcc))
	}
	switch tiny := v < 0x80 || negative && int64(v) >= -32; {
	case e.bad:
	case e.short(Numbers, tiny):
		e.out = append(e.out, byte(v))
	case negative:
		// As many bytes as hold it with its sign.
		width := e.width(Numbers, (^v)<<1, 1, 8)
		e.put(0xd0+log(width), v, width)
	case e.forms&Numbers != 0 && v < 1<<63 && e.draw(2) == 0:
		width := e.width(Numbers, v<<1, 1, 8)
		e.put(0xd0+log(width), v, width)
	default:
		width := e.width(Numbers, v, 1, 8)
		e.put(0xcc+log(width), v, width)
	}
}

// skip reads a value of any type and writes nothing.
func (e *encoder) skip(depth int) {
	c, ok := e.lead(depth)
	if !ok {
		return
	}
	elements := 0
	switch {
	case isText(c):
		e.span(e.length(0xa0, 0x1f, 0xd9))
	case isBytes(c):
		e.span(e.length(0, 0, 0xc4))
	case isList(c):
		elements = e.count(0x90, 0xdc)
	case isMap(c):
		elements = 2 * e.count(0x80, 0xde)
	case c < 0xc0, c >= 0xe0: // fixint
		e.off++
	case c >= 0xc7 && c <= 0xc9: // ext: a byte for its type
		e.span(e.length(0, 0, 0xc7) + 1)
	case c >= 0xca && c <= 0xd3: // float, uint, int
		e.span(1 + [...]int{4, 8, 1, 2, 4, 8, 1, 2, 4, 8}[c-0xca])
	case c >= 0xd4 && c <= 0xd8: // fixext
		e.span(2 + 1<<(c-0xd4))
	case c == 0xc1: // never used
		e.bad = true
	default: // nil, bool
		e.off++
	}
	for ; elements > 0 && !e.bad; elements-- {
		e.skip(depth + 1)
	}
}
