package snapshot

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"unsafe"
)

type config struct{ Names []string }

// kit is what rows embed.
type kit struct {
	Attempt uint64 `snap:"past"`
	timer   uint32 `snap:"set"`
	mem     []byte `snap:"scratch"`
}

type row struct {
	kit
	Live  bool `snap:"life"`
	Lanes [2]kit
	Cfg   *config  `snap:"share"`
	Idle  []uint16 `snap:"skip"`
	At    instant
	Due   int64 `snap:"due"`
	List  []kit
}

type rows struct {
	Rows  []row
	Boxes []box[int]
	Other []box[string]
}

type box[T any] struct {
	In  T
	Out []T
}

func newRows() *rows {
	cfg := &config{Names: []string{"a"}}
	k := func(n uint64) kit { return kit{Attempt: n, timer: uint32(n), mem: []byte{byte(n)}} }
	return &rows{
		Rows: []row{
			{kit: k(1), Live: true, Lanes: [2]kit{k(2), k(3)}, Cfg: cfg, Idle: []uint16{1}, At: 4, Due: 5, List: []kit{k(6)}},
			{kit: k(7), Lanes: [2]kit{k(8), k(9)}, Cfg: cfg, Idle: []uint16{2}, At: 10, Due: 11},
		},
		Boxes: []box[int]{{In: 1}}, Other: []box[string]{{In: "x"}},
	}
}

func tagRules() []Rule {
	return []Rule{
		{Word: "over", OverridesType: true, Hash: func(*Hasher, unsafe.Pointer) {}},
		{Word: "due", Hash: func(h *Hasher, p unsafe.Pointer) { h.Word(uint64(*(*int64)(p) / 10)) }},
	}
}

// What a clone gets to itself and what it does not, as the tags say, embedded ones as well.
func TestTagsOfClones(t *testing.T) {
	w, from := New(tagRules()...), newRows()
	to := Clone(w, from)
	a, b := &from.Rows[0], &to.Rows[0]
	for _, k := range []*kit{&b.kit, &b.Lanes[1], &b.List[0]} {
		if k.mem != nil || k.Attempt == 0 || k.timer == 0 {
			t.Errorf("a kit of the clone is %+v", *k)
		}
	}
	if a.mem == nil || a.Cfg != b.Cfg || &a.Idle[0] == &b.Idle[0] || b.Idle[0] != 1 || b.Due != a.Due {
		t.Errorf("cloned %+v as %+v", a, b)
	}
	if Hash(w, from) != Hash(w, to) {
		t.Error("a clone hashes otherwise")
	}
}

// What counts of a row, and what does not, as the tags say.
func TestTagsOfHashes(t *testing.T) {
	for name, c := range map[string]struct {
		change func(r *rows)
		counts bool
	}{
		"a plain field":            {func(r *rows) { r.Rows[0].At++ }, true},
		"an embedded one":          {func(r *rows) { r.Rows[0].Attempt++ }, true},
		"one in a slice":           {func(r *rows) { r.Rows[0].List[0].Attempt++ }, true},
		"set and set":              {func(r *rows) { r.Rows[0].timer = 1 << 30 }, false},
		"set and not set":          {func(r *rows) { r.Rows[0].timer = 0 }, true},
		"a lane that is not set":   {func(r *rows) { r.Rows[0].Lanes[1].timer = 0 }, true},
		"scratch":                  {func(r *rows) { r.Rows[0].mem = nil }, false},
		"what is shared":           {func(r *rows) { r.Rows[0].Cfg = nil }, false},
		"what is skipped":          {func(r *rows) { r.Rows[0].Idle[0]++ }, false},
		"a word's":                 {func(r *rows) { r.Rows[0].Due = 15 }, true},
		"a word's, the same to it": {func(r *rows) { r.Rows[0].Due = 7 }, false},
		"the flag of a life":       {func(r *rows) { r.Rows[0].Live = false }, true},
		"what is of no life":       {func(r *rows) { r.Rows[1].At++; r.Rows[1].Attempt++; r.Rows[1].Due = 99 }, false},
	} {
		w, r := New(tagRules()...), newRows()
		was := Hash(w, r)
		c.change(r)
		if counted := Hash(w, r) != was; counted != c.counts {
			t.Errorf("%s: counts is %v", name, counted)
		}
	}
}

