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
type mapReader struct {
	r            *reader
	schema       *schema
	depth        int    // of the values in this map; 2 in the message itself
	at           int    // index of the field whose value is to be read next
	from         int    // where the map begins in the payload
	nextExpected int    // index of the field that most encoders send next
	entriesLeft  int    // entries not yet read
	seen         uint64 // bit i: names[i] was given
	unknownName  []byte // name of the first entry that the schema does not declare
}

func (w *mapReader) readHeader() {
	w.r.message, w.from = w.schema.name, w.r.off
	w.entriesLeft = w.r.readMapHeader()
}

// nextField moves to the next declared field other than the tag. The caller reads the value of the field.
func (w *mapReader) nextField() bool {
	r := w.r
	for w.entriesLeft > 0 && r.ok() {
		w.entriesLeft--
		at := r.off
		i := w.guessField()
		if i < 0 {
			r.field = ""
			name := r.readName()
			if i = w.fieldIndex(name); i < 0 {
				if r.ok() {
					w.skipUnknown(name)
				}
				if w.unknownName == nil {
					w.unknownName = name
				}
				continue
			}
		}
		r.field = w.schema.names[i]
		if w.seen&(1<<i) != 0 {
			r.fail(DecodeDuplicateField, at, quoteBytes([]byte(r.field)), "")
			return false
		}
		w.seen |= 1 << i
		w.nextExpected = i + 1
		if i == 0 && w.schema.tagged {
			r.skipValue(w.depth) // findTag has read it.
			continue
		}
		w.at = i
		return true
	}
	return false
}

// guessField reads the name of a field if the name is that of a later field in the schema than the previous field, and
// returns the field's index. Otherwise the result is -1 and nothing is read. Nearly all encoders write fields in
// declared order and leave some fields out, and a name that equals a declared name needs no check of its encoding.
func (w *mapReader) guessField() int {
	r := w.r
	if r.off >= len(r.b) || r.lim.StringBytes < shortString {
		return -1
	}
	lead, rest := r.b[r.off], r.b[r.off+1:]
	for i := w.nextExpected; i < len(w.schema.names); i++ {
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

// fieldIndex returns the index of the field with this name, or -1 for an unknown name.
func (w *mapReader) fieldIndex(name []byte) int {
	for i, declared := range w.schema.names {
		if declared == string(name) {
			return i
		}
	}
	return -1
}

// skipUnknown skips the value of an unknown field. If the value is malformed, the error names the field.
func (w *mapReader) skipUnknown(name []byte) {
	if w.r.skipValue(w.depth); !w.r.ok() && w.r.err.Field == "" {
		w.r.err.Field = quoteBytes(name)
	}
}

func (w *mapReader) hasField(i int) bool { return w.seen&(1<<i) != 0 }

// checkRequired refuses the message if a required field is missing.
func (w *mapReader) checkRequired() {
	w.failMissing(w.schema.required &^ w.seen)
	if w.r.ok() {
		w.r.field = ""
	}
}

// failMissing refuses the message if the set of missing fields is not empty. The error names the first missing field.
func (w *mapReader) failMissing(missing uint64) {
	if missing != 0 && w.r.ok() {
		w.r.field = w.schema.names[bits.TrailingZeros64(missing)]
		w.r.fail(DecodeMissingField, w.r.off, "no such field", "")
	}
}

// checkTogether refuses the message if only a part of a group of fields is present.
func (w *mapReader) checkTogether(group uint64) {
	if given := w.seen & group; given != 0 {
		w.failMissing(group &^ given)
	}
}

// checkSameLength refuses the message unless the list in field has as many elements as the list in another field.
func (w *mapReader) checkSameLength(field string, got int, otherField string, want int) {
	if got != want {
		w.failField(field, DecodeLengthMismatch, strconv.Itoa(got)+" elements", strconv.Itoa(want)+" as in "+otherField)
	}
}

// failField refuses the message because of the value of a field, after the whole map has been read.
func (w *mapReader) failField(field string, code DecodeCode, found, want string) {
	if w.r.ok() {
		w.r.field = field
		w.r.fail(code, w.fieldOffset(field), found, want)
	}
}

// fieldOffset returns the byte at which the value of a field begins, or the end of the payload if the field is absent.
// The map is read again, because only refusals need the place.
func (w *mapReader) fieldOffset(field string) int {
	r := reader{b: w.r.b, off: w.from, lim: w.r.lim}
	for n := r.readMapHeader(); n > 0 && r.ok(); n-- {
		if string(r.readName()) == field {
			return r.off
		}
		r.skipValue(w.depth)
	}
	return len(w.r.b)
}

// readName reads the name of a field.
func (r *reader) readName() []byte { return r.readText() }

// readTag reads the value of the tag field, which must be a known tag.
func (r *reader) readTag() Tag {
	at := r.off
	name := r.readText()
	tag := parseTag(name)
	if r.ok() && tag == TagNone {
		r.fail(DecodeUnknownTag, at, quoteBytes(name), "")
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
	for n := r.readMapHeader(); n > 0 && r.ok() && tag == TagNone; n-- {
		if r.takeText(tagField) || string(r.readName()) == tagField {
			r.field = tagField
			at = r.off
			tag = r.readTag()
		} else {
			r.skipValue(2)
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

// beginsWithTag reports whether the message begins with this tag in the form that all encoders write. Nothing is read.
func (r *reader) beginsWithTag(with Tag) bool {
	from := r.off
	begins := r.readMapHeader() > 0 && r.takeText(tagField) && r.takeText(with.String())
	r.off = from
	return begins
}

// expectTag checks that the message has this tag. It is for decoders of a single message.
func (r *reader) expectTag(want Tag) {
	r.message = want.String()
	if r.beginsWithTag(want) {
		return
	}
	if got, at := r.findTag(); r.ok() && got != want {
		r.field = tagField
		r.fail(DecodeWrongTag, at, got.String(), want.String())
	}
}
