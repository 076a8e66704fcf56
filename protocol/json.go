package protocol

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strconv"
	"unicode/utf8"
)

// Controllers accept messages as JSON as well, because programs other than LMCache write JSON. The JSON is converted to
// the msgpack with the same meaning and then decoded as msgpack, under the same limits and with errors about the same
// fields. If a field is given twice, the last value counts, as for LMCache's controller, which also builds an object
// first and reads the object afterwards.
//
// The converter is written by hand, like the reader of msgpack, because state machines decode messages and must not
// depend on a package that uses reflection.

// isJSON reports whether a payload is meant as JSON: no msgpack map begins with a brace.
func isJSON(b []byte) bool { return len(b) > 0 && b[0] == '{' }

// A placeMap maps bytes of the msgpack to bytes of the JSON from which the msgpack was made, in ascending order. The
// source of a payload that is msgpack is nil, because there the offsets need no mapping.
type placeMap []place

// A place is the beginning of a value: the offset in the msgpack, and the offset in the JSON.
type place struct{ inOutput, inInput int }

// newEitherReader returns a reader of a payload that may be JSON.
func newEitherReader(b []byte, lim *Limits) (reader, placeMap) {
	r := newReader(b, lim)
	if !r.ok() || !isJSON(b) {
		return r, nil
	}
	j := jsonConverter{input: b, lim: r.lim, output: make([]byte, 0, len(b))}
	if at := validLen(b); at < len(b) {
		j.fail(DecodeInvalidUTF8, at, quoteBytes(b[at:min(at+utf8.UTFMax, len(b))]), "")
	}
	j.convertValue(1)
	j.expectEnd()
	if j.err != nil {
		return reader{lim: r.lim, err: j.err}, nil
	}
	return reader{b: j.output, lim: r.lim}, j.places
}

// validLen returns the length of the longest prefix of b that is UTF-8.
func validLen(b []byte) (at int) {
	for at < len(b) {
		c, n := utf8.DecodeRune(b[at:])
		if c == utf8.RuneError && n == 1 {
			break
		}
		at += n
	}
	return at
}

// result returns the reader's error, with the offset converted to an offset in the JSON.
func (s placeMap) result(r *reader) error {
	if !r.ok() && len(s) > 0 {
		i, found := slices.BinarySearchFunc(s, r.err.Offset, func(p place, at int) int { return p.inOutput - at })
		if !found {
			i-- // The offset is within a value, or behind the last value. The first place has offset 0.
		}
		r.err.Offset = s[i].inInput
	}
	return r.result()
}

// PeekControllerTag is like PeekTag, but accepts JSON as well. It is for the sockets of a controller, and for a
// worker's sockets towards the controller. Only messages of FamilyController may be JSON.
func PeekControllerTag(b []byte, lim *Limits) (Tag, error) {
	if !isJSON(b) {
		return PeekTag(b, lim)
	}
	r, from := newEitherReader(b, lim)
	tag, at := r.findTag()
	if r.ok() && tag.Family() != FamilyController {
		r.field = tagField
		r.fail(DecodeWrongTag, at, tag.String(), "a message of a worker or its controller")
	}
	if err := from.result(&r); err != nil {
		return TagNone, err
	}
	return tag, nil
}

// A jsonConverter converts JSON to msgpack. It keeps the first failure and then does nothing more.
type jsonConverter struct {
	input   []byte
	off     int
	lim     *Limits
	output  []byte
	places  []place
	scratch []byte // the text of a string whose escapes are replaced
	err     *DecodeError
}

func (j *jsonConverter) fail(code DecodeCode, at int, found, want string) {
	if j.err == nil {
		j.err = &DecodeError{Code: code, Offset: at, Found: found, Want: want}
	}
}

// failHere refuses the next bytes, or the end of the input.
func (j *jsonConverter) failHere(want string) {
	if j.off >= len(j.input) {
		j.fail(DecodeTruncated, len(j.input), "the end", want)
		return
	}
	j.fail(DecodeBadJSON, j.off, quoteBytes(j.input[j.off:min(j.off+8, len(j.input))]), want)
}

// peekByte skips white space and returns the next byte without reading the byte. At the end of the input and after a
// failure the result is 0, with which no value begins.
func (j *jsonConverter) peekByte() byte {
	j.off = len(j.input) - len(bytes.TrimLeft(j.input[j.off:], " \t\r\n"))
	if j.err != nil || j.off >= len(j.input) {
		return 0
	}
	return j.input[j.off]
}

// takeByte skips white space, reads the byte c and reports true. If the next byte is another one, only the white space
// is read.
func (j *jsonConverter) takeByte(c byte) bool {
	if j.peekByte() != c {
		return false
	}
	j.off++
	return true
}

