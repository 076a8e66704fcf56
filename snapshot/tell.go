package snapshot

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"unicode/utf8"
)

// Bounds of the text about a value.
const (
	depthMax    = 40
	elementsMax = 4096 // elements of one slice
	textMax     = 96   // bytes of one string, and of bytes that are text
)

// leftOut replaces what must not be written.
const leftOut = "left out"

// Telling says what may be written about a state, and in which words. The types are compared exactly, and the maps are
// only read.
type Telling struct {
	Most    int                                           // limit in bytes; beyond it no further value is begun
	Secret  map[reflect.Type]bool                         // types of which nothing is written
	Secrets map[string]bool                               // names of fields of which nothing is written
	Derived map[reflect.Type]bool                         // types that follow from the rest and are left out
	Words   map[reflect.Type]func(v reflect.Value) string // text for a type, instead of a number
}

// Tell writes the tree at v as JSON for a person looking for an error. Unexported fields are included. Left out are
// zero values, fields that are of use within one step only (`snap:"scratch"`), structs with a false life flag
// (`snap:"life"`), and slots that are not in use. Slices are written as objects by index. No method of v is called, so
// v may be in any state, and the writing terminates whatever v is: text is cut, and depth and bytes are bounded. A
// value that cannot be written is replaced by a text that says so.
func Tell(v any, how Telling) (b json.RawMessage) {
	defer func() {
		if p := recover(); p != nil || !json.Valid(b) {
			b, _ = json.Marshal(fmt.Sprintf("it cannot be told: %v", p)) // Marshalling a string always succeeds.
		}
	}()
	t := teller{Telling: how}
	t.value(reflect.ValueOf(v), 0)
	return t.to.Bytes()
}

// A teller writes a tree.
type teller struct {
	Telling
	to     bytes.Buffer
	beside reflect.Value // for the next value: a slice that says which elements are alive
}

// value writes a value of any kind.
func (t *teller) value(v reflect.Value, depth int) {
	if depth > depthMax || t.to.Len() > t.Most {
		t.text("...")
		return
	}
	if !v.IsValid() {
		t.to.WriteString("null")
		return
	}
	if t.Secret[v.Type()] {
		t.text(leftOut)
		return
	}
	if say := t.Words[v.Type()]; say != nil {
		t.text(say(v))
		return
	}
	switch v.Kind() { //nolint:exhaustive // trees have no others; the default tells them by their kind
	case reflect.Bool:
		fmt.Fprint(&t.to, v.Bool())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		fmt.Fprint(&t.to, v.Int())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		fmt.Fprint(&t.to, v.Uint())
	case reflect.String:
		t.text(v.String())
	case reflect.Struct:
		t.fields(v, depth)
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			t.bytes(v)
		} else {
			t.elements(v, depth)
		}
	case reflect.Pointer, reflect.Interface:
		t.value(v.Elem(), depth+1)
	case reflect.Map:
		t.text(fmt.Sprintf("%d entries", v.Len()))
	default:
		t.text(v.Kind().String())
	}
}

// text writes a string, cut to textMax bytes.
func (t *teller) text(s string) {
	if len(s) > textMax {
		s = fmt.Sprintf("%s... (%d bytes)", s[:textMax], len(s))
	}
	b, _ := json.Marshal(s) // Marshalling a string always succeeds.
	t.to.Write(b)
}

// bytes writes bytes that are text as a string. Of bytes that are not text, it writes the number and the first four.
func (t *teller) bytes(v reflect.Value) {
	b := make([]byte, min(v.Len(), textMax+1))
	for i := range b {
		b[i] = byte(v.Index(i).Uint())
	}
	if v.Kind() == reflect.Slice && isText(b) {
		if v.Len() > textMax {
			t.text(fmt.Sprintf("%s... (%d bytes)", b[:textMax-20], v.Len()))
			return
		}
		t.text(string(b))
		return
	}
	t.text(fmt.Sprintf("%s.. (%d bytes)", hex.EncodeToString(b[:min(len(b), 4)]), v.Len()))
}

// isText reports whether b is printable UTF-8.
func isText(b []byte) bool {
	if !utf8.Valid(b) {
		return false
	}
	return bytes.IndexFunc(b, func(r rune) bool { return !strconv.IsPrint(r) }) < 0
}

// fields writes a struct as an object, without empty fields.
func (t *teller) fields(v reflect.Value, depth int) {
	t.to.WriteByte('{')
	first := true
	for i := range v.NumField() {
		f, field := v.Field(i), v.Type().Field(i)
		empty := f.IsZero() || f.Kind() == reflect.Slice && f.Len() == 0
		if empty || wordOf(&field) == tagScratch || t.Derived[f.Type()] {
			continue
		}
		if !first {
			t.to.WriteByte(',')
		}
		first = false
		t.to.WriteString(strconv.Quote(field.Name) + ":")
		if t.Secrets[field.Name] {
			t.text(leftOut)
			continue
		}
		if wordOf(&field) == tagBeside {
			for t.beside = v.Field(i - 1); t.beside.Kind() == reflect.Struct; {
				t.beside = t.beside.Field(0)
			}
		}
		t.value(f, depth+1)
		t.beside = reflect.Value{} // A value that is not written as a slice has not used it.
	}
	t.to.WriteByte('}')
}

// elements writes a slice by index, without zero elements and without slots that are not in use.
func (t *teller) elements(v reflect.Value, depth int) {
	by := v // the slice that says which elements are alive
	paired := t.beside.IsValid() && t.beside.Len() >= v.Len()
	if paired {
		by = t.beside
	}
	life := flagOf(by.Type().Elem())
	fmt.Fprintf(&t.to, `{"len":%d`, v.Len())
	written := 0
	for i := range v.Len() {
		e := v.Index(i)
		if t.beside = (reflect.Value{}); e.IsZero() || life >= 0 && !by.Index(i).Field(life).Bool() {
			continue
		}
		if written++; written > elementsMax || t.to.Len() > t.Most {
			t.to.WriteString(`,"more":"left out"`)
			break
		}
		fmt.Fprintf(&t.to, `,"%d":`, i)
		if paired && by.Index(i).Kind() == reflect.Slice {
			t.beside = by.Index(i)
		}
		t.value(e, depth+1)
	}
	t.to.WriteByte('}')
}

// flagOf returns the index of the life flag in struct type e, or -1 if there is none. The flag says whether a value is
// in use, or is only the rest of an earlier value in the same slot.
func flagOf(e reflect.Type) int {
	if e.Kind() == reflect.Struct {
		for i := range e.NumField() {
			if f := e.Field(i); wordOf(&f) == tagLife {
				return i
			}
		}
	}
	return -1
}
