package snapshot

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

type code uint8

type odd struct {
	Name   []byte
	Token  [16]byte
	Body   []byte
	code   code
	loop   *odd
	live   bool `snap:"life"`
	many   []odd
	seed   uint64
	used   int `snap:"scratch"`
	hidden leaf
	m      map[int]int
	f      func()
	long   string
	any    any
}

var telling = DescribeOptions{
	MaxBytes: 1 << 20, SecretTypes: map[reflect.Type]bool{reflect.TypeFor[leaf](): true}, SecretWords: []string{"seed"},
	Texts: map[reflect.Type]func(reflect.Value) string{
		reflect.TypeFor[code](): func(v reflect.Value) string { return strings.Repeat("!", int(v.Uint())) },
	},
}

// Whatever is told is JSON, ends, and says what is text and how the rest begins.
func TestTell(t *testing.T) {
	o := odd{Name: []byte("a key"), Token: [16]byte{1, 2, 3, 4, 5, 6}, Body: []byte{0x82, 1, 2, 3, 9, 9},
		code: 3, live: true, seed: 0xdeadbeef, used: 4711, hidden: leaf{Name: "hush"},
		m: map[int]int{1: 1}, f: func() {}, long: strings.Repeat("x", 1000), any: 7}
	o.loop = &o
	o.many = []odd{{}, {long: "dead"}, {long: "lives", live: true}}
	got := Describe(&o, telling)
	if !json.Valid(got) {
		t.Fatalf("%s", got)
	}
	text := string(got)
	for _, want := range []string{`"Name":"a key"`, `"Token":"01020304.. (16 bytes)"`, `"Body":"82010203.. (6 bytes)"`,
		`"code":"!!!"`, `"lives"`, `"seed":"left out"`, `"hidden":"left out"`, `(1000 bytes)`, `"m":"1 entries"`} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is not in %.600s", want, text)
		}
	}
	for _, not := range []string{"dead", "3735928559", "hush", "4711"} {
		if strings.Contains(text, not) {
			t.Errorf("%s is told", not)
		}
	}
}

// What lives is said beside it, piece by piece.
func TestTellBeside(t *testing.T) {
	type flag struct {
		live bool `snap:"life"`
	}
	type pair struct {
		flags  struct{ pieces [][]flag }
		values [][]string `snap:"beside"`
		others [][]string
		ended  []flag
		bytes  []byte `snap:"beside"` // They are text, and no elements.
		after  []string
	}
	p := pair{ended: []flag{{false}}, bytes: []byte("text"), after: []string{"behind"}}
	p.flags.pieces = [][]flag{{{true}, {false}}, {{false}, {true}}}
	p.values = [][]string{{"first", "dead"}, {"dead", "last"}}
	p.others = [][]string{{"other", "other"}}
	text := string(Describe(&p, telling))
	if strings.Contains(text, "dead") || !strings.Contains(text, `"first"`) || !strings.Contains(text, `"1":"last"`) ||
		strings.Count(text, "other") != 3 || !strings.Contains(text, `"behind"`) {
		t.Errorf("told %s", text)
	}
}

// What is told is bounded, and what cannot be told is said to be so.
func TestTellEnds(t *testing.T) {
	var large []odd
	for range 3 * elementsMax {
		large = append(large, odd{live: true, Name: []byte("name")})
	}
	few := telling
	few.MaxBytes = 1000
	if b := Describe(large, few); !json.Valid(b) || len(b) > 2000 {
		t.Errorf("%d bytes for 1000: %.200s", len(b), b)
	}
	if b := Describe(large, telling); strings.Count(string(b), "name") != elementsMax || !json.Valid(b) {
		t.Errorf("%d elements told", strings.Count(string(b), "name"))
	}
	broken := telling
	no := func(reflect.Value) string { panic("no") }
	broken.Texts = map[reflect.Type]func(reflect.Value) string{reflect.TypeFor[int](): no}
	if b := Describe(7, broken); string(b) != `"it cannot be told: no"` {
		t.Errorf("%s", b)
	}
	if b := Describe(nil, telling); string(b) != "null" {
		t.Errorf("%s", b)
	}
}
