package foreign

import (
	"bytes"
	"fmt"
	"reflect"
	"testing"

	"github.com/vmihailenco/msgpack/v5"
	"pgregory.net/rapid"
)

// counted decides by a fixed sequence.
func counted(n uint64) Draw {
	return func(below int) int {
		n = n*6364136223846793005 + 1442695040888963407
		return int(n >> 33 % uint64(below))
	}
}

// What a stranger says is one name and one value each, in itself whole.
func TestStrangersAreWhole(t *testing.T) {
	for i, value := range append(append([]string{}, unknownNames...), unknownValues...) {
		e := encoder{in: []byte(value)}
		if e.skipValue(1); e.failed || e.off != len(value) {
			t.Errorf("%x is not one value: %d bytes taken", value, e.off)
		}
		if i < len(unknownNames) && !isText(value[0]) {
			t.Errorf("%x is no name", value)
		}
	}
}

// anything is what a message may hold, as another encoder writes it.
func anything(t *rapid.T, depth int) any {
	kinds := 7
	if depth == 0 {
		kinds = 5
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return rapid.Uint64().Draw(t, "uint")
	case 1:
		return rapid.Int64().Draw(t, "int")
	case 2:
		return rapid.StringN(0, 300, 1000).Draw(t, "text")
	case 3:
		return rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "bytes")
	case 4:
		return rapid.Bool().Draw(t, "bool")
	case 5:
		list := make([]any, rapid.IntRange(0, 20).Draw(t, "count"))
		for i := range list {
			list[i] = anything(t, depth-1)
		}
		return list
	default:
		fields := map[string]any{}
		for i := range rapid.IntRange(0, 20).Draw(t, "fields") {
			fields[fmt.Sprint("field ", i)] = anything(t, depth-1)
		}
		return fields
	}
}

// generic reads as another reader does, with all numbers alike.
func generic(t *rapid.T, b []byte) any {
	d := msgpack.NewDecoder(bytes.NewReader(b))
	d.UseLooseInterfaceDecoding(true)
	v, err := d.DecodeInterface()
	if err != nil {
		t.Fatalf("%x: %v", b, err)
	}
	return alike(v)
}

// alike takes integers by their value.
func alike(v any) any {
	switch v := v.(type) {
	case uint64:
		return fmt.Sprint(v)
	case int64:
		return fmt.Sprint(v)
	case []any:
		for i := range v {
			v[i] = alike(v[i])
		}
	case map[string]any:
		for name := range v {
			v[name] = alike(v[name])
		}
	}
	return v
}

// Another reader takes what is written for what it was; and every form is written by somebody.
func TestAnotherReaderReadsTheSame(t *testing.T) {
	leads := map[byte]bool{}
	rapid.Check(t, func(t *rapid.T) {
		fields := map[string]any{}
		for i := range rapid.IntRange(0, 20).Draw(t, "fields") {
			fields[fmt.Sprint("field ", i)] = anything(t, 2)
		}
		b, err := msgpack.Marshal(fields)
		if err != nil {
			t.Fatal(err)
		}
		forms := Forms(rapid.Uint8Range(0, uint8(Unknown-1)).Draw(t, "forms"))
		seed := rapid.Uint64().Draw(t, "choices")
		written, ok := Append([]byte("before"), b, forms, counted(seed))
		if !ok {
			t.Fatalf("%x is refused", b)
		}
		written, ok = bytes.CutPrefix(written, []byte("before"))
		if !ok || !reflect.DeepEqual(generic(t, written), generic(t, b)) {
			t.Fatalf("%x is written as %x", b, written)
		}
		e := encoder{in: written, out: nil, draw: counted(0), repeatField: noField}
		note(&e, leads)
		if twice, ok := Append(nil, written, forms, counted(seed)); forms == 0 && (!ok || !bytes.Equal(twice, written)) {
			t.Fatalf("%x is written as %x without a choice", written, twice)
		}
	})
	if testing.Short() {
		return // Too few were drawn to have all forms for certain.
	}
	for _, lead := range []byte("\xcc\xcd\xce\xcf\xd0\xd1\xd2\xd3\xc4\xc5\xc6\xd9\xda\xdb\xdc\xdd\xde\xdf") {
		if !leads[lead] {
			t.Errorf("nothing was ever written as %x", lead)
		}
	}
}

// note notes the first byte of each value.
func note(e *encoder, leads map[byte]bool) {
	c, ok := e.peekByte(1)
	if !ok {
		return
	}
	leads[c] = true
	n := 0
	switch {
	case isList(c):
		n = e.readCount(0x90, 0xdc)
	case isMap(c):
		n = 2 * e.readCount(0x80, 0xde)
	default:
		e.skipValue(1)
	}
	for ; n > 0; n-- {
		note(e, leads)
	}
}

// What is no message is nobody's: never a panic, and nothing is appended.
func TestOtherBytesAreRefused(t *testing.T) {
	for _, b := range []string{
		"", "\x01", "\x91\x80", "\x81", "\x81\xa1a", "\xdf\xff\xff\xff\xff", "\x81\xa1a\xdb\xff\xff\xff\xff",
		"\x80\x00", "\x81\xa1a\xc1",
	} {
		for _, forms := range []Forms{0, All} {
			if got, ok := Append(nil, []byte(b), forms, counted(1)); ok || got != nil {
				t.Errorf("%x is written as %x", b, got)
			}
			if got, field, ok := Repeat(nil, []byte(b), forms, counted(1)); ok || got != nil || field != "" {
				t.Errorf("%x is written as %x", b, got)
			}
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		b := append([]byte{0x82}, rapid.SliceOfN(rapid.Byte(), 0, 60).Draw(t, "bytes")...)
		Append(nil, b, All, counted(1))
		Repeat(nil, b, All, counted(2))
	})
}

// The lists of a reply tell by their order of which revision it is, where they name no buffers.
func TestTheListsOfAReplyKeepTheirOrder(t *testing.T) {
	sync := []byte("\x83\xa4type\xadAllocResponse\xb4already_sent_indexes\x90\xaeremote_indexes\x90")
	for seed := range uint64(100) {
		b, ok := Append(nil, sync, Order, counted(seed))
		sent, pages := bytes.Index(b, []byte("already")), bytes.Index(b, []byte("remote"))
		if !ok || sent < 0 || pages < sent {
			t.Fatalf("%q", b)
		}
	}
}
