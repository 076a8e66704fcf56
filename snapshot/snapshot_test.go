package snapshot

import (
	"reflect"
	"slices"
	"testing"
	"unsafe"

	"pgregory.net/rapid"
)

type leaf struct {
	Name  string
	Bytes []byte
	Count int32
	On    bool
}

type shared struct{ N int }

type root struct {
	Leaves []leaf
	Fixed  [2]leaf
	A, B   *shared // may be the same
	Self   *root
	ByKey  map[uint32]leaf
	Nested [][]uint16
	Memory []uint64       `snap:"scratch"` // of no use after a step
	Cache  map[string]int `snap:"share"`
	At     instant
	now    *int64 `snap:"share"`
	Do     func() `snap:"share"`
}

type instant int64

// animal is an interface; what is in it are pointers.
type animal interface{ legs() int }

type cat struct{ Lost int }

type bird struct{ Names []string }

func (c *cat) legs() int { return 4 - c.Lost }

func (b *bird) legs() int { return 2 }

// TestInterface: of what is in an interface a clone has its own, and hashes tell its type and its value.
func TestInterface(t *testing.T) {
	type zoo struct{ First, Second, Third animal }
	w := New(Rule{Type: reflect.TypeFor[animal](), Implementations: []reflect.Type{reflect.TypeFor[*cat](), reflect.TypeFor[*bird]()}})
	cats := &cat{}
	was := &zoo{First: cats, Second: cats}
	is := Clone(w, was)
	if is.First == was.First || is.First != is.Second || is.Third != nil || Hash(w, was) != Hash(w, is) {
		t.Error("a clone has not its own of what was in an interface, once")
	}
	was.First.(*cat).Lost = 1
	if is.First.legs() != 4 || Hash(w, was) == Hash(w, is) {
		t.Error("a clone changes with what it was made of, or its hash does")
	}
	if Hash(w, &zoo{First: &cat{}}) == Hash(w, &zoo{First: &bird{}}) || Hash(w, &zoo{}) == Hash(w, &zoo{Second: &bird{}}) {
		t.Error("hashes do not tell what is in an interface")
	}
	seen := map[reflect.Type]bool{}
	for owner := range w.Fields(reflect.TypeFor[zoo]()) {
		seen[owner] = true
	}
	if !seen[reflect.TypeFor[cat]()] || !seen[reflect.TypeFor[bird]()] || len(w.CheckTags(reflect.TypeFor[zoo]())) > 0 {
		t.Errorf("a walk reaches %v and finds %q", seen, w.CheckTags(reflect.TypeFor[zoo]()))
	}
	unnamed := New(Rule{Type: reflect.TypeFor[animal](), Implementations: []reflect.Type{reflect.TypeFor[*cat]()}})
	defer func() {
		if recover() == nil {
			t.Error("an interface with what its rule does not name was cloned")
		}
	}()
	Clone(unnamed, &zoo{First: &bird{}})
}

func drawLeaf(t *rapid.T) leaf {
	return leaf{Name: rapid.StringN(0, 4, 8).Draw(t, "name"), Bytes: rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "bytes"),
		Count: rapid.Int32().Draw(t, "count"), On: rapid.Bool().Draw(t, "on")}
}

func drawRoot(t *rapid.T) *root {
	r := &root{Fixed: [2]leaf{drawLeaf(t), drawLeaf(t)}, ByKey: map[uint32]leaf{}, Memory: []uint64{1},
		Cache: map[string]int{"a": 1}, now: new(int64)}
	for range rapid.IntRange(0, 4).Draw(t, "leaves") {
		r.Leaves = append(r.Leaves, drawLeaf(t))
		r.Nested = append(r.Nested, rapid.SliceOfN(rapid.Uint16(), 0, 3).Draw(t, "nested"))
		r.ByKey[rapid.Uint32Range(0, 9).Draw(t, "key")] = drawLeaf(t)
	}
	r.A = &shared{rapid.Int().Draw(t, "n")}
	r.B = r.A
	r.Self = r
	return r
}

func rules() []Rule {
	return []Rule{
		{Type: reflect.TypeFor[*root](), Hash: func(*Hasher, unsafe.Pointer) {}},
	}
}

