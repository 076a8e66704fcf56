package snapshot

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Bounds of the text about a value.
const (
	depthMax    = 40
	elementsMax = 4096 // elements of one slice
	textMax     = 96   // bytes of one string, and of bytes that are text
)

// omittedText replaces what must not be written.
const omittedText = "left out"

// DescribeOptions says what may be written about a state, and in which words. The types are compared exactly, and the
// maps are only read.
type DescribeOptions struct {
	MaxBytes    int                   // limit in bytes; beyond it no further value is begun
	SecretTypes map[reflect.Type]bool // types of which nothing is written
	// SecretWords are lower-case words. Nothing is written of a field whose name contains one, in any case: "seed" leaves
	// out the fields Seed and hashSeed.
	SecretWords  []string
	DerivedTypes map[reflect.Type]bool                         // types that follow from the rest and are left out
	Texts        map[reflect.Type]func(v reflect.Value) string // text for a type, instead of a number
}

// Describe writes the tree at v as JSON for a person looking for an error. Unexported fields are included. Left out are
// zero values, fields that are of use within one step only (`snap:"scratch"`), structs with a false life flag
// (`snap:"life"`), and slots that are not in use. Slices are written as objects by index. No method of v is called, so
// v may be in any state, and the writing terminates whatever v is: text is cut, and depth and bytes are bounded. A
// value that cannot be written is replaced by a text that says so.
func Describe(v any, options DescribeOptions) (b json.RawMessage) {
	defer func() {
		if p := recover(); p != nil || !json.Valid(b) {
			b, _ = json.Marshal(fmt.Sprintf("it cannot be told: %v", p)) // Marshalling a string always succeeds.
		}
	}()
	t := describer{DescribeOptions: options}
	t.writeValue(reflect.ValueOf(v), 0)
	return t.out.Bytes()
}

// A describer writes a tree.
type describer struct {
	DescribeOptions
	out        bytes.Buffer
	neighbours reflect.Value // for the next value: a slice that says which elements are alive
}

// writeValue writes a value of any kind.
func (t *describer) writeValue(v reflect.Value, depth int) {
	if depth > depthMax || t.out.Len() > t.MaxBytes {
		t.writeText("...")
		return
	}
	if !v.IsValid() {
		t.out.WriteString("null")
		return
	}
	if t.SecretTypes[v.Type()] {
		t.writeText(omittedText)
		return
	}
	if say := t.Texts[v.Type()]; say != nil {
		t.writeText(say(v))
		return
	}
	switch v.Kind() { //nolint:exhaustive // trees have no others; the default tells them by their kind
	case reflect.Bool:
		fmt.Fprint(&t.out, v.Bool())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		fmt.Fprint(&t.out, v.Int())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		fmt.Fprint(&t.out, v.Uint())
	case reflect.String:
		t.writeText(v.String())
	case reflect.Struct:
		t.writeFields(v, depth)
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			t.writeBytes(v)
		} else {
			t.writeElements(v, depth)
		}
	case reflect.Pointer, reflect.Interface:
		t.writeValue(v.Elem(), depth+1)
	case reflect.Map:
		t.writeText(fmt.Sprintf("%d entries", v.Len()))
	default:
		t.writeText(v.Kind().String())
	}
}

// writeText writes a string, cut to textMax bytes.
func (t *describer) writeText(s string) {
	if len(s) > textMax {
		s = fmt.Sprintf("%s... (%d bytes)", s[:textMax], len(s))
	}
	b, _ := json.Marshal(s) // Marshalling a string always succeeds.
	t.out.Write(b)
}

// writeBytes writes bytes that are text as a string. Of bytes that are not text, it writes the number and the first
// four.
func (t *describer) writeBytes(v reflect.Value) {
	b := make([]byte, min(v.Len(), textMax+1))
	for i := range b {
		b[i] = byte(v.Index(i).Uint())
	}
	if v.Kind() == reflect.Slice && isText(b) {
		if v.Len() > textMax {
			t.writeText(fmt.Sprintf("%s... (%d bytes)", b[:textMax-20], v.Len()))
			return
		}
		t.writeText(string(b))
		return
	}
	t.writeText(fmt.Sprintf("%s.. (%d bytes)", hex.EncodeToString(b[:min(len(b), 4)]), v.Len()))
}

// isText reports whether b is printable UTF-8.
func isText(b []byte) bool {
	if !utf8.Valid(b) {
		return false
	}
	return bytes.IndexFunc(b, func(r rune) bool { return !strconv.IsPrint(r) }) < 0
}

// writeFields writes a struct as an object, without empty fields.
func (t *describer) writeFields(v reflect.Value, depth int) {
	t.out.WriteByte('{')
	first := true
	for i := range v.NumField() {
		f, field := v.Field(i), v.Type().Field(i)
		empty := f.IsZero() || f.Kind() == reflect.Slice && f.Len() == 0
		if empty || wordOf(&field) == tagScratch || t.DerivedTypes[f.Type()] {
			continue
		}
		if !first {
			t.out.WriteByte(',')
		}
		first = false
		t.out.WriteString(strconv.Quote(field.Name) + ":")
		if t.isSecret(field.Name) {
			t.writeText(omittedText)
			continue
		}
		if wordOf(&field) == tagBeside {
			for t.neighbours = v.Field(i - 1); t.neighbours.Kind() == reflect.Struct; {
				t.neighbours = t.neighbours.Field(0)
			}
		}
		t.writeValue(f, depth+1)
		t.neighbours = reflect.Value{} // A value that is not written as a slice has not used it.
	}
	t.out.WriteByte('}')
}

// writeElements writes a slice by index, without zero elements and without slots that are not in use.
func (t *describer) writeElements(v reflect.Value, depth int) {
	flagged := v // the slice that says which elements are alive
	paired := t.neighbours.IsValid() && t.neighbours.Len() >= v.Len()
	if paired {
		flagged = t.neighbours
	}
	life := lifeFlagIndex(flagged.Type().Elem())
	fmt.Fprintf(&t.out, `{"len":%d`, v.Len())
	written := 0
	for i := range v.Len() {
		e := v.Index(i)
		if t.neighbours = (reflect.Value{}); e.IsZero() || life >= 0 && !flagged.Index(i).Field(life).Bool() {
			continue
		}
		if written++; written > elementsMax || t.out.Len() > t.MaxBytes {
			t.out.WriteString(`,"more":"left out"`)
			break
		}
		fmt.Fprintf(&t.out, `,"%d":`, i)
		if paired && flagged.Index(i).Kind() == reflect.Slice {
			t.neighbours = flagged.Index(i)
		}
		t.writeValue(e, depth+1)
	}
	t.out.WriteByte('}')
}

// lifeFlagIndex returns the index of the life flag in struct type e, or -1 if there is none. The flag says whether a
// value is in use, or is only the rest of an earlier value in the same slot.
func lifeFlagIndex(e reflect.Type) int {
	if e.Kind() == reflect.Struct {
		for i := range e.NumField() {
			if f := e.Field(i); wordOf(&f) == tagLife {
				return i
			}
		}
	}
	return -1
}

// isSecret reports whether a field's name contains one of the words for secrets.
func (t *describer) isSecret(field string) bool {
	name := strings.ToLower(field)
	return slices.ContainsFunc(t.SecretWords, func(word string) bool { return strings.Contains(name, word) })
}
