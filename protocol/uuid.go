package protocol

import (
	"fmt"

	"github.com/google/uuid"
)

// A UUID names a registered buffer or an incarnation of a process. Peers write it as 36
// characters, in lower case.
type UUID = uuid.UUID

// NewUUID draws a random UUID (version 4) from r, which is generator state and cannot fail; a
// reader that does fail is a defect of the caller, and NewUUID panics.
func NewUUID(r interface{ Read([]byte) (int, error) }) UUID {
	u, err := uuid.NewRandomFromReader(r)
	if err != nil {
		panic(fmt.Sprintf("BUG: the generator of identifiers failed: %v", err))
	}
	return u
}

const (
	uuidTextLen = 36
	hexDigits   = "0123456789abcdef"
)

// uuidAt holds where each byte's two digits stand in the text.
var uuidAt = [16]int{0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34}

// appendUUID appends the text as a msgpack string.
func appendUUID(b []byte, u UUID) []byte {
	var s [uuidTextLen]byte
	s[8], s[13], s[18], s[23] = '-', '-', '-', '-'
	for i, at := range uuidAt {
		copy(s[at:at+2], hexPairs[u[i]][:])
	}
	b = append(b, 0xd9, uuidTextLen)
	return append(b, s[:]...)
}

// takeUUID takes a UUID written as every encoder writes it, or nothing: hex digits need no check of their encoding.
func (r *reader) takeUUID() (UUID, bool) {
	const header = 2
	if !r.ok() || uuidTextLen > r.lim.StringBytes || len(r.b)-r.off < header+uuidTextLen || r.b[r.off] != 0xd9 || r.b[r.off+1] != uuidTextLen {
		return UUID{}, false
	}
	u, ok := parseUUID(r.b[r.off+header : r.off+header+uuidTextLen])
	if ok {
		r.off += header + uuidTextLen
	}
	return u, ok
}

// parseUUID reads the 36-character form only; the library's other forms (urn:, braces, no dashes)
// are no peer's. Digits in upper case are read as well, as RFC 9562 asks. Version and variant are
// not looked at: the text is a name.
func parseUUID(s []byte) (u UUID, ok bool) {
	if len(s) != uuidTextLen || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return UUID{}, false
	}
	for i, at := range uuidAt {
		hi, lo := hexValue[s[at]], hexValue[s[at+1]]
		if hi|lo > 0xf {
			return UUID{}, false
		}
		u[i] = hi<<4 | lo
	}
	return u, true
}

// hexPairs holds the two digits of each byte.
var hexPairs = func() (t [256][2]byte) {
	for b := range t {
		t[b] = [2]byte{hexDigits[b>>4], hexDigits[b&0xf]}
	}
	return t
}()

// hexValue maps a digit to its value and everything else to 0xff.
var hexValue = func() (t [256]byte) {
	for c := range t {
		t[c] = 0xff
	}
	for v, c := range []byte(hexDigits) {
		t[c] = byte(v)
		if c >= 'a' {
			t[c-'a'+'A'] = byte(v)
		}
	}
	return t
}()
