package protocol

import (
	"math/bits"
	"strconv"
)

// A schema declares the fields of one map, in wire order, and which of them are required.
type schema struct {
	name     string
	title    string   // of a map inside messages, in text for people
	tagged   bool     // names[0] is the tag, which is read separately
	names    []string // at most 64
	required uint64   // bit i: names[i] must be there
}

// A mapReader reads the entries of a declared map.
//
//	w := mapReader{r: &r, schema: &schemaOfThis}
//	for w.readHeader(); w.nextField(); {
//		switch w.at {
//		case thisField: m.This = r.readText()
//		}
//	}
//	w.checkRequired()
//
// It finds the declared field of each entry, skips unknown entries, and refuses a duplicate field.
type fields struct {
	r      *reader
	schema *schema
	depth  int    // of the values in this map; 2 in the message itself
	at     int    // index of the field whose value is to be read next
	from   int    // where the map begins in the payload
	expect int    // index of the field that most encoders send next
	left   int    // entries not yet read
	seen   uint64 // bit i: names[i] was given
	extra  []byte // name of the first entry that the schema does not declare
}

func (w *fields) open() {
	w.r.message, w.from = w.schema.name, w.r.off
	w.left = w.r.mapHeader()
}

// next moves to the next declared field other than the tag. The caller reads the value of the field.
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

// guess reads the name of a field if the name is that of a later field in the schema than the previous field, and
// returns the field's index. Otherwise the result is -1 and nothing is read. Nearly all encoders write fields in
// declared order and leave some fields out, and a name that equals a declared name needs no check of its encoding.
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

// shortString is the length of the longest string in the short form.
const shortString = 31

// find returns the index of the field with this name, or -1 for an unknown name.
func (w *fields) find(name []byte) int {
	for i, declared := range w.schema.names {
		if declared == string(name) {
			return i
		}
	}
	return -1
}

// skipUnknown skips the value of an unknown field. If the value is malformed, the error names the field.
func (w *fields) skipUnknown(name []byte) {
	if w.r.skip(w.depth); !w.r.ok() && w.r.err.Field == "" {
		w.r.err.Field = quote(name)
	}
}

func (w *fields) has(i int) bool { return w.seen&(1<<i) != 0 }

// close refuses the message if a required field is missing.
func (w *fields) close() {
	w.demand(w.schema.required &^ w.seen)
	if w.r.ok() {
		w.r.field = ""
	}
}

// demand refuses the message if the set of missing fields is not empty. The error names the first missing field.
func (w *fields) demand(missing uint64) {
	if missing != 0 && w.r.ok() {
		w.r.field = w.schema.names[bits.TrailingZeros64(missing)]
		w.r.fail(DecodeMissingField, w.r.off, "no such field", "")
	}
}

// together refuses the message if only a part of a group of fields is present.
func (w *fields) together(group uint64) {
	if given := w.seen & group; given != 0 {
		w.demand(group &^ given)
	}
}

// parallel refuses the message unless the list in field has as many elements as the list in another field.
func (w *fields) parallel(field string, got int, other string, want int) {
	if got != want {
		w.refuse(field, DecodeLengthMismatch, strconv.Itoa(got)+" elements", strconv.Itoa(want)+" as in "+other)
	}
}

// refuse refuses the message because of the value of a field, after the whole map has been read.
func (w *fields) refuse(field string, code DecodeCode, found, want string) {
	if w.r.ok() {
		w.r.field = field
		w.r.fail(code, w.offset(field), found, want)
	}
}

// offset returns the byte at which the value of a field begins, or the end of the payload if the field is absent. The
// map is read again, because only refusals need the place.
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

// name reads the name of a field.
func (r *reader) name() []byte { return r.text() }

// tagValue reads the value of the tag field, which must be a known tag.
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

// findTag finds the tag and reads nothing else. Encoders write the tag first; in any other position the tag is legal,
// and finding it costs a pass over the message. Decoders call findTag before they read other fields, because the tag
// decides what the fields mean.
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

// begins reports whether the message begins with this tag in the form that all encoders write. Nothing is read.
func (r *reader) begins(with Tag) bool {
	from := r.off
	does := r.mapHeader() > 0 && r.take(tagField) && r.take(with.String())
	r.off = from
	return does
}

// expectTag checks that the message has this tag. It is for decoders of a single message.
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
