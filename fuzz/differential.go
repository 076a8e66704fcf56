package fuzz

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/kvferry/kvferry/protocol"
)

// The comparison with msgpack/v5, which must read the same fields from every message that a decoder of ours accepts.
// The list of fields follows from the wire tags of the message's struct, so a new field is compared without a change
// here. The library sees only accepted bytes: hostile bytes can make it exhaust memory and stack.

// A comparedField is a field of a message, and the type by which the library reads the field: wide enough that the
// library cannot wrap a number, and a pointer where absence differs from zero.
type comparedField struct {
	wire    string
	path    [][]int // of the Go fields; several make one array on the wire
	flag    []int   // the bool that is false if the field is absent, or nil
	byFlag  bool    // the field's presence sets the flag
	options []string
	library reflect.Type
}

// A comparison reads messages of a tag with the library.
type comparison struct {
	fields []comparedField
	reads  reflect.Type // a struct with a field for the tag and for each of fields
}

// comparisons holds the comparison of each tag, once it was computed.
var comparisons sync.Map // of protocol.Tag: *comparison

// compareWithLibrary compares a message that a decoder has accepted with what the library reads from the same bytes.
func compareWithLibrary(b []byte, tag protocol.Tag, m protocol.Message) error {
	v := reflect.ValueOf(m).Elem()
	known, ok := comparisons.Load(tag)
	if !ok {
		known, _ = comparisons.LoadOrStore(tag, newComparison(tag, v.Type()))
	}
	c := known.(*comparison)
	library := reflect.New(c.reads)
	if err := msgpack.Unmarshal(b, library.Interface()); err != nil {
		return fmt.Errorf("%v is accepted, but the library says %w", tag, err)
	}
	if got := library.Elem().Field(0).String(); got != tag.String() {
		return fmt.Errorf("%v is accepted, and the library's tag is %q", tag, got)
	}
	return c.compareFields(v, library.Elem(), 1)
}

// undeclared lists fields of a Go type that messages with a tag do not have: the decoder skips any value of such a
// field.
var undeclared = map[protocol.Tag][]string{protocol.TagAllocResponse: {"remote_buffer_uuids", "alloc_failed"}}

func newComparison(tag protocol.Tag, of reflect.Type) *comparison {
	c := &comparison{}
	c.addFields(of, nil, nil, false)
	c.fields = slices.DeleteFunc(c.fields, func(f comparedField) bool { return slices.Contains(undeclared[tag], f.wire) })
	tagged := reflect.StructField{Name: "Tag", Type: reflect.TypeFor[string](), Tag: `msgpack:"type"`}
	c.reads = c.structOf(tagged)
	return c
}

// structOf returns the struct type that the library fills in.
func (c *comparison) structOf(fields ...reflect.StructField) reflect.Type {
	for i, f := range c.fields {
		fields = append(fields, reflect.StructField{
			Name: fmt.Sprintf("Field%d", i), Type: f.library, Tag: reflect.StructTag(fmt.Sprintf("msgpack:%q", f.wire)),
		})
	}
	return reflect.StructOf(fields)
}

