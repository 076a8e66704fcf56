package protocol

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// Describe returns a message as text for people: field by field in the order of the bytes, unknown fields included. If
// the bytes are refused, the text ends where the bytes can be read no further, and the error is the *DecodeError that a
// decoder returns, with the offset of the fault.
//
// The length of the text is at most a small multiple of the length of the bytes. Programs must not parse the text; they
// decode the bytes.
func Describe(b []byte, lim *Limits) (string, error) {
	if isJSON(b) {
		return describeJSON(b, lim)
	}
	size := ", " + strconv.Itoa(len(b)) + " bytes"
	r := newReader(b, lim)
	tag, _ := r.findTag()
	if err := r.result(); err != nil {
		if len(b) > r.lim.MessageBytes {
			b = nil
		}
		return describeFields(b, r.lim, "unknown message"+size, &schema{names: []string{tagField}}), err
	}
	return describeFields(b, r.lim, tag.String()+size, schemas[tag]), NewMessage(tag).Decode(b, lim)
}

// describeJSON describes a controller's message that is JSON: it describes the msgpack to which the JSON is converted.
func describeJSON(b []byte, lim *Limits) (string, error) {
	title := "unknown message, " + strconv.Itoa(len(b)) + " bytes of JSON\n"
	r, _ := newEitherReader(b, lim)
	tag, err := PeekControllerTag(b, lim)
	if err != nil {
		return title, err
	}
	text := describeFields(r.b, r.lim, tag.String()+", "+strconv.Itoa(len(b))+" bytes of JSON", schemas[tag])
	return text, NewMessage(tag).Decode(b, lim)
}

func describeFields(b []byte, lim *Limits, title string, s *schema) string {
	p := printer{r: reader{b: b, lim: lim}}
	p.writeText(title)
	p.writeFields(1, s)
	p.writeText("\n")
	return p.out.String()
}

// A printer writes msgpack values as text while it reads them. The printer stops at the first fault.
type printer struct {
	r   reader
	out strings.Builder
}

func (p *printer) writeText(parts ...string) {
	for _, s := range parts {
		p.out.WriteString(s)
	}
}

func (p *printer) newLine(depth int) { p.writeText("\n", strings.Repeat("  ", depth)) }

// writeFields writes the entries of a map, one line each.
func (p *printer) writeFields(depth int, s *schema) {
	r := &p.r
	for n := r.readMapHeader(); n > 0 && r.ok(); n-- {
		name := r.readName()
		if !r.ok() {
			return
		}
		p.newLine(depth)
		known := slices.Contains(s.names, string(name))
		if !known {
			p.writeText(strconv.Quote(string(name)), " (unknown, skipped): ")
		} else {
			p.writeText(string(name), ": ")
		}
		from := r.off
		p.writeValue(depth, string(name))
		if known && r.ok() {
			p.writeMeaning(string(name), from)
		}
	}
}

// writeValue writes a value of the field with the given name.
func (p *printer) writeValue(depth int, field string) {
	r := &p.r
	c, ok := r.peekByte()
	if !ok {
		return
	}
	from := r.off
	switch typeName(c) {
	case "int":
		if v, negative := r.readInteger(); r.ok() {
			p.writeText(integerText(v, negative))
		}
	case "bool":
		p.writeText(strconv.FormatBool(r.readBool()))
	case "str":
		if s := r.readString(len(r.b), ""); r.ok() {
			p.writeText(strconv.Quote(string(s)))
		}
	case "array":
		p.writeArray(depth, field)
	case "map":
		if inner, ok := describedMaps[field]; ok {
			p.writeText(inner.title)
			p.writeFields(depth+1, inner)
			return
		}
		r.skipValue(depth + 1)
		p.writeText("a map of ", strconv.Itoa(r.off-from), " bytes")
	case "nil":
		r.skipValue(depth + 1)
		p.writeText("nil")
	default: // float, bin, ext: the content is not readable text
		r.skipValue(depth + 1)
		p.writeText("a ", typeName(c), " of ", strconv.Itoa(r.off-from), " bytes")
	}
}

// writeArray writes a list of numbers in one line, and any other list with one line for each element.
func (p *printer) writeArray(depth int, field string) {
	r := &p.r
	if depth >= min(r.lim.Depth, depthMax) {
		r.skipValue(depth + 1)
		return
	}
	n, at := r.readCount(0x90, 0xdc, "array")
	if n > uint64(len(r.b)-r.off) {
		r.failTruncated(at)
		return
	}
	inline := n == 0 || typeName(r.b[r.off]) == "int"
	if inline {
		p.writeText("[")
	} else {
		p.writeText(strconv.FormatUint(n, 10))
	}
	for i := uint64(0); i < n && r.ok(); i++ {
		switch {
		case !inline:
			p.newLine(depth + 1)
			p.writeText("[", strconv.FormatUint(i, 10), "] ")
		case i > 0:
			p.writeText(", ")
		}
		p.writeValue(depth+1, field)
	}
	if inline {
		p.writeText("]")
	}
}

// writeMeaning writes, in parentheses, the meaning of the field's value, which begins at byte from.
func (p *printer) writeMeaning(field string, from int) {
	r := reader{b: p.r.b, off: from, lim: p.r.lim}
	switch field {
	case "fmt", "kvf_fmt":
		if f := r.readFormat(); r.ok() {
			p.writeText(" (", f.String(), ")")
		}
	case "error_code":
		if c := r.readP2PError(); r.ok() {
			p.writeText(" (", c.String(), ")")
		}
	case "lease_ttl_s", "global_progress":
		if v := r.readFloat(); r.ok() {
			p.writeText(" (", strconv.FormatFloat(v, 'g', -1, 64), ")")
		}
	case "patience_ns", "layer_ns", "kvf_patience_ns", "kvf_lease_ns", "kvf_retry_ns", "kvf_granted_ns", "kvf_clock_ns",
		"kvf_echo_ns":
		if ns := r.readUint(math.MaxUint64); r.ok() {
			p.writeText(" (", strconv.FormatFloat(float64(ns)/1e9, 'g', -1, 64), " s)")
		}
	}
}
