package protocol

import (
	"encoding/binary"
	"math"
	"strconv"
	"unicode/utf8"
)

// A reader reads msgpack values from the front of a payload. It checks each length against the remaining bytes before
// it uses the length.
//
// The first failure is kept: every later call returns a zero value and reads nothing, so a decoder needs to look for a
// failure only once, at the end. Loops over counts from the payload call ok in order to stop early.
type reader struct {
	b       []byte
	off     int
	lim     *Limits
	message string // for errors
	field   string // for errors
	err     *DecodeError
}

// newReader returns a reader of a payload, and refuses an empty or too long payload.
func newReader(b []byte, lim *Limits) reader { return newReaderFor(b, lim, "", "a map") }

// newReaderFor returns a reader of a message that has no tag or is not a map; errors contain the name of the message,
// and want.
func newReaderFor(b []byte, lim *Limits, message, want string) reader {
	r := reader{b: b, lim: lim.orDefault(), message: message}
	switch {
	case len(b) == 0:
		r.fail(DecodeEmpty, 0, "0 bytes", want)
	case len(b) > r.lim.MessageBytes:
		r.fail(DecodeMessageTooLong, 0, strconv.Itoa(len(b))+" bytes", atMost(r.lim.MessageBytes, "MessageBytes"))
	}
	return r
}

func (r *reader) ok() bool { return r.err == nil }

// result returns the failure as an error, or nil: a nil *DecodeError in an error would not be nil.
func (r *reader) result() error {
	if r.err != nil {
		return r.err
	}
	return nil
}

func (r *reader) fail(code DecodeCode, at int, found, want string) {
	if r.err == nil {
		r.err = &DecodeError{Code: code, Message: r.message, Field: r.field, Offset: at, Found: found, Want: want}
	}
}

func (r *reader) failTruncated(at int) {
	r.fail(DecodeTruncated, at, strconv.Itoa(len(r.b)-at)+" bytes to the end", "more")
}

// failType refuses the value at byte at, whose first byte is present.
func (r *reader) failType(at int, want string) {
	if r.b[at] == 0xc1 {
		r.fail(DecodeReserved, at, "0xc1", want)
		return
	}
	r.fail(DecodeWrongType, at, typeName(r.b[at]), want)
}

// expectEnd refuses bytes behind the message.
func (r *reader) expectEnd() {
	if r.ok() && r.off != len(r.b) {
		r.field = ""
		r.fail(DecodeTrailing, r.off, strconv.Itoa(len(r.b)-r.off)+" bytes", "none")
	}
}

// peekByte returns the first byte of the next value without reading it.
func (r *reader) peekByte() (byte, bool) {
	if r.err != nil {
		return 0, false
	}
	if r.off >= len(r.b) {
		r.failTruncated(r.off)
		return 0, false
	}
	return r.b[r.off], true
}

// readNumber reads the lead byte and the big-endian number of width bytes that follows.
func (r *reader) readNumber(width int) (uint64, bool) {
	b := r.b[r.off+1:]
	if len(b) < width {
		r.failTruncated(r.off)
		return 0, false
	}
	r.off += 1 + width
	switch width {
	case 1:
		return uint64(b[0]), true
	case 2:
		return uint64(binary.BigEndian.Uint16(b)), true
	case 4:
		return uint64(binary.BigEndian.Uint32(b)), true
	default:
		return binary.BigEndian.Uint64(b), true
	}
}

// readBytes reads n bytes, as many as the header at byte at states. The slice is not nil unless that fails.
func (r *reader) readBytes(at int, n uint64) []byte {
	if n > uint64(len(r.b)-r.off) {
		r.failTruncated(at)
		return nil
	}
	from := r.off
	r.off += int(n)
	return r.b[from:r.off:r.off]
}