// addFields adds the fields of a struct. flag is the bool that says whether these fields are present.
func (c *comparison) addFields(of reflect.Type, path, flag []int, byFlag bool) {
	for i := range of.NumField() {
		f := of.Field(i)
		wires, rest, _ := strings.Cut(f.Tag.Get("wire"), ",")
		options := strings.Split(rest, ",")
		at := append(slices.Clone(path), i)
		flag, byFlag := flag, byFlag
		for _, option := range options {
			if name, ok := strings.CutPrefix(option, "with="); ok {
				with, _ := of.FieldByName(name)
				flag, byFlag = append(slices.Clone(path), with.Index...), !slices.Contains(options, "omitzero")
			}
		}
		names := strings.Fields(wires)
		switch {
		case wires == "-" || f.Name == "_" || rest == "" && wires == "":
		case slices.Contains(options, "ext"):
			has, _ := of.FieldByName("HasExt")
			first := len(c.fields)
			c.addFields(f.Type, at, has.Index, false)
			c.fields[first].byFlag = true // The first field announces the extension.
		case slices.Contains(options, "inline"):
			c.addFields(f.Type, at, flag, byFlag)
		case len(names) > 1:
			for j, name := range names {
				c.addField(comparedField{wire: name, path: [][]int{append(slices.Clone(at), j)}, flag: flag}, f.Type.Field(j).Type)
			}
		default:
			last := len(c.fields) - 1
			if last >= 0 && c.fields[last].wire == wires { // A further element of the array.
				c.fields[last].path = append(c.fields[last].path, at)
				c.fields[last].library = reflect.TypeFor[[]uint64]()
				continue
			}
			c.addField(comparedField{wire: wires, path: [][]int{at}, flag: flag, byFlag: byFlag, options: options}, f.Type)
		}
	}
}

// libraryTypes maps our types to the types by which the library reads values. The library reads a value of any other
// type as any.
var libraryTypes = map[reflect.Type]reflect.Type{
	reflect.TypeFor[bool]():                  reflect.TypeFor[*bool](),
	reflect.TypeFor[uint16]():                reflect.TypeFor[*uint64](),
	reflect.TypeFor[uint32]():                reflect.TypeFor[*uint64](),
	reflect.TypeFor[uint64]():                reflect.TypeFor[*uint64](),
	reflect.TypeFor[int64]():                 reflect.TypeFor[*uint64](),
	reflect.TypeFor[[]byte]():                reflect.TypeFor[*string](),
	reflect.TypeFor[[][]byte]():              reflect.TypeFor[[]string](),
	reflect.TypeFor[[]uint64]():              reflect.TypeFor[[]uint64](),
	reflect.TypeFor[[]int64]():               reflect.TypeFor[[]int64](),
	reflect.TypeFor[protocol.UUID]():         reflect.TypeFor[*string](),
	reflect.TypeFor[[]protocol.UUID]():       reflect.TypeFor[[]string](),
	reflect.TypeFor[protocol.PullID]():       reflect.TypeFor[*string](),
	reflect.TypeFor[[]protocol.PullID]():     reflect.TypeFor[[]string](),
	reflect.TypeFor[protocol.Format]():       reflect.TypeFor[*uint64](),
	reflect.TypeFor[protocol.Shape]():        reflect.TypeFor[[]uint64](),
	reflect.TypeFor[protocol.Dtype]():        reflect.TypeFor[*string](),
	reflect.TypeFor[protocol.OpType]():       reflect.TypeFor[*string](),
	reflect.TypeFor[protocol.CommandType]():  reflect.TypeFor[*string](),
	reflect.TypeFor[protocol.P2PErrorCode](): reflect.TypeFor[*uint64](),
	reflect.TypeFor[[]protocol.ChunkHash]():  reflect.TypeFor[[]any](),
}

func (c *comparison) addField(f comparedField, goType reflect.Type) {
	f.library = libraryTypes[goType]
	element := goType
	if goType.Kind() == reflect.Slice {
		element = goType.Elem()
	}
	switch {
	case f.library != nil:
	case element.Kind() == reflect.Struct && isTagged(element):
		inner := &comparison{}
		inner.addFields(element, nil, nil, false)
		f.library = inner.structOf()
		if goType.Kind() == reflect.Slice {
			f.library = reflect.SliceOf(f.library)
		}
	default:
		f.library = reflect.TypeFor[any]()
	}
	c.fields = append(c.fields, f)
}

// isTagged reports whether a struct is a map on the wire.
func isTagged(t reflect.Type) bool { return t.NumField() > 0 && t.Field(0).Tag.Get("wire") != "" }

