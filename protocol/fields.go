package protocol

import (
	"math/bits"
	"strconv"
)

// A schema is what a decoder declares about one map: its fields in wire order, and which of them
// have no default.
type schema struct {
	name     string
	title    string   // of a map inside messages, in text for people
	tagged   bool     // names[0] is the tag, which the walk checks itself
	names    []string // at most 64
	required uint64   // bit i: names[i] must be there
}

// fields walks the entries of one declared map.
//
//	w := fields{r: &r, schema: &schemaOfThis}
//	for w.open(); w.next(); {
//		switch w.at {
//		case thisField: m.This = r.text()
//		}
//	}
//	w.close()
//
// It finds each entry's declared field, skips the unknown ones, and refuses the second of a kind.
type fields struct {
	r      *reader
	schema *schema
	depth  int    // of the values in this map; 2 in the message itself
	at     int    // index of the field whose value is to be read next
	from   int    // where the map begins in the payload
	expect int    // index of the field that an honest encoder sends next
	left   int    // entries not yet read
	seen   uint64 // bit i: names[i] was given
	extra  []byte // name of the first field that the schema has not
}

func (w *fields) open() {
	w.r.message, w.from = w.schema.name, w.r.off
	w.left = w.r.mapHeader()
}

// next moves to the next declared field other than the tag; its value is the caller's to read.
func (w *fields) next() bool {
	r := w.r
	for w.left > 0 && r.ok() {
		w.left--
		at := r.off
		i := w.guess()
		if i < 0 {
			r.field = ""
			name := r.name()
			if i = w.find(name); i < 0 {
				if r.ok() {
					w.skipUnknown(name)
				}
				if w.extra == nil {
					w.extra = name
				}
				continue
			}
		}
		r.field = w.schema.names[i]
		if w.seen&(1<<i) != 0 {
			r.fail(DecodeDuplicateField, at, quote([]byte(r.field)), "")
			return false
		}
		w.seen |= 1 << i
		w.expect = i + 1
		if i == 0 && w.schema.tagged {
			r.skip(w.depth) // findTag has read it.
			continue
		}
		w.at = i
		return true
	}
	return false
}

// guess takes the name of the field that an honest encoder sends next, if it is what comes. Fields come in
// declared order nearly always, with some left out, and a name that equals a declared one needs no check of its own.
// It returns -1, and takes nothing, for everything else.
func (w *fields) guess() int {
	r := w.r
	if r.off >= len(r.b) || r.lim.StringBytes < shortString {
		return -1
	}
	lead, rest := r.b[r.off], r.b[r.off+1:]
	for i := w.expect; i < len(w.schema.names); i++ {
		name := w.schema.names[i]
		short := len(name) <= shortString && lead == 0xa0|byte(len(name))
		if short && len(rest) >= len(name) && string(rest[:len(name)]) == name {
			r.off += 1 + len(name)
			return i
		}
	}
	return -1
}

// shortString is the longest that has the short form.
const shortString = 31

// find returns -1 for an unknown name.
func (w *fields) find(name []byte) int {
	for i, declared := range w.schema.names {
		if declared == string(name) {
			return i
		}
	}
	return -1
}

// skipUnknown keeps the peer's name out of the error unless there is one.
func (w *fields) skipUnknown(name []byte) {
	if w.r.skip(w.depth); !w.r.ok() && w.r.err.Field == "" {
		w.r.err.Field = quote(name)
	}
}

func (w *fields) has(i int) bool { return w.seen&(1<<i) != 0 }

// close demands the fields that have no default.
func (w *fields) close() {
	w.demand(w.schema.required &^ w.seen)
	if w.r.ok() {
		w.r.field = ""
	}
}

// demand refuses the message for the first of the fields that are missing, if any is.
func (w *fields) demand(missing uint64) {
	if missing != 0 && w.r.ok() {
		w.r.field = w.schema.names[bits.TrailingZeros64(missing)]
		w.r.fail(DecodeMissingField, w.r.off, "no such field", "")
	}
}

// together refuses the message if only some of a group of fields are present.
func (w *fields) together(group uint64) {
	if given := w.seen & group; given != 0 {
		w.demand(group &^ given)
	}
}

// parallel refuses the message unless the list in field has as many elements as the other one.
func (w *fields) parallel(field string, got int, other string, want int) {
	if got != want {
		w.refuse(field, DecodeLengthMismatch, strconv.Itoa(got)+" elements", strconv.Itoa(want)+" as in "+other)
	}
}

// refuse refuses the message for the value of a field, once the whole map has been read.
func (w *fields) refuse(field string, code DecodeCode, found, want string) {
	if w.r.ok() {
		w.r.field = field
		w.r.fail(code, w.offset(field), found, want)
	}
}

// offset returns where the value of a field begins, or the end of the payload if the field is absent. It reads the map
// again, because only refusals need it.
func (w *fields) offset(field string) int {
	r := reader{b: w.r.b, off: w.from, lim: w.r.lim}
	for n := r.mapHeader(); n > 0 && r.ok(); n-- {
		if string(r.name()) == field {
			return r.off
		}
		r.skip(w.depth)
	}
	return len(w.r.b)
}

// name takes the name of a field.
func (r *reader) name() []byte { return r.text() }

// tagValue takes the value of the tag field, one that is known.
func (r *reader) tagValue() Tag {
	at := r.off
	name := r.text()
	tag := parseTag(name)
	if r.ok() && tag == TagNone {
		r.fail(DecodeUnknownTag, at, quote(name), "")
	}
	return tag
}

func (r *reader) failMissingTag() {
	r.field = tagField
	r.fail(DecodeMissingTag, r.off, "no such field", "")
}

// findTag looks ahead for the tag and takes nothing. Every encoder puts it first; elsewhere it is
// legal, and costs a walk. The tag comes before all else, because it decides what the fields mean.
func (r *reader) findTag() (tag Tag, at int) {
	from := r.off
	for n := r.mapHeader(); n > 0 && r.ok() && tag == TagNone; n-- {
		if r.take(tagField) || string(r.name()) == tagField {
			r.field = tagField
			at = r.off
			tag = r.tagValue()
		} else {
			r.skip(2)
		}
	}
	if r.ok() && tag == TagNone {
		r.failMissingTag()
	}
	if r.ok() {
		r.off, r.field = from, ""
	}
	return tag, at
}

// begins says whether the message begins with this tag, as every encoder writes it. It takes nothing.
func (r *reader) begins(with Tag) bool {
	from := r.off
	does := r.mapHeader() > 0 && r.take(tagField) && r.take(with.String())
	r.off = from
	return does
}

// expectTag is findTag for a decoder of one message.
func (r *reader) expectTag(want Tag) {
	r.message = want.String()
	if r.begins(want) {
		return
	}
	if got, at := r.findTag(); r.ok() && got != want {
		r.field = tagField
		r.fail(DecodeWrongTag, at, got.String(), want.String())
	}
}
