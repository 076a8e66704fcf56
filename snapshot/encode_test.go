package snapshot

import (
	"bytes"
	"encoding/binary"
	"errors"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// A forest is a state with everything that can be encoded.
type forest struct {
	settings *int `snap:"share"` // in place: the decoder leaves it
	Names    []string
	Grove    grove
	Rows     []tree
	Fixed    [2]tree
	First    *tree
	Same     *tree // may be First
	ByName   map[string]*tree
	Scratch  []byte `snap:"scratch"`
}

type tree struct {
	Live  bool `snap:"life"`
	Age   uint64
	On    bool
	Limit *limit    `snap:"share"` // behind slices and pointers: encoded
	Text  string    `snap:"skip"`
	Next  *tree     `snap:"skip"` // may be a cycle, which has no hash
	Room  [3]uint16 `snap:"scratch"`
}

type limit struct{ Of []uint32 }

func drawTree(t *rapid.T, limits []*limit) tree {
	return tree{Live: rapid.Bool().Draw(t, "live"), Age: rapid.Uint64().Draw(t, "age"), On: rapid.Bool().Draw(t, "on"),
		Limit: rapid.SampledFrom(limits).Draw(t, "limit"), Text: rapid.StringN(0, 5, 9).Draw(t, "text"), Room: [3]uint16{1, 2, 3}}
}

func drawForest(t *rapid.T) *forest {
	f := &forest{settings: new(int), Grove: *drawGrove(t), Scratch: []byte{1}}
	limits := []*limit{nil, {}, {Of: []uint32{rapid.Uint32().Draw(t, "of")}}}
	for range rapid.IntRange(0, 3).Draw(t, "rows") {
		f.Rows = append(f.Rows, drawTree(t, limits))
		f.Names = append(f.Names, rapid.StringN(0, 4, 8).Draw(t, "name"))
	}
	if rapid.Bool().Draw(t, "empty") {
		f.Names, f.ByName = []string{}, map[string]*tree{}
	}
	f.Fixed[1] = drawTree(t, limits)
	if rapid.Bool().Draw(t, "first") {
		own := drawTree(t, limits)
		f.First, f.Same = &own, &own
		own.Next = &own // a cycle
		f.ByName = map[string]*tree{"a": &own, "b": nil, rapid.StringN(1, 3, 6).Draw(t, "entry"): {Age: 7}}
	}
	return f
}

// memoryMax is more than any state of these tests needs.
const memoryMax = 1 << 20

// A state that is decoded over another one, whatever that is, equals the one that was encoded: it hashes alike and is
// encoded as the same bytes. It shares no memory, and the shared parts in place are those of the other.
func TestDecode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := New(groveRules()...)
		from, into := drawForest(t), drawForest(t)
		settings := into.settings
		b := Encode(w, []byte("ahead"), from)[len("ahead"):]
		if err := Decode(w, into, b, memoryMax); err != nil {
			t.Fatalf("%+v: %v", from, err)
		}
		if again := Encode(w, nil, into); !bytes.Equal(again, b) {
			t.Fatalf("encoded as\n%x and then as\n%x", b, again)
		}
		if Hash(w, from) != Hash(w, into) || into.settings != settings || into.Scratch != nil {
			t.Fatalf("%+v was decoded as %+v", from, into)
		}
		if (from.Names == nil) != (into.Names == nil) || (from.ByName == nil) != (into.ByName == nil) {
			t.Fatal("an empty slice or map became nil, or nil became empty")
		}
		if into.First != into.Same || into.First != nil && (into.First.Next != into.First || into.First == from.First ||
			into.First.Room != [3]uint16{}) {
			t.Fatal("pointers that were the same are not, or lead into the state that was encoded")
		}
		for i := range from.Rows {
			a, b := from.Rows[i].Limit, into.Rows[i].Limit
			if !reflect.DeepEqual(a, b) || a != nil && a == b {
				t.Fatal("a shared part of a row is not as it was, or not encoded")
			}
		}
		// A change of anything that a clone has is in the bytes.
		from.Grove.Fixed[1].On = !from.Grove.Fixed[1].On
		if bytes.Equal(Encode(w, nil, from), b) {
			t.Fatal("two states have the same bytes")
		}
	})
}

// The encoding of a state is that of its clone, so that neither padding nor addresses are in it.
func TestEncodingOfAClone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, f := New(groveRules()...), drawForest(t)
		if b := Encode(w, nil, f); !bytes.Equal(Encode(w, nil, Clone(w, f)), b) {
			t.Fatalf("a clone of %+v is encoded otherwise", f)
		}
	})
}