// compareFields compares the fields of ours with the fields of the library's struct, which begin at index first.
func (c *comparison) compareFields(ours, library reflect.Value, first int) error {
	for i, f := range c.fields {
		theirs := library.Field(first + i)
		absent := theirs.IsZero()
		if f.flag != nil && !ours.FieldByIndex(f.flag).Bool() {
			if f.byFlag && !absent && !slices.Contains(f.options, "as=successor") {
				return fmt.Errorf("%s is there for the library alone", f.wire)
			}
			continue // Without its flag, the decoder drops the field.
		}
		var got, want string
		switch value := ours.FieldByIndex(f.path[0]); {
		case len(f.path) > 1:
			array := make([]any, len(f.path))
			for j, path := range f.path {
				array[j] = ours.FieldByIndex(path).Interface()
			}
			got, want = fmt.Sprint(array), fmt.Sprint(theirs.Interface())
		case value.Type() == reflect.TypeFor[[]protocol.Holder]():
			continue // Misses are left out of ours.
		case value.Kind() == reflect.Struct && isTagged(value.Type()):
			if err := compareMap(value, theirs); err != nil {
				return fmt.Errorf("%s: %w", f.wire, err)
			}
		case value.Kind() == reflect.Slice && value.Type().Elem().Kind() == reflect.Struct && isTagged(value.Type().Elem()):
			got, want = fmt.Sprint(value.Len()), fmt.Sprint(theirs.Len())
			for j := range min(value.Len(), theirs.Len()) {
				if err := compareMap(value.Index(j), theirs.Index(j)); err != nil {
					return fmt.Errorf("%s[%d]: %w", f.wire, j, err)
				}
			}
		default:
			got, want = valueText(value, f.options), libraryText(value, theirs, f.options)
		}
		if got != want {
			return fmt.Errorf("%s: ours %s, the library's %s", f.wire, got, want)
		}
	}
	return nil
}

// compareMap compares a map inside a message.
func compareMap(ours, library reflect.Value) error {
	inner := &comparison{}
	inner.addFields(ours.Type(), nil, nil, false)
	return inner.compareFields(ours, library, 0)
}

// valueText returns a value of ours as text.
func valueText(v reflect.Value, options []string) string {
	switch x := v.Interface().(type) {
	case []byte:
		return string(x)
	case [][]byte:
		return fmt.Sprintf("%q", x)
	case protocol.Shape:
		return fmt.Sprint(x.Dims[:x.N])
	case protocol.Format:
		return fmt.Sprint(uint64(x))
	case protocol.P2PErrorCode:
		return fmt.Sprint(uint64(x))
	case uint64:
		if slices.Contains(options, "as=successor") {
			return fmt.Sprint(x + 1)
		}
	}
	return fmt.Sprint(v.Interface())
}

// libraryText returns the value that the library read as text, in the form of the text of a value of ours.
func libraryText(ours, library reflect.Value, options []string) string {
	if library.IsZero() {
		for _, option := range options {
			if value, ok := strings.CutPrefix(option, "default="); ok {
				return value
			}
		}
		return valueText(reflect.Zero(ours.Type()), nil)
	}
	if library.Kind() == reflect.Pointer {
		library = library.Elem()
	}
	switch ours.Interface().(type) {
	case float64:
		return fmt.Sprint(toFloat(library.Interface()))
	case [][]byte:
		return fmt.Sprintf("%q", library.Interface())
	case protocol.UUID, []protocol.UUID:
		return strings.ToLower(fmt.Sprint(library.Interface()))
	case protocol.Dtype: // The decoder also reads the old names.
		switch name := library.String(); name {
		case "fp8":
			return "uint8"
		case "fp8_e4m3":
			return "fp8_e4m3fn"
		}
	}
	return fmt.Sprint(library.Interface())
}

// toFloat converts a number of any type that the library read.
func toFloat(v any) float64 {
	switch x := reflect.ValueOf(v); {
	case x.CanFloat():
		return x.Float()
	case x.CanInt():
		return float64(x.Int())
	case x.CanUint():
		return float64(x.Uint())
	}
	return 0
}
