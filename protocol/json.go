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

// A source maps bytes of the msgpack to bytes of the JSON from which the msgpack was made, in ascending order. The
// source of a payload that is msgpack is nil, because there the offsets need no mapping.
type source []place

// A place is the beginning of a value: the offset in the msgpack, and the offset in the JSON.
type place struct{ made, given int }

// openEither returns a reader of a payload that may be JSON.
func openEither(b []byte, lim *Limits) (reader, source) {
	r := open(b, lim)
	if !r.ok() || !isJSON(b) {
		return r, nil
	}
	j := jsonReader{given: b, lim: r.lim, made: make([]byte, 0, len(b))}
	if at := validUpTo(b); at < len(b) {
		j.fail(DecodeInvalidUTF8, at, quote(b[at:min(at+utf8.UTFMax, len(b))]), "")
	}
	j.value(1)
	j.end()
	if j.err != nil {
		return reader{lim: r.lim, err: j.err}, nil
	}
	return reader{b: j.made, lim: r.lim}, j.places
}

// validUpTo returns the length of the longest prefix of b that is UTF-8.
func validUpTo(b []byte) (at int) {
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
func (s source) result(r *reader) error {
	if !r.ok() && len(s) > 0 {
		i, found := slices.BinarySearchFunc(s, r.err.Offset, func(p place, at int) int { return p.made - at })
		if !found {
			i-- // The offset is within a value, or behind the last value. The first place has offset 0.
		}
		r.err.Offset = s[i].given
	}
	return r.result()
}

// PeekControllerTag is like PeekTag, but accepts JSON as well. It is for the sockets of a controller, and for a
// worker's sockets towards the controller. Only messages of FamilyController may be JSON.
func PeekControllerTag(b []byte, lim *Limits) (Tag, error) {
	if !isJSON(b) {
		return PeekTag(b, lim)
	}
	r, from := openEither(b, lim)
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

// A jsonReader converts JSON to msgpack. It keeps the first failure and then does nothing more.
type jsonReader struct {
	given   []byte
	off     int
	lim     *Limits
	made    []byte
	places  []place
	scratch []byte // the text of a string whose escapes are replaced
	err     *DecodeError
}

func (j *jsonReader) fail(code DecodeCode, at int, found, want string) {
	if j.err == nil {
		j.err = &DecodeError{Code: code, Offset: at, Found: found, Want: want}
	}
}

// failHere refuses the next bytes, or the end of the input.
func (j *jsonReader) failHere(want string) {
	if j.off >= len(j.given) {
		j.fail(DecodeTruncated, len(j.given), "the end", want)
		return
	}
	j.fail(DecodeBadJSON, j.off, quote(j.given[j.off:min(j.off+8, len(j.given))]), want)
}

// lead skips white space and returns the next byte without reading the byte. At the end of the input and after a
// failure the result is 0, with which no value begins.
func (j *jsonReader) lead() byte {
	j.off = len(j.given) - len(bytes.TrimLeft(j.given[j.off:], " \t\r\n"))
	if j.err != nil || j.off >= len(j.given) {
		return 0
	}
	return j.given[j.off]
}

// takeByte skips white space, reads the byte c and reports true. If the next byte is another one, only the white space
// is read.
func (j *jsonReader) take(c byte) bool {
	if j.lead() != c {
		return false
	}
	j.off++
	return true
}

// end refuses bytes behind the value.
func (j *jsonReader) end() {
	if j.lead(); j.off < len(j.given) {
		j.fail(DecodeTrailing, j.off, strconv.Itoa(len(j.given)-j.off)+" bytes", "none")
	}
}

// convertValue converts the next value, which is nested at depth.
func (j *jsonReader) value(depth int) {
	c := j.lead()
	j.places = append(j.places, place{len(j.made), j.off})
	switch {
	case c == '{' || c == '[':
		if limit := min(j.lim.Depth, depthMax); depth > limit {
			j.fail(DecodeTooDeep, j.off, strconv.Itoa(depth)+" levels", atMost(limit, "Depth"))
		} else if j.off++; c == '{' {
			j.object(depth)
		} else {
			j.array(depth)
		}
	case c == '"':
		j.text()
	case c == '-' || c >= '0' && c <= '9':
		j.number()
	case j.literal("null"):
		j.made = append(j.made, 0xc0)
	case j.literal("true"), j.literal("false"):
		j.made = appendBool(j.made, c == 't')
	default:
		j.failHere("a value")
	}
}

// literal reads the given word and reports true, or reads nothing.
func (j *jsonReader) literal(word string) bool {
	if !bytes.HasPrefix(j.given[j.off:], []byte(word)) {
		return false
	}
	j.off += len(word)
	return true
}

// header appends the header of an array or map with room for the number of elements, which is known only after the last
// element, and returns the offset of the header for setHeader.
func (j *jsonReader) header(lead byte) (at int) {
	at = len(j.made)
	j.made = append(j.made, lead, 0, 0, 0, 0)
	return at
}

func (j *jsonReader) setHeader(at, n int) { binary.BigEndian.PutUint32(j.made[at+1:], uint32(n)) }

// more reports whether another element follows, and reads the comma before the element, or the closing bracket.
func (j *jsonReader) more(first bool, closing byte) bool {
	switch {
	case j.take(closing):
		return false
	case !first && !j.take(','):
		j.failHere("a comma or " + string(closing))
	}
	return j.err == nil
}

func (j *jsonReader) array(depth int) {
	head, n := j.header(0xdd), 0
	for ; j.more(n == 0, ']'); n++ {
		j.value(depth + 1)
	}
	j.setHeader(head, n)
}

// A member is a field of an object: the offset of the field in the msgpack, the range of its name there, and the index
// of its first place.
type member struct {
	made, name, nameEnd, place int
	dropped                    bool // a later member has the same name
}

func (j *jsonReader) object(depth int) {
	head := j.header(0xdf)
	var members []member
	kept := 0
	for j.more(len(members) == 0, '}') {
		if len(members) >= j.lim.MapLen {
			j.fail(DecodeMapTooLong, j.off, "more fields", atMost(j.lim.MapLen, "MapLen"))
			break
		}
		m := member{made: len(j.made), place: len(j.places)}
		if j.lead() != '"' {
			j.failHere("a name in quotes")
			break
		}
		j.places = append(j.places, place{m.made, j.off})
		n := j.text()
		m.nameEnd = len(j.made)
		m.name = m.nameEnd - n
		if !j.take(':') {
			j.failHere("a colon")
			break
		}
		j.value(depth + 1)
		if i := slices.IndexFunc(members, func(o member) bool { return !o.dropped && j.sameName(o, m) }); i >= 0 {
			members[i].dropped = true
			kept--
		}
		members = append(members, m)
		kept++
	}
	if kept < len(members) {
		j.drop(members)
	}
	j.setHeader(head, kept)
}

func (j *jsonReader) sameName(a, b member) bool {
	return bytes.Equal(j.made[a.name:a.nameEnd], j.made[b.name:b.nameEnd])
}

// drop removes the members that are marked as dropped from the end of the msgpack.
func (j *jsonReader) drop(members []member) {
	to, top := members[0].made, members[0].place
	members = append(members, member{made: len(j.made), place: len(j.places)})
	for i, m := range members[:len(members)-1] {
		end := members[i+1]
		if m.dropped {
			continue
		}
		for _, p := range j.places[m.place:end.place] {
			j.places[top] = place{p.made - m.made + to, p.given}
			top++
		}
		to += copy(j.made[to:], j.made[m.made:end.made])
	}
	j.made, j.places = j.made[:to], j.places[:top]
}