// A clone equals its original, shares nothing of it that can change, keeps which pointers
// are the same, and hashes alike.
func TestClone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := New(rules()...)
		from := drawRoot(t)
		to := Clone(w, from)
		if to.A != to.B || to.A == from.A || to.Self != to {
			t.Fatal("pointers that were the same are not, or point to the original")
		}
		if to.Memory != nil || !reflect.DeepEqual(to.Cache, from.Cache) || to.now != from.now {
			t.Fatal("the rules for fields were not kept")
		}
		if Hash(w, from) != Hash(w, to) {
			t.Fatal("a clone hashes otherwise")
		}
		before := Hash(w, to)
		for i := range from.Leaves {
			from.Leaves[i].Count++
			for k := range from.Leaves[i].Bytes {
				from.Leaves[i].Bytes[k]++
			}
			for k := range from.Nested[i] {
				from.Nested[i][k]++
			}
		}
		from.Leaves = append(from.Leaves, leaf{})
		from.Fixed[1].On = !from.Fixed[1].On
		from.A.N++
		clear(from.ByKey)
		if Hash(w, to) != before {
			t.Fatal("the original still reaches into its clone")
		}
	})
}

// Every change of a value that is hashed changes the hash.
func TestHashSees(t *testing.T) {
	changes := map[string]func(*root){
		"a number":     func(r *root) { r.Leaves[0].Count++ },
		"a flag":       func(r *root) { r.Fixed[1].On = !r.Fixed[1].On },
		"a byte":       func(r *root) { r.Leaves[0].Bytes[1]++ },
		"a length":     func(r *root) { r.Nested = append(r.Nested, nil) },
		"a string":     func(r *root) { r.Leaves[0].Name = "y" },
		"a nil":        func(r *root) { r.A = nil },
		"behind one":   func(r *root) { r.B.N++ },
		"a map's key":  func(r *root) { r.ByKey[7] = leaf{} },
		"a map's leaf": func(r *root) { r.ByKey[3] = leaf{Count: 9} },
		"the instant":  func(r *root) { r.At++ },
	}
	make := func() *root {
		return &root{Leaves: []leaf{{Name: "x", Bytes: []byte{1, 2}}}, Nested: [][]uint16{{1}, {}}, A: &shared{1},
			B:     &shared{1},
			ByKey: map[uint32]leaf{3: {}}}
	}
	w := New(rules()...)
	was := Hash(w, make())
	for name, change := range changes {
		r := make()
		change(r)
		if Hash(w, r) == was {
			t.Errorf("%s does not count", name)
		}
	}
	r := make()
	r.Memory, r.Cache = []uint64{5}, map[string]int{"b": 2}
	if Hash(w, r) != was {
		t.Error("what a clone has not to itself counts")
	}
}

type bag struct {
	At     instant
	Leaves []leaf `snap:"bag"`
	None   int
}

// A rule of its own decides what counts of a type, a field's word goes before it, and order
// counts only where it is asked to.
func TestRules(t *testing.T) {
	now := int64(100)
	w := New(
		Rule{Type: reflect.TypeFor[instant](), Hash: func(h *Hasher, p unsafe.Pointer) {
			h.Word(uint64(*(*int64)(p) - now))
		}},
		Rule{Word: "bag", Compile: func(w *Walker, t reflect.Type) func(h *Hasher, p unsafe.Pointer) {
			return func(h *Hasher, p unsafe.Pointer) {
				total := uint64(0)
				for _, l := range *(*[]leaf)(p) {
					one := h.Fork()
					one.Value(t.Elem(), unsafe.Pointer(&l))
					total += one.Sum()
				}
				h.Word(total)
			}
		}},
		Rule{Type: reflect.TypeFor[string](), Skip: true},
		Rule{Type: reflect.TypeFor[uint8]()},
		Rule{Word: "nothing"},
	)
	a := &bag{At: 130, Leaves: []leaf{{Count: 1, Name: "a"}, {Count: 2}}}
	was := Hash(w, a)
	now = 200
	b := &bag{At: 230, Leaves: []leaf{{Count: 2}, {Count: 1, Name: "b"}}}
	if Hash(w, b) != was {
		t.Error("the same distance from now, the same bag, a skipped name: another hash")
	}
	b.Leaves[1].Count = 3
	if Hash(w, b) == was {
		t.Error("what is in a bag does not count")
	}
	if unused := w.UnusedRules(); !slices.Equal(unused, []string{`snap:"nothing"`, "uint8"}) {
		t.Errorf("unused rules: %v", unused)
	}
}

func BenchmarkClone(b *testing.B) {
	w := New()
	r := &root{Leaves: make([]leaf, 100), Nested: make([][]uint16, 50)}
	for b.Loop() {
		Clone(w, r)
	}
}
