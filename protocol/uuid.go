package protocol

import (
	"encoding/binary"
	"fmt"
)

// A UUID names a registered buffer or an incarnation of a process. Peers write a UUID as 36 characters, in lower case.
type UUID [16]byte

// NewUUID draws a random UUID (RFC 9562, version 4) from r. r is the state of a generator and cannot fail; if r does
// return an error, the caller has a defect, and NewUUID panics.
func NewUUID(r interface{ Read([]byte) (int, error) }) (u UUID) {
	for n := 0; n < len(u); {
		more, err := r.Read(u[n:])
		if err != nil {
			panic(fmt.Sprintf("BUG: the generator of identifiers failed: %v", err))
		}
		n += more
	}
	u[6] = u[6]&0x0f | 4<<4
	u[8] = u[8]&0x3f | 0x80
	return u
}

// String returns the text that peers write.
func (u UUID) String() string { return string(u.appendText(make([]byte, 0, uuidTextLen))) }

// MarshalText returns the text that peers write, for JSON and logs.
func (u UUID) MarshalText() ([]byte, error) { return u.appendText(make([]byte, 0, uuidTextLen)), nil }

const uuidTextLen = 36

// appendUUID appends the text as a msgpack string.
func appendUUID(b []byte, u UUID) []byte { return u.appendText(append(b, 0xd9, uuidTextLen)) }

// appendText appends the 36 characters.
func (u UUID) appendText(b []byte) []byte {
	from := len(b)
	b = append(b, "00000000-0000-0000-0000-000000000000"...)
	s := b[from:][:uuidTextLen]
	x := hexDigits(binary.BigEndian.Uint32(u[0:]))
	binary.BigEndian.PutUint64(s[0:], x)
	x = hexDigits(binary.BigEndian.Uint32(u[4:]))
	binary.BigEndian.PutUint32(s[9:], uint32(x>>32))
	binary.BigEndian.PutUint32(s[14:], uint32(x))
	x = hexDigits(binary.BigEndian.Uint32(u[8:]))
	binary.BigEndian.PutUint32(s[19:], uint32(x>>32))
	binary.BigEndian.PutUint32(s[24:], uint32(x))
	x = hexDigits(binary.BigEndian.Uint32(u[12:]))
	binary.BigEndian.PutUint64(s[28:], x)
	return b
}

// takeUUID reads a UUID in the form that every encoder writes, or reports false and reads nothing. Hex digits need no
// check of their encoding.
func (r *reader) takeUUID() (UUID, bool) {
	const header = 2
	if !r.ok() || uuidTextLen > r.lim.StringBytes || len(r.b)-r.off < header+uuidTextLen || r.b[r.off] != 0xd9 ||
		r.b[r.off+1] != uuidTextLen {
		return UUID{}, false
	}
	u, ok := parseUUID(r.b[r.off+header : r.off+header+uuidTextLen])
	if ok {
		r.off += header + uuidTextLen
	}
	return u, ok
}

// parseUUID parses the 36-character form only, because no peer writes another form of Python's library (urn:, braces,
// no dashes). Digits in upper case are accepted as well, as RFC 9562 requires. Version and variant are not checked: the
// text is only a name.
func parseUUID(s []byte) (u UUID, ok bool) {
	if len(s) != uuidTextLen || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return UUID{}, false
	}
	first, ok0 := parseHexDigits(binary.BigEndian.Uint64(s[0:]))
	second, ok1 := parseHexDigits(uint64(binary.BigEndian.Uint32(s[9:]))<<32 | uint64(binary.BigEndian.Uint32(s[14:])))
	third, ok2 := parseHexDigits(uint64(binary.BigEndian.Uint32(s[19:]))<<32 | uint64(binary.BigEndian.Uint32(s[24:])))
	last, ok3 := parseHexDigits(binary.BigEndian.Uint64(s[28:]))
	if !ok0 || !ok1 || !ok2 || !ok3 {
		return UUID{}, false
	}
	binary.BigEndian.PutUint32(u[0:], first)
	binary.BigEndian.PutUint32(u[4:], second)
	binary.BigEndian.PutUint32(u[8:], third)
	binary.BigEndian.PutUint32(u[12:], last)
	return u, true
}

// Eight digits are processed at a time, in the bytes of one integer, the first digit in the highest byte. everyByte has
// a 1 in every byte.
const everyByte = 0x0101010101010101

// hexDigits returns the digits of a number.
func hexDigits(v uint32) uint64 {
	x := uint64(v)
	x = (x<<16 | x) & 0x0000ffff0000ffff
	x = (x<<8 | x) & 0x00ff00ff00ff00ff
	x = (x<<4 | x) & (0x0f * everyByte)
	letters := (x + 6*everyByte) >> 4 & everyByte
	return x + '0'*everyByte + letters*('a'-'0'-10)
}

// parseHexDigits parses the digits of a number, in either case.
func parseHexDigits(x uint64) (v uint32, ok bool) {
	const high = 0x80 * everyByte
	text := x&high == 0
	set := x | high // A byte that is at least 0x80 needs no borrow.
	digits := (set - '0'*everyByte) &^ (set - ('9'+1)*everyByte) & high
	lower := set | 0x20*everyByte
	letters := (lower - 'a'*everyByte) &^ (lower - ('f'+1)*everyByte) & high
	x = x&(0x0f*everyByte) + letters>>7*9
	x = (x>>4 | x) & 0x00ff00ff00ff00ff
	x = (x>>8 | x) & 0x0000ffff0000ffff
	return uint32(x>>16 | x), text && digits|letters == high
}

// hexValue maps each digit to its value and any other byte to 0xff.
var hexValue = func() (t [256]byte) {
	for c := range t {
		t[c] = 0xff
	}
	for v, c := range []byte("0123456789abcdef") {
		t[c] = byte(v)
		if c >= 'a' {
			t[c-'a'+'A'] = byte(v)
		}
	}
	return t
}()
