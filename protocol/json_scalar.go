package protocol

import (
	"bytes"
	"math"
	"strconv"
	"unicode/utf8"
)

// convertNumber converts a number. A number that is written as an integer and fits 64 bits becomes an integer; any
// other number becomes a float, which no integer field accepts.
func (j *jsonReader) number() {
	from := j.off
	if j.given[j.off] == '-' {
		j.off++
	}
	whole := j.off
	if n := j.digits(); n > 1 && j.given[whole] == '0' {
		j.off = whole + 1 // What follows a leading zero is not part of the number.
	}
	integer := true
	if j.here('.') {
		integer = false
		j.off++
		j.digits()
	}
	if j.here('e') || j.here('E') {
		integer = false
		if j.off++; j.here('+') || j.here('-') {
			j.off++
		}
		j.digits()
	}
	if j.err != nil {
		return
	}
	text := string(j.given[from:j.off])
	if integer {
		if v, err := strconv.ParseUint(text, 10, 64); err == nil {
			j.made = appendUint(j.made, v)
			return
		}
		if v, err := strconv.ParseInt(text, 10, 64); err == nil {
			j.made = appendInt(j.made, v)
			return
		}
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil && !math.IsInf(v, 0) { // A number that is too large is infinite.
		panic("BUG: a number of JSON that is none: " + text)
	}
	j.made = appendFloat(j.made, v)
}

// digits reads digits, at least one, and returns how many there were.
func (j *jsonReader) digits() (n int) {
	for ; j.off < len(j.given) && j.given[j.off]-'0' <= 9; n++ {
		j.off++
	}
	if n == 0 {
		j.failHere("a digit")
	}
	return n
}

// here reports whether c is the next byte; white space is not skipped.
func (j *jsonReader) here(c byte) bool { return j.off < len(j.given) && j.given[j.off] == c }

// convertText converts a string and returns the length of the string in bytes.
func (j *jsonReader) text() int {
	j.off++
	from := j.off
	for j.off < len(j.given) && plainInJSON(j.given[j.off]) {
		j.off++
	}
	s := j.given[from:j.off]
	if !j.here('"') {
		s = j.escaped(s)
	}
	if j.err != nil {
		return 0
	}
	j.off++
	j.made = appendStr(j.made, s)
	return len(s)
}

// plainInJSON reports whether a byte of a JSON string stands for itself.
func plainInJSON(c byte) bool { return c != '"' && c != '\\' && c >= ' ' }

// escaped reads the rest of a string, up to the closing quote, after the prefix before the first escape.
func (j *jsonReader) escaped(begun []byte) []byte {
	s := append(j.scratch[:0], begun...)
	for j.err == nil && !j.here('"') {
		switch {
		case j.here('\\'):
			s = j.escape(s)
		case j.off < len(j.given) && plainInJSON(j.given[j.off]):
			s = append(s, j.given[j.off])
			j.off++
		default:
			j.failHere("a string up to its closing quote")
		}
	}
	j.scratch = s
	return s
}

// readEscape reads an escape, which begins with a backslash, and appends its character to s.
func (j *jsonReader) escape(s []byte) []byte {
	const letters, means = `"\/bfnrt`, "\"\\/\b\f\n\r\t"
	j.off++
	if j.here('u') {
		c := j.unit()
		if c >= highSurrogates && c < lowSurrogates {
			c = j.pair(c)
		}
		return utf8.AppendRune(s, c) // Half of a surrogate pair is not a character and becomes U+FFFD.
	}
	i := -1
	if j.off < len(j.given) {
		i = bytes.IndexByte([]byte(letters), j.given[j.off])
	}
	if i < 0 {
		j.failHere("an escape")
		return s
	}
	j.off++
	return append(s, means[i])
}

// unit reads the letter u and four hex digits.
func (j *jsonReader) unit() rune {
	digits := j.given[j.off+1 : min(j.off+5, len(j.given))]
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

// pair reads the low half of a surrogate pair and returns the character. If no low half follows, nothing is read and
// the result is the high half.
func (j *jsonReader) pair(high rune) rune {
	at := j.off
	if j.here('\\') {
		if j.off++; j.here('u') {
			if low := j.unit(); low >= lowSurrogates && low < surrogatesEnd {
				return (high-highSurrogates)<<10 + low - lowSurrogates + 0x10000
			}
		}
	}
	j.off = at
	return high
}
