package snapshot

import (
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

// A grove has all that can be compared without a hash.
type grove struct {
	Leaves []leaf
	Fixed  [2]leaf
	A, B   *shared
	Nested [][]uint16
	Memory []uint64 `snap:"scratch"`
	Lives  animal
	ByKey  map[uint32]leaf
}

func drawGrove(t *rapid.T) *grove {
	r := drawRoot(t)
	g := &grove{Leaves: r.Leaves, Fixed: r.Fixed, A: r.A, B: r.B, Nested: r.Nested, Memory: r.Memory}
	if rapid.Bool().Draw(t, "lives") {
		g.Lives = &bird{Names: []string{"a"}}
	}
	return g
}

func groveRules() []Rule {
	return []Rule{{Type: reflect.TypeFor[animal](),
		Implementations: []reflect.Type{reflect.TypeFor[*cat](), reflect.TypeFor[*bird]()}}}
}

// A clone over another is as one in memory of its own, whatever stood there before: equal, and apart.
func TestCloneOver(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := New(groveRules()...)
		var last *grove
		for range rapid.IntRange(1, 4).Draw(t, "clones") {
			from := drawGrove(t)
			last = CloneInto(w, last, from)
			want := Hash(w, from)
			if Hash(w, last) != want || last.Memory != nil || !reflect.DeepEqual(last.Leaves, from.Leaves) &&
				len(from.Leaves) > 0 {
				t.Fatalf("%+v was cloned as %+v", from, last)
			}
			for i := range last.Leaves { // Who has it may change it, and what is cloned over it stays right.
				last.Leaves[i].Count++
				for k := range last.Leaves[i].Bytes {
					last.Leaves[i].Bytes[k]++
				}
				last.Nested[i] = append(last.Nested[i], 1)
			}
			last.A.N++
			if Hash(w, from) != want {
				t.Fatal("who changes a clone changes what it was made of")
			}
			last.Leaves = append(last.Leaves, leaf{Bytes: []byte("a")})
		}
	})
}

// What is the same hashes alike; a clone is the same, and is not after any change that counts.
func TestSame(t *testing.T) {
	changes := []func(g *grove){
		func(g *grove) { g.Fixed[1].On = !g.Fixed[1].On },
		func(g *grove) { g.Fixed[0].Bytes = append(g.Fixed[0].Bytes, 0) },
		func(g *grove) { g.Leaves = append(g.Leaves, leaf{}) },
		func(g *grove) { g.Nested = append(g.Nested, []uint16{}) },
		func(g *grove) { g.A.N++ },
		func(g *grove) { g.B = &shared{g.B.N} },
		func(g *grove) { g.Lives = &cat{} },
		func(g *grove) { g.ByKey = map[uint32]leaf{1: {}} },
	}
	rapid.Check(t, func(t *rapid.T) {
		w := New(groveRules()...)
		a := drawGrove(t)
		b := Clone(w, a)
		if !Same(w, a, b) || !Same(w, b, a) {
			t.Fatalf("%+v is not the same as its clone", a)
		}
		b.Memory = []uint64{2}
		if n := len(b.Leaves); n > 0 && len(b.Leaves[n-1].Bytes) > 0 && rapid.Bool().Draw(t, "inside") {
			b.Leaves[n-1].Bytes[0]++
		} else {
			rapid.SampledFrom(changes).Draw(t, "change")(b)
		}
		if Same(w, a, b) {
			t.Fatalf("%+v is the same as %+v", a, b)
		}
	})
}