// readString reads a UTF-8 string of at most limit bytes; the slice is a view.
func (r *reader) readString(limit int, limitName string) []byte {
	at := r.off
	c, ok := r.peekByte()
	if !ok {
		return nil
	}
	n := uint64(c & 0x1f)
	switch {
	case c&0xe0 == 0xa0:
		r.off++
	case c >= 0xd9 && c <= 0xdb:
		if n, ok = r.readNumber(1 << (c - 0xd9)); !ok {
			return nil
		}
	default:
		r.failType(at, "str")
		return nil
	}
	s := r.readBytes(at, n)
	switch {
	case !r.ok():
		return nil
	case len(s) > limit:
		r.fail(DecodeStringTooLong, at, strconv.Itoa(len(s))+" bytes", atMost(limit, limitName))
		return nil
	case !isASCII(s) && !utf8.Valid(s):
		r.fail(DecodeInvalidUTF8, at, quoteBytes(s), "")
		return nil
	}
	return s
}

// isASCII reports whether s is ASCII, as nearly every string is; the test is faster than the check of UTF-8.
func isASCII(s []byte) bool {
	const high = 0x8080808080808080
	for len(s) >= 8 {
		if binary.NativeEndian.Uint64(s)&high != 0 {
			return false
		}
		s = s[8:]
	}
	all := byte(0)
	for _, c := range s {
		all |= c
	}
	return all < utf8.RuneSelf
}

// takeText reads the string s in its short form and reports true, or reads nothing.
func (r *reader) takeText(s string) bool {
	end := r.off + 1 + len(s)
	if len(s) > min(shortString, r.lim.StringBytes) || end > len(r.b) ||
		r.b[r.off] != 0xa0|byte(len(s)) || string(r.b[r.off+1:end]) != s {
		return false
	}
	r.off = end
	return true
}

// readText reads a string under the general limit.
func (r *reader) readText() []byte { return r.readString(r.lim.StringBytes, "StringBytes") }

// readBin reads a bin of at most limit bytes; the slice is a view.
func (r *reader) readBin(limit int, limitName string) []byte {
	at := r.off
	c, ok := r.peekByte()
	if !ok {
		return nil
	}
	if c < 0xc4 || c > 0xc6 {
		r.failType(at, "bin")
		return nil
	}
	n, ok := r.readNumber(1 << (c - 0xc4))
	if !ok {
		return nil
	}
	s := r.readBytes(at, n)
	if r.ok() && len(s) > limit {
		r.fail(DecodeBlobTooLong, at, strconv.Itoa(len(s))+" bytes", atMost(limit, limitName))
		return nil
	}
	return s
}

func (r *reader) readBool() bool {
	c, ok := r.peekByte()
	if !ok {
		return false
	}
	if c != 0xc2 && c != 0xc3 {
		r.failType(r.off, "bool")
		return false
	}
	r.off++
	return c == 0xc3
}

// readInteger reads any integer and returns the value, or the two's complement of a negative value.
func (r *reader) readInteger() (v uint64, negative bool) {
	c, ok := r.peekByte()
	switch {
	case !ok:
		return 0, false
	case c < 0x80:
		r.off++
		return uint64(c), false
	case c >= 0xe0:
		r.off++
		return uint64(int64(int8(c))), true
	case c >= 0xcc && c <= 0xcf:
		v, _ = r.readNumber(1 << (c - 0xcc))
		return v, false
	case c >= 0xd0 && c <= 0xd3:
		width := 1 << (c - 0xd0)
		v, _ = r.readNumber(width)
		unused := 64 - 8*width
		s := int64(v<<unused) >> unused
		return uint64(s), s < 0
	}
	r.failType(r.off, "int")
	return 0, false
}

// readUint reads an integer from 0 to limit, which is at least 127.
func (r *reader) readUint(limit uint64) uint64 {
	at := r.off
	if r.err == nil && at < len(r.b) && r.b[at] < 0x80 { // Most numbers are small.
		r.off++
		return uint64(r.b[at])
	}
	v, negative := r.readInteger()
	if negative || v > limit {
		r.fail(DecodeOutOfRange, at, integerText(v, negative), "0 to "+strconv.FormatUint(limit, 10))
		return 0
	}
	return v
}

