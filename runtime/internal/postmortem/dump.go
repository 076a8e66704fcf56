package postmortem

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"unicode/utf8"

	"github.com/kvferry/kvferry/effects"
)

// Bounds of what is written of one value.
const (
	depthMax    = 40
	elementsMax = 4096 // of one slice
	textMax     = 96   // bytes of one string, and of bytes that are text
)

// secret are types of which nothing is written: keys, tokens, and what draws or hides identifiers.
var secret = map[string]bool{"identity.Key": true, "identity.Token": true, "draw.Source": true, "draw.Shuffle": true}

// derived are types that follow from the rest of the state.
var derived = map[string]bool{"table.Index": true}

// A dumper writes values as JSON: what is zero is not written, nor slots of tables that nobody has.
type dumper struct {
	to   bytes.Buffer
	most int // bytes; beyond them nothing is begun any more
}

// dump writes v, which may be anything, unexported fields included. It calls nothing of v, so that v may be in any
// state.
func (d *dumper) dump(v any) { d.value(reflect.ValueOf(v), 0) }

func (d *dumper) value(v reflect.Value, depth int) {
	if depth > depthMax || d.to.Len() > d.most {
		d.text("...")
		return
	}
	switch v.Kind() { //nolint:exhaustive // machines have no others; the default tells them by their kind
	case reflect.Bool:
		fmt.Fprint(&d.to, v.Bool())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		fmt.Fprint(&d.to, v.Int())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		if v.Type() == reflect.TypeFor[effects.Code]() {
			d.text(effects.Code(v.Uint()).String())
		} else {
			fmt.Fprint(&d.to, v.Uint())
		}
	case reflect.String:
		d.text(v.String())
	case reflect.Struct:
		d.fields(v, depth)
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			d.bytes(v)
		} else {
			d.elements(v, depth)
		}
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			d.to.WriteString("null")
		} else {
			d.value(v.Elem(), depth+1)
		}
	case reflect.Map:
		d.text(fmt.Sprintf("%d entries", v.Len()))
	default:
		d.text(v.Kind().String())
	}
}

func (d *dumper) text(s string) {
	if len(s) > textMax {
		s = fmt.Sprintf("%s... (%d bytes)", s[:textMax], len(s))
	}
	b, _ := json.Marshal(s) // A string always goes.
	d.to.Write(b)
}

// bytes writes what is text as such, and of anything else how much there is and how it begins.
func (d *dumper) bytes(v reflect.Value) {
	b := make([]byte, min(v.Len(), textMax+1))
	for i := range b {
		b[i] = byte(v.Index(i).Uint())
	}
	if v.Kind() == reflect.Slice && isText(b) {
		if v.Len() > textMax {
			d.text(fmt.Sprintf("%s... (%d bytes)", b[:textMax-20], v.Len()))
			return
		}
		d.text(string(b))
		return
	}
	d.text(fmt.Sprintf("%s.. (%d bytes)", hex.EncodeToString(b[:min(len(b), 4)]), v.Len()))
}

func isText(b []byte) bool {
	if !utf8.Valid(b) {
		return false
	}
	return bytes.IndexFunc(b, func(r rune) bool { return !strconv.IsPrint(r) }) < 0
}

func (d *dumper) fields(v reflect.Value, depth int) {
	name := v.Type().String()
	if secret[name] {
		d.text("left out")
		return
	}
	d.to.WriteByte('{')
	first := true
	for i := range v.NumField() {
		f, field := v.Field(i), v.Type().Field(i)
		if f.IsZero() || derived[f.Type().String()] || isEmpty(f) {
			continue
		}
		if !first {
			d.to.WriteByte(',')
		}
		first = false
		d.to.WriteString(strconv.Quote(field.Name) + ":")
		if secret[f.Type().String()] || field.Name == "seed" {
			d.text("left out")
		} else {
			d.value(f, depth+1)
		}
	}
	d.to.WriteByte('}')
}

func isEmpty(v reflect.Value) bool { return v.Kind() == reflect.Slice && v.Len() == 0 }

// elements writes a slice by index, without what is zero and without slots of a table that are not in use.
func (d *dumper) elements(v reflect.Value, depth int) {
	fmt.Fprintf(&d.to, `{"len":%d`, v.Len())
	written := 0
	for i := range v.Len() {
		e := v.Index(i)
		if e.IsZero() || isFree(e) {
			continue
		}
		if written++; written > elementsMax || d.to.Len() > d.most {
			d.to.WriteString(`,"more":"left out"`)
			break
		}
		fmt.Fprintf(&d.to, `,"%d":`, i)
		d.value(e, depth+1)
	}
	d.to.WriteByte('}')
}

// isFree says whether a value is a slot of a table (fsm/table) that holds what its last life left.
func isFree(v reflect.Value) bool {
	if v.Kind() != reflect.Struct {
		return false
	}
	live := v.FieldByName("live")
	return live.IsValid() && live.Kind() == reflect.Bool && !live.Bool()
}