// Past sees what the next life of a slot goes on from, in embedded structs and arrays too,
// and nothing else.
func TestPast(t *testing.T) {
	w := New(tagRules()...)
	past := w.PastHash(reflect.TypeFor[row]())
	sum := func(r row) uint64 {
		h := Hasher{w: w}
		past(&h, unsafe.Pointer(&r))
		return h.Sum()
	}
	r := newRows().Rows[0]
	was := sum(r)
	r.At, r.Live, r.List = 0, false, nil
	if sum(r) != was {
		t.Error("what has no tag counts")
	}
	r.Lanes[1].Attempt++
	if sum(r) == was {
		t.Error("the attempt of a lane does not count")
	}
	r.Lanes[1].Attempt--
	r.Attempt++
	if sum(r) == was {
		t.Error("an embedded attempt does not count")
	}
	if w.PastHash(reflect.TypeFor[leaf]()) != nil {
		t.Error("a type without the tag has a past")
	}
}

// A rule for a generic type is for each instantiation that has none of its own.
func TestGenericRule(t *testing.T) {
	none := func(*Hasher, unsafe.Pointer) {}
	length := func(h *Hasher, p unsafe.Pointer) { h.Word(uint64(len((*box[string])(p).In))) }
	w := New(append(tagRules(),
		Rule{Type: reflect.TypeFor[box[bool]](), Generic: true, Hash: none},
		Rule{Type: reflect.TypeFor[box[string]](), Hash: length},
		Rule{Type: reflect.TypeFor[leaf]()})...)
	r := newRows()
	was := Hash(w, r)
	r.Boxes[0].In++
	r.Other[0].In = "y"
	if Hash(w, r) != was {
		t.Error("a rule for the type was not kept")
	}
	r.Other[0].In = "yy"
	if Hash(w, r) == was {
		t.Error("the rule for one instantiation did not go before")
	}
	if unused := w.UnusedRules(); !slices.Equal(unused, []string{`snap:"over"`, "snapshot.leaf"}) {
		t.Errorf("unused rules: %v", unused)
	}
}

type badWord struct {
	X int `snap:"skipp"`
}
type badSet struct {
	X string `snap:"set"`
}
type badLife struct {
	X int `snap:"life"`
}
type badLives struct {
	X bool `snap:"life"`
	Y bool `snap:"life"`
}
type badBoth struct {
	X instant `snap:"due"`
}
type badPast struct {
	X []int `snap:"past"`
}
type badFunc struct {
	X []func() `snap:"skip"`
}
type badChan struct{ X map[int]chan int }
type badAny struct{ X *any }
type fine struct {
	A func() `snap:"share"`
	B any    `snap:"scratch"`
	C *struct {
		badWord *badWord `snap:"share"` // what clones share is not looked into
	}
	D instant `snap:"skip"`
	E []*fine
	F int64   `snap:"due"`
	G *int    `snap:"skip"`
	H instant `snap:"over"`
}

// The check of types names each fault by its field; a walk does not get past the first two.
func TestCheck(t *testing.T) {
	w := New(append(tagRules(), Rule{Type: reflect.TypeFor[instant](), Hash: func(*Hasher, unsafe.Pointer) {}})...)
	for of, want := range map[reflect.Type]string{
		reflect.TypeFor[badWord]():            `badWord.X: nobody knows the word "skipp"`,
		reflect.TypeFor[badSet]():             `badSet.X: the word "set" is for numbers`,
		reflect.TypeFor[[2]badLife]():         `badLife.X: the word "life" is for a bool`,
		reflect.TypeFor[badLives]():           `badLives.Y: a second "life"`,
		reflect.TypeFor[map[string]badBoth](): `badBoth.X: the word "due" and the rule for snapshot.instant`,
		reflect.TypeFor[badPast]():            `badPast.X: the word "past" is for numbers`,
		reflect.TypeFor[badFunc]():            "badFunc.X: no clone can have a func() to itself",
		reflect.TypeFor[badChan]():            "badChan.X: no clone can have a chan int to itself",
		reflect.TypeFor[badAny]():             "badAny.X: no clone can have a interface {} to itself",
	} {
		if faults := w.CheckTags(of); len(faults) != 1 || !strings.Contains(faults[0], want) {
			t.Errorf("%s: found %q, want one with %q", of, faults, want)
		}
	}
	// One that go vet would not let stand in a type.
	form := reflect.StructOf([]reflect.StructField{{Name: "X", Type: reflect.TypeFor[int](), Tag: "snap: \"skip\""}})
	if faults := w.CheckTags(reflect.SliceOf(form)); len(faults) != 1 || !strings.Contains(faults[0], "the tag") {
		t.Errorf("of a tag without its form found %q", faults)
	}
	if faults := w.CheckTags(reflect.TypeFor[fine]()); len(faults) > 0 {
		t.Errorf("found %q", faults)
	}
	for _, of := range []reflect.Type{reflect.TypeFor[badWord](), reflect.TypeFor[badSet](), reflect.TypeFor[badLife]()} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("a %s was hashed", of)
				}
			}()
			w.hashPlanOf(of)
		}()
	}
}