func (r *reader) readUint32() uint32 { return uint32(r.readUint(math.MaxUint32)) }
func (r *reader) readUint64() uint64 { return r.readUint(math.MaxUint64) }

func (r *reader) readInt64() int64 {
	at := r.off
	v, negative := r.readInteger()
	if !negative && v > math.MaxInt64 {
		r.fail(DecodeOutOfRange, at, integerText(v, negative), "at most "+strconv.Itoa(math.MaxInt64))
		return 0
	}
	return int64(v)
}

func (r *reader) readUUID() UUID {
	at := r.off
	if u, ok := r.takeUUID(); ok {
		return u
	}
	s := r.readText()
	u, ok := parseUUID(s)
	if r.ok() && !ok {
		r.fail(DecodeBadUUID, at, quoteBytes(s), "8-4-4-4-12 hex digits")
	}
	return u
}

// readArrayHeader reads the header of a list under the general limit.
func (r *reader) readArrayHeader() int { return r.readArrayHeaderUpTo(r.lim.ArrayLen, "ArrayLen") }

// readArrayHeaderUpTo reads the header of an array of at most limit elements. It refuses more elements than bytes
// remain, because each has at least one byte.
func (r *reader) readArrayHeaderUpTo(limit int, limitName string) int {
	n, at := r.readCount(0x90, 0xdc, "array")
	if n > uint64(len(r.b)-r.off) {
		r.failTruncated(at)
		return 0
	}
	if r.ok() && n > uint64(max(limit, 0)) {
		r.fail(DecodeArrayTooLong, at, strconv.FormatUint(n, 10)+" elements", atMost(limit, limitName))
		return 0
	}
	return int(n)
}

// readFixedArray reads the header of an array of n elements.
func (r *reader) readFixedArray(n int) {
	at := r.off
	if got := r.readArrayHeaderUpTo(n, ""); r.ok() && got != n {
		r.fail(DecodeLengthMismatch, at, strconv.Itoa(got)+" elements", strconv.Itoa(n))
	}
}

// readMapHeader reads the header of a declared map. It refuses more entries than half the remaining bytes, because each
// entry has at least two bytes.
func (r *reader) readMapHeader() int { return r.readMapHeaderUpTo(r.lim.MapLen, "MapLen") }

// readMapHeaderUpTo reads the header of a map of at most limit entries.
func (r *reader) readMapHeaderUpTo(limit int, limitName string) int {
	n, at := r.readCount(0x80, 0xde, "map")
	if 2*n > uint64(len(r.b)-r.off) {
		r.failTruncated(at)
		return 0
	}
	if r.ok() && n > uint64(max(limit, 0)) {
		r.fail(DecodeMapTooLong, at, strconv.FormatUint(n, 10)+" fields", atMost(limit, limitName))
		return 0
	}
	return int(n)
}

// readCount reads the header of an array or a map. The short form has 16 lead bytes, from fix on; the wide forms have
// the lead bytes wide and wide+1, which counts of 2 and 4 bytes follow.
func (r *reader) readCount(fix, wide byte, want string) (n uint64, at int) {
	at = r.off
	c, ok := r.peekByte()
	switch {
	case !ok:
		return 0, at
	case c&0xf0 == fix:
		r.off++
		return uint64(c & 0x0f), at
	case c == wide:
		n, _ = r.readNumber(2)
		return n, at
	case c == wide+1:
		n, _ = r.readNumber(4)
		return n, at
	}
	r.failType(at, want)
	return 0, at
}

// atMost describes a limit and the field of Limits that sets it.
func atMost(limit int, name string) string {
	if name == "" { // a limit of the protocol
		return "at most " + strconv.Itoa(limit)
	}
	return "at most " + strconv.Itoa(limit) + " (Limits." + name + ")"
}

func integerText(v uint64, negative bool) string {
	if negative {
		return strconv.FormatInt(int64(v), 10)
	}
	return strconv.FormatUint(v, 10)
}
