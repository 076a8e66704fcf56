package protocol

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strconv"
	"unicode/utf8"
)

// Controllers take their messages also as JSON, which programs other than LMCache write. It is made into the msgpack
// that says the same and then decoded as that, under the same limits and with errors about the same fields. Of a field
// that is given twice the last counts, as for LMCache's controller: there, too, an object is made first and then read.
//
// The reader is written by hand, as those of msgpack are: machines decode, and reach no package that reflects.

// isJSON says whether a payload is meant as JSON: no msgpack map begins so.
func isJSON(b []byte) bool { return len(b) > 0 && b[0] == '{' }

// A source is where the values of a reader's bytes stand in the JSON that they were made of, in their order; it is nil
// for msgpack, where they stand themselves.
type source []place

// A place is a value: where it begins in what was made, and in what was given.
type place struct{ made, given int }

// openEither is open for a payload that may be JSON.
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

// validUpTo is how much of b is UTF-8.
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

// result is the reader's, with a fault where it is in what was given.
func (s source) result(r *reader) error {
	if !r.ok() && len(s) > 0 {
		i, found := slices.BinarySearchFunc(s, r.err.Offset, func(p place, at int) int { return p.made - at })
		if !found {
			i-- // It lies within a value, or behind the last. The first stands at 0.
		}
		r.err.Offset = s[i].given
	}
	return r.result()
}

// PeekControllerTag is PeekTag for a controller's sockets, and a worker's towards it, where a message may be JSON. Only
// messages of FamilyController may.
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

// A jsonReader makes msgpack of JSON. Its first failure sticks.
type jsonReader struct {
	given   []byte
	off     int
	lim     *Limits
	made    []byte
	places  []place
	scratch []byte // a text without its escapes
	err     *DecodeError
}

func (j *jsonReader) fail(code DecodeCode, at int, found, want string) {
	if j.err == nil {
		j.err = &DecodeError{Code: code, Offset: at, Found: found, Want: want}
	}
}

// failHere refuses what comes next, or that nothing does.
func (j *jsonReader) failHere(want string) {
	if j.off >= len(j.given) {
		j.fail(DecodeTruncated, len(j.given), "the end", want)
		return
	}
	j.fail(DecodeBadJSON, j.off, quote(j.given[j.off:min(j.off+8, len(j.given))]), want)
}

// lead is the first byte of what comes next, behind white space; it is not taken. It is 0 at the end, and after a
// failure, which is no beginning of anything.
func (j *jsonReader) lead() byte {
	j.off = len(j.given) - len(bytes.TrimLeft(j.given[j.off:], " \t\r\n"))
	if j.err != nil || j.off >= len(j.given) {
		return 0
	}
	return j.given[j.off]
}

// take takes a byte that comes next, or nothing.
func (j *jsonReader) take(c byte) bool {
	if j.lead() != c {
		return false
	}
	j.off++
	return true
}

// end demands that nothing follows.
func (j *jsonReader) end() {
	if j.lead(); j.off < len(j.given) {
		j.fail(DecodeTrailing, j.off, strconv.Itoa(len(j.given)-j.off)+" bytes", "none")
	}
}

// value makes the next value, which stands at depth.
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

// literal takes a word that comes next, or nothing.
func (j *jsonReader) literal(word string) bool {
	if !bytes.HasPrefix(j.given[j.off:], []byte(word)) {
		return false
	}
	j.off += len(word)
	return true
}

// header leaves room for how many values follow, which is known behind them.
func (j *jsonReader) header(lead byte) (at int) {
	at = len(j.made)
	j.made = append(j.made, lead, 0, 0, 0, 0)
	return at
}

func (j *jsonReader) setHeader(at, n int) { binary.BigEndian.PutUint32(j.made[at+1:], uint32(n)) }

// more says whether another element comes: the first, or one behind a comma.
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

// A member is a field of an object: where in what was made it begins, and its name; and where its places begin.
type member struct {
	made, name, nameEnd, place int
	dropped                    bool // a later one has its name
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

// drop takes out the members that are to be dropped. Nothing was made since the last of them.
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