// expectEnd refuses bytes behind the value.
func (j *jsonConverter) expectEnd() {
	if j.peekByte(); j.off < len(j.input) {
		j.fail(DecodeTrailing, j.off, strconv.Itoa(len(j.input)-j.off)+" bytes", "none")
	}
}

// convertValue converts the next value, which is nested at depth.
func (j *jsonConverter) convertValue(depth int) {
	c := j.peekByte()
	j.places = append(j.places, place{len(j.output), j.off})
	switch {
	case c == '{' || c == '[':
		if limit := min(j.lim.Depth, depthMax); depth > limit {
			j.fail(DecodeTooDeep, j.off, strconv.Itoa(depth)+" levels", atMost(limit, "Depth"))
		} else if j.off++; c == '{' {
			j.convertObject(depth)
		} else {
			j.convertArray(depth)
		}
	case c == '"':
		j.convertText()
	case c == '-' || c >= '0' && c <= '9':
		j.convertNumber()
	case j.takeLiteral("null"):
		j.output = append(j.output, 0xc0)
	case j.takeLiteral("true"), j.takeLiteral("false"):
		j.output = appendBool(j.output, c == 't')
	default:
		j.failHere("a value")
	}
}

// takeLiteral reads the given word and reports true, or reads nothing.
func (j *jsonConverter) takeLiteral(word string) bool {
	if !bytes.HasPrefix(j.input[j.off:], []byte(word)) {
		return false
	}
	j.off += len(word)
	return true
}

// reserveHeader appends the header of an array or map with room for the number of elements, which is known only after
// the last element, and returns the offset of the header for setHeader.
func (j *jsonConverter) reserveHeader(lead byte) (at int) {
	at = len(j.output)
	j.output = append(j.output, lead, 0, 0, 0, 0)
	return at
}

func (j *jsonConverter) setHeader(at, n int) { binary.BigEndian.PutUint32(j.output[at+1:], uint32(n)) }

// nextElement reports whether another element follows, and reads the comma before the element, or the closing bracket.
func (j *jsonConverter) nextElement(first bool, closing byte) bool {
	switch {
	case j.takeByte(closing):
		return false
	case !first && !j.takeByte(','):
		j.failHere("a comma or " + string(closing))
	}
	return j.err == nil
}

func (j *jsonConverter) convertArray(depth int) {
	head, n := j.reserveHeader(0xdd), 0
	for ; j.nextElement(n == 0, ']'); n++ {
		j.convertValue(depth + 1)
	}
	j.setHeader(head, n)
}

// A member is a field of an object: the offset of the field in the msgpack, the range of its name there, and the index
// of its first place.
type member struct {
	start, name, nameEnd, place int
	dropped                     bool // a later member has the same name
}

func (j *jsonConverter) convertObject(depth int) {
	head := j.reserveHeader(0xdf)
	var members []member
	count := 0
	for j.nextElement(len(members) == 0, '}') {
		if len(members) >= j.lim.MapLen {
			j.fail(DecodeMapTooLong, j.off, "more fields", atMost(j.lim.MapLen, "MapLen"))
			break
		}
		m := member{start: len(j.output), place: len(j.places)}
		if j.peekByte() != '"' {
			j.failHere("a name in quotes")
			break
		}
		j.places = append(j.places, place{m.start, j.off})
		n := j.convertText()
		m.nameEnd = len(j.output)
		m.name = m.nameEnd - n
		if !j.takeByte(':') {
			j.failHere("a colon")
			break
		}
		j.convertValue(depth + 1)
		if i := slices.IndexFunc(members, func(o member) bool { return !o.dropped && j.sameName(o, m) }); i >= 0 {
			members[i].dropped = true
			count--
		}
		members = append(members, m)
		count++
	}
	if count < len(members) {
		j.removeDropped(members)
	}
	j.setHeader(head, count)
}

func (j *jsonConverter) sameName(a, b member) bool {
	return bytes.Equal(j.output[a.name:a.nameEnd], j.output[b.name:b.nameEnd])
}

// removeDropped removes the members that are marked as dropped from the end of the msgpack.
func (j *jsonConverter) removeDropped(members []member) {
	to, top := members[0].start, members[0].place
	members = append(members, member{start: len(j.output), place: len(j.places)})
	for i, m := range members[:len(members)-1] {
		end := members[i+1]
		if m.dropped {
			continue
		}
		for _, p := range j.places[m.place:end.place] {
			j.places[top] = place{p.inOutput - m.start + to, p.inInput}
			top++
		}
		to += copy(j.output[to:], j.output[m.start:end.start])
	}
	j.output, j.places = j.output[:to], j.places[:top]
}
