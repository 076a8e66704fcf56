package protocol

import (
	"bytes"
	"math"
	"strconv"
	"unicode/utf8"
)

// convertNumber converts a number. A number that is written as an integer and fits 64 bits becomes an integer; any
// other number becomes a float, which no integer field accepts.
func (j *jsonConverter) convertNumber() {
	from := j.off
	if j.input[j.off] == '-' {
		j.off++
	}
	whole := j.off
	if n := j.skipDigits(); n > 1 && j.input[whole] == '0' {
		j.off = whole + 1 // What follows a leading zero is not part of the number.
	}
	integer := true
	if j.nextIs('.') {
		integer = false
		j.off++
		j.skipDigits()
	}
	if j.nextIs('e') || j.nextIs('E') {
		integer = false
		if j.off++; j.nextIs('+') || j.nextIs('-') {
			j.off++
		}
		j.skipDigits()
	}
	if j.err != nil {
		return
	}
	text := string(j.input[from:j.off])
	if integer {
		if v, err := strconv.ParseUint(text, 10, 64); err == nil {
			j.output = appendUint(j.output, v)
			return
		}
		if v, err := strconv.ParseInt(text, 10, 64); err == nil {
			j.output = appendInt(j.output, v)
			return
		}
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil && !math.IsInf(v, 0) { // A number that is too large is infinite.
		panic("BUG: a number of JSON that is none: " + text)
	}
	j.output = appendFloat(j.output, v)
}

// skipDigits reads digits, at least one, and returns how many there were.
func (j *jsonConverter) skipDigits() (n int) {
	for ; j.off < len(j.input) && j.input[j.off]-'0' <= 9; n++ {
		j.off++
	}
	if n == 0 {
		j.failHere("a digit")
	}
	return n
}

// nextIs reports whether c is the next byte; white space is not skipped.
func (j *jsonConverter) nextIs(c byte) bool { return j.off < len(j.input) && j.input[j.off] == c }

// convertText converts a string and returns the length of the string in bytes.
func (j *jsonConverter) convertText() int {
	j.off++
	from := j.off
	for j.off < len(j.input) && isPlainInJSON(j.input[j.off]) {
		j.off++
	}
	s := j.input[from:j.off]
	if !j.nextIs('"') {
		s = j.readEscaped(s)
	}
	if j.err != nil {
		return 0
	}
	j.off++
	j.output = appendStr(j.output, s)
	return len(s)
}

// isPlainInJSON reports whether a byte of a JSON string stands for itself.
func isPlainInJSON(c byte) bool { return c != '"' && c != '\\' && c >= ' ' }

// readEscaped reads the rest of a string, up to the closing quote, after the prefix before the first escape.
func (j *jsonConverter) readEscaped(prefix []byte) []byte {
	s := append(j.scratch[:0], prefix...)
	for j.err == nil && !j.nextIs('"') {
		switch {
		case j.nextIs('\\'):
			s = j.readEscape(s)
		case j.off < len(j.input) && isPlainInJSON(j.input[j.off]):
			s = append(s, j.input[j.off])
			j.off++
		default:
			j.failHere("a string up to its closing quote")
		}
	}
	j.scratch = s
	return s
}

// readEscape reads an escape, which begins with a backslash, and appends its character to s.
func (j *jsonConverter) readEscape(s []byte) []byte {
	const letters, means = `"\/bfnrt`, "\"\\/\b\f\n\r\t"
	j.off++
	if j.nextIs('u') {
		c := j.readCodeUnit()
		if c >= highSurrogates && c < lowSurrogates {
			c = j.readLowSurrogate(c)
		}
		return utf8.AppendRune(s, c) // Half of a surrogate pair is not a character and becomes U+FFFD.
	}
	i := -1
	if j.off < len(j.input) {
		i = bytes.IndexByte([]byte(letters), j.input[j.off])
	}
	if i < 0 {
		j.failHere("an escape")
		return s
	}
	j.off++
	return append(s, means[i])
}

// readCodeUnit reads the letter u and four hex digits.
func (j *jsonConverter) readCodeUnit() rune {
	digits := j.input[j.off+1 : min(j.off+5, len(j.input))]
	v, err := strconv.ParseUint(string(digits), 16, 16)
	if err != nil || len(digits) != 4 {
		j.failHere("u and four hex digits")
		return 0
	}
	j.off += 5
	return rune(v)
}

// Characters beyond 16 bits are escaped as two halves of ten bits, the high one first.
const (
	highSurrogates = 0xd800
	lowSurrogates  = 0xdc00
	surrogatesEnd  = 0xe000
)

// readLowSurrogate reads the low half of a surrogate pair and returns the character. If no low half follows, nothing is
// read and the result is the high half.
func (j *jsonConverter) readLowSurrogate(high rune) rune {
	at := j.off
	if j.nextIs('\\') {
		if j.off++; j.nextIs('u') {
			if low := j.readCodeUnit(); low >= lowSurrogates && low < surrogatesEnd {
				return (high-highSurrogates)<<10 + low - lowSurrogates + 0x10000
			}
		}
	}
	j.off = at
	return high
}