// What no state has as its bytes is an error, with the place and the reason.
func TestDecodeRefuses(t *testing.T) {
	type list struct {
		Next *list
		Kind animal
		On   bool
	}
	w := New(groveRules()...)
	deep := bytes.Repeat([]byte{1}, decodeDepthMax+1)
	for _, c := range []struct {
		b    []byte
		said string
	}{
		{nil, "a number is incomplete"},
		{[]byte{0, 0}, "1 bytes are missing"},
		{[]byte{0, 0, 2}, "byte 3 of the state: a bool is 2"},
		{[]byte{0, 0, 1, 0}, "byte 3 of the state: 1 bytes follow"},
		{[]byte{0x80, 0}, "longer than necessary"},
		{[]byte{9, 0, 0}, "a pointer leads to target 7"},
		{[]byte{0, 3, 1, 0}, "has the implementation 3 of 2"},
		{[]byte{0, 1, 2, 0}, "a pointer leads to target 0"}, // the target is a list, and not a cat
		{deep, "nested more than"},
	} {
		var l list
		err := Decode(w, &l, c.b, memoryMax)
		var as *DecodeError
		if !errors.As(err, &as) || !strings.Contains(err.Error(), c.said) {
			t.Errorf("%x: %v, want %q", c.b[:min(len(c.b), 8)], err, c.said)
		}
	}
	var l list
	if err := Decode(w, &l, []byte{2, 0, 1}, memoryMax); err != nil || l.Next != &l {
		t.Errorf("a pointer to the root: %v", err)
	}
	type big struct {
		Rooms  [][1 << 10]byte
		Words  []uint64
		Units  []struct{}
		Unused []tree
		Keys   map[string]bool
	}
	huge := binary.AppendUvarint(nil, 1<<40)
	for _, c := range []struct {
		b    []byte
		said string
	}{
		{huge, "is longer than the rest"},
		{append([]byte{0}, huge...), "is longer than the rest"},
		{append([]byte{0, 0}, huge...), "more memory than is allowed"},
		{append([]byte{0, 0, 0}, huge...), "more memory than is allowed"},
		{append([]byte{0, 0, 0, 0}, huge...), "more memory than is allowed"},
		{[]byte{0, 0, 0, 0, 3, 1, 'b', 0, 1, 'a', 0}, "not in order"},
		{[]byte{0, 0, 0, 0, 3, 1, 'b', 0, 1, 'b', 0}, "not in order"},
	} {
		var x big
		if err := Decode(w, &x, c.b, memoryMax); err == nil || !strings.Contains(err.Error(), c.said) {
			t.Errorf("%x: %v, want %q", c.b, err, c.said)
		}
	}
}

// Types that cannot be encoded are found when the first value is encoded.
func TestEncodeOfWrongTypes(t *testing.T) {
	for name, encode := range map[string]func(w *Walker){
		"a function": func(w *Walker) { Encode(w, nil, &struct{ F func() }{}) },
		"a shared channel in a slice": func(w *Walker) {
			Encode(w, nil, &[]struct {
				C chan int `snap:"share"`
			}{})
		},
		"an interface without a rule":   func(w *Walker) { Encode(w, nil, &struct{ A any }{}) },
		"a map whose keys are pointers": func(w *Walker) { Encode(w, nil, &map[*int]int{}) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s was encoded", name)
				}
			}()
			encode(New())
		}()
	}
	Encode(New(), nil, &struct {
		C chan int `snap:"share"`
		F func()   `snap:"scratch"`
	}{})
}

// The layout of a type changes with its fields, their order, their types and their tags, and with the types behind pointers.
func TestLayoutHash(t *testing.T) {
	type in struct{ X uint32 }
	type in2 struct{ Y uint32 }
	w := New()
	seen := map[uint64]string{}
	add := func(name string, hash uint64) {
		if other, ok := seen[hash]; ok {
			t.Errorf("%s and %s have the same layout", name, other)
		}
		seen[hash] = name
	}
	add("two numbers", LayoutHash[struct{ A, B uint32 }](w))
	add("in another order", LayoutHash[struct{ B, A uint32 }](w))
	add("of other types", LayoutHash[struct{ A, B int32 }](w))
	add("one not encoded", LayoutHash[struct {
		A uint32
		B uint32 `snap:"scratch"`
	}](w))
	add("behind a pointer", LayoutHash[struct{ P *in }](w))
	add("behind a pointer, another", LayoutHash[struct{ P *in2 }](w))
	add("within", LayoutHash[struct{ P in }](w))
	add("within, another", LayoutHash[struct{ P in2 }](w))
	if a, b := LayoutHash[forest](New(groveRules()...)), LayoutHash[forest](New(groveRules()...)); a != b {
		t.Error("a layout has two hashes")
	}
}

// FuzzDecode decodes bytes from anywhere as a state. What is accepted is encoded as the same bytes again, and what is
// refused has not cost more memory than is allowed.
func FuzzDecode(f *testing.F) {
	w := New(groveRules()...)
	own := &tree{Age: 1 << 40, On: true, Text: "text", Limit: &limit{Of: []uint32{1, 2}}}
	own.Next = own
	for _, seed := range []*forest{
		{},
		{Names: []string{"a", "", "b"}, Rows: []tree{{Live: true, Limit: own.Limit}, {Limit: own.Limit}}},
		{First: own, Same: own, ByName: map[string]*tree{"x": own, "y": {Age: 3}, "z": nil}},
		{Grove: grove{Leaves: []leaf{{Name: "n", Bytes: []byte{1, 2}, Count: -1, On: true}}, Nested: [][]uint16{nil, {}, {1}},
			A: &shared{7}, Lives: &bird{Names: []string{"kiwi"}}, ByKey: map[uint32]leaf{1: {}, 1 << 30: {Name: "late"}}}},
	} {
		f.Add(Encode(w, nil, seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		var into forest
		err := Decode(w, &into, b, memoryMax)
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; got > 4*memoryMax {
			t.Errorf("decoding %d bytes took %d bytes of memory", len(b), got)
		}
		if err == nil && !bytes.Equal(Encode(w, nil, &into), b) {
			t.Errorf("%x was accepted, and is encoded as %x", b, Encode(w, nil, &into))
		}
	})
}
