package foreign

// Forms are the choices in which an encoder differs from that of package protocol, which always writes the shortest
// form.
type Forms uint8

// Forms.
const (
	// Numbers: integers in any width that holds the value, and integers that are not negative also in signed forms.
	Numbers Forms = 1 << iota
	// Texts: strings and bytes under a longer length.
	Texts
	// Counts: lists and maps under a wider count.
	Counts
	// Order: the fields of each map in any order. The two lists of an AllocResponse keep their order, because the order
	// tells the revision of the message.
	Order
	// Unknown: additional fields that no message declares, with values of every type, including nested values and
	// extension types.
	Unknown

	formsEnd
	// All is the set of all choices.
	All = formsEnd - 1
)

// A Draw makes the decisions of an encoder: it returns a number in [0, n).
type Draw func(n int) int

// Append appends a message as another encoder may write it. The draws alone decide among the choices in forms. Append
// returns dst unchanged, and false, if the message is not a msgpack map or is nested deeper than depthMax.
func Append(dst, message []byte, forms Forms, draw Draw) (b []byte, ok bool) {
	e := encoder{in: message, out: dst, forms: forms, draw: draw, repeatField: noField}
	return e.writeMessage(dst)
}

// Repeat is like Append, but writes a field of the message twice and returns the name of that field. The field may
// belong to a map within a list.
func Repeat(dst, message []byte, forms Forms, draw Draw) (b []byte, field string, ok bool) {
	count := encoder{in: message, draw: func(int) int { return 0 }, repeatField: noField}
	if _, ok := count.writeMessage(nil); !ok || count.fields == 0 {
		return dst, "", false
	}
	e := encoder{in: message, out: dst, forms: forms, draw: draw, repeatField: draw(count.fields)}
	b, ok = e.writeMessage(dst)
	return b, e.repeatedName, ok
}

// noField is the number of no field.
const noField = -1

// depthMax is the limit on the nesting of values.
const depthMax = 64

// An encoder reads the message in and writes the message out.
type encoder struct {
	in     []byte
	off    int
	out    []byte
	forms  Forms
	draw   Draw
	failed bool

	fields       int // number of fields of all maps so far
	repeatField  int // number of the field that is written twice
	repeatedName string
}

func (e *encoder) writeMessage(dst []byte) ([]byte, bool) {
	if len(e.in) == 0 || !isMap(e.in[0]) {
		return dst, false
	}
	e.writeValue(1)
	if e.failed || e.off != len(e.in) {
		return dst, false
	}
	return e.out, true
}

// writeValue copies the next value of the message, which is nested at depth.
func (e *encoder) writeValue(depth int) {
	c, ok := e.peekByte(depth)
	switch {
	case !ok:
	case isInteger(c):
		e.writeInteger(c)
	case isText(c):
		e.writeText()
	case isBytes(c):
		e.writeBytes()
	case isList(c):
		n := e.readCount(0x90, 0xdc)
		for e.writeHeader(0x90, 0xdc, n); n > 0 && !e.failed; n-- {
			e.writeValue(depth + 1)
		}
	case isMap(c):
		e.writeMap(depth)
	default:
		from := e.off
		e.skipValue(depth)
		if !e.failed {
			e.out = append(e.out, e.in[from:e.off]...)
		}
	}
}

// An entry is the place of a field in the message: the offsets of the name, of the value, and of the end of the value.
type entry struct{ at, value, end int }

// writeMap copies a map.
func (e *encoder) writeMap(depth int) {
	n := e.readCount(0x80, 0xde)
	if 2*n > len(e.in)-e.off {
		e.failed = true
		return
	}
	first := e.fields
	e.fields += n
	entries := make([]entry, 0, n)
	for ; n > 0 && !e.failed; n-- {
		x := entry{at: e.off}
		e.skipValue(depth + 1)
		x.value = e.off
		e.skipValue(depth + 1)
		x.end = e.off
		entries = append(entries, x)
	}
	if e.failed {
		return
	}
	end := e.off
	if i := e.repeatField - first; e.repeatField != noField && i >= 0 && i < len(entries) {
		e.repeatedName = e.nameOf(entries[i])
		entries = append(entries, entries[i])
	}
	if e.forms&Order != 0 {
		e.shuffleFields(entries)
	}
	e.writeFields(entries, depth)
	e.off = end
}

// writeFields writes the fields of a map, and unknown fields between them.
func (e *encoder) writeFields(entries []entry, depth int) {
	unknown := 0
	if e.forms&Unknown != 0 {
		unknown = 1 + e.draw(3)
	}
	e.writeHeader(0x80, 0xde, len(entries)+unknown)
	for left := len(entries); left > 0 || unknown > 0; {
		if unknown > 0 && e.draw(left+unknown) < unknown {
			e.writeUnknown(entries)
			unknown--
			continue
		}
		x := entries[len(entries)-left]
		left--
		e.off = x.at
		e.writeValue(depth + 1)
		e.writeValue(depth + 1)
	}
}

// shuffleFields puts the fields of a map into any order.
func (e *encoder) shuffleFields(entries []entry) {
	for i := len(entries) - 1; i > 0; i-- {
		j := e.draw(i + 1)
		entries[i], entries[j] = entries[j], entries[i]
	}
	at := map[string]int{}
	for i, x := range entries {
		at[e.nameOf(x)] = i
	}
	sent, synchronous := at["already_sent_indexes"]
	pages, reply := at["remote_indexes"]
	if tag, tagged := at["type"]; !synchronous || !reply || !tagged || e.textAt(entries[tag].value) != "AllocResponse" {
		return
	}
	if (entries[sent].at < entries[pages].at) != (sent < pages) {
		entries[sent], entries[pages] = entries[pages], entries[sent]
	}
}

// nameOf returns the name of a field.
func (e *encoder) nameOf(x entry) string { return e.textAt(x.at) }

// textAt returns the text at an offset of the message, or an empty text if the value there is not a text.
func (e *encoder) textAt(at int) string {
	if !isText(e.in[at]) {
		return ""
	}
	r := encoder{in: e.in, off: at}
	return string(r.readBytes(r.readLength(0xa0, 0x1f, 0xd9)))
}
