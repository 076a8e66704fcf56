package foreign

import "encoding/binary"

func isInteger(c byte) bool { return c < 0x80 || c >= 0xe0 || c >= 0xcc && c <= 0xd3 }
func isText(c byte) bool    { return c&0xe0 == 0xa0 || c >= 0xd9 && c <= 0xdb }
func isBytes(c byte) bool   { return c >= 0xc4 && c <= 0xc6 }
func isList(c byte) bool    { return c&0xf0 == 0x90 || c == 0xdc || c == 0xdd }
func isMap(c byte) bool     { return c&0xf0 == 0x80 || c == 0xde || c == 0xdf }

// peekByte returns the first byte of the next value without reading it.
func (e *encoder) peekByte(depth int) (byte, bool) {
	if e.failed = e.failed || e.off >= len(e.in) || depth > depthMax; e.failed {
		return 0, false
	}
	return e.in[e.off], true
}

// readBytes reads n bytes.
func (e *encoder) readBytes(n int) []byte {
	if e.failed = e.failed || n < 0 || n > len(e.in)-e.off; e.failed {
		return nil
	}
	e.off += n
	return e.in[e.off-n : e.off]
}

// readNumber reads a big-endian number of width bytes.
func (e *encoder) readNumber(width int) (v uint64) {
	for _, b := range e.readBytes(width) {
		v = v<<8 | uint64(b)
	}
	return v
}

// readLength reads the lead byte of a value and returns the length of the value. The length is in the bits mask of a
// lead byte from fix on, or in the 1, 2 or 4 bytes behind a lead byte from wide on.
func (e *encoder) readLength(fix, mask, wide byte) int {
	c := e.in[e.off]
	e.off++
	if mask != 0 && c&^mask == fix {
		return int(c & mask)
	}
	return int(e.readNumber(1 << (c - wide)))
}

// readCount reads the lead byte of a list or map and returns the number of elements or fields.
func (e *encoder) readCount(fix, wide byte) int {
	c := e.in[e.off]
	e.off++
	if c&0xf0 == fix {
		return int(c & 0x0f)
	}
	return int(e.readNumber(2 << (c - wide)))
}

// drawWidth draws a width among the widths 1 << i that hold v, from narrowest to widest. Without the choice form, the
// result is the smallest such width.
func (e *encoder) drawWidth(form Forms, v uint64, narrowest, widest int) int {
	for narrowest < widest && v>>(8*narrowest) != 0 {
		narrowest *= 2
	}
	if e.forms&form != 0 {
		for wider := e.draw(4); wider > 0 && narrowest < widest; wider-- {
			narrowest *= 2
		}
	}
	return narrowest
}

// writeNumber writes a lead byte and a number of width bytes.
func (e *encoder) writeNumber(lead byte, v uint64, width int) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], v)
	e.out = append(append(e.out, lead), b[8-width:]...)
}

// log2 returns the binary logarithm of a width of 1, 2, 4 or 8.
func log2(width int) byte { return [9]byte{2: 1, 4: 2, 8: 3}[width] }

// useShort reports whether a value is written in the short form, which has no separate length, if the value fits that
// form.
func (e *encoder) useShort(form Forms, fits bool) bool {
	return fits && (e.forms&form == 0 || e.draw(4) == 0)
}

// writeHeader writes the header of a list or map of n elements.
func (e *encoder) writeHeader(fix, wide byte, n int) {
	if e.failed {
		return
	}
	if e.useShort(Counts, n < 16) {
		e.out = append(e.out, fix|byte(n))
		return
	}
	width := e.drawWidth(Counts, uint64(n), 2, 4)
	e.writeNumber(wide+log2(width)-1, uint64(n), width)
}

func (e *encoder) writeText() {
	s := e.readBytes(e.readLength(0xa0, 0x1f, 0xd9))
	if e.failed {
		return
	}
	if e.useShort(Texts, len(s) < 32) {
		e.out = append(e.out, 0xa0|byte(len(s)))
	} else {
		width := e.drawWidth(Texts, uint64(len(s)), 1, 4)
		e.writeNumber(0xd9+log2(width), uint64(len(s)), width)
	}
	e.out = append(e.out, s...)
}

func (e *encoder) writeBytes() {
	s := e.readBytes(e.readLength(0, 0, 0xc4))
	if e.failed {
		return
	}
	width := e.drawWidth(Texts, uint64(len(s)), 1, 4)
	e.writeNumber(0xc4+log2(width), uint64(len(s)), width)
	e.out = append(e.out, s...)
}

// writeInteger reads a number in any form, and writes the number in a form that is drawn.
func (e *encoder) writeInteger(c byte) {
	e.off++
	v, negative := uint64(c), false
	switch {
	case c >= 0xe0:
		v, negative = uint64(int64(int8(c))), true
	case c >= 0xd0:
		width := 1 << (c - 0xd0)
		unused := 64 - 8*width
		s := int64(e.readNumber(width)<<unused) >> unused
		v, negative = uint64(s), s < 0
	case c >= 0xcc:
		v = e.readNumber(1 << (c - 0xcc))
	}
	switch tiny := v < 0x80 || negative && int64(v) >= -32; {
	case e.failed:
	case e.useShort(Numbers, tiny):
		e.out = append(e.out, byte(v))
	case negative:
		// As many bytes as hold it with its sign.
		width := e.drawWidth(Numbers, (^v)<<1, 1, 8)
		e.writeNumber(0xd0+log2(width), v, width)
	case e.forms&Numbers != 0 && v < 1<<63 && e.draw(2) == 0:
		width := e.drawWidth(Numbers, v<<1, 1, 8)
		e.writeNumber(0xd0+log2(width), v, width)
	default:
		width := e.drawWidth(Numbers, v, 1, 8)
		e.writeNumber(0xcc+log2(width), v, width)
	}
}

// skipValue reads a value of any type and writes nothing.
func (e *encoder) skipValue(depth int) {
	c, ok := e.peekByte(depth)
	if !ok {
		return
	}
	elements := 0
	switch {
	case isText(c):
		e.readBytes(e.readLength(0xa0, 0x1f, 0xd9))
	case isBytes(c):
		e.readBytes(e.readLength(0, 0, 0xc4))
	case isList(c):
		elements = e.readCount(0x90, 0xdc)
	case isMap(c):
		elements = 2 * e.readCount(0x80, 0xde)
	case c < 0xc0, c >= 0xe0: // fixint
		e.off++
	case c >= 0xc7 && c <= 0xc9: // ext: a byte for its type
		e.readBytes(e.readLength(0, 0, 0xc7) + 1)
	case c >= 0xca && c <= 0xd3: // float, uint, int
		e.readBytes(1 + [...]int{4, 8, 1, 2, 4, 8, 1, 2, 4, 8}[c-0xca])
	case c >= 0xd4 && c <= 0xd8: // fixext
		e.readBytes(2 + 1<<(c-0xd4))
	case c == 0xc1: // never used
		e.failed = true
	default: // nil, bool
		e.off++
	}
	for ; elements > 0 && !e.failed; elements-- {
		e.skipValue(depth + 1)
	}
}
