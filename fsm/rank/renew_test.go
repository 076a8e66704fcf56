package rank

import (
	"reflect"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
	"pgregory.net/rapid"
)

// A rank in the memory of another one is what a new rank is, whatever happened to that one: nothing of it is left but
// memory.
func TestRecycledIsNew(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newStorm(t, false)
		for range rapid.IntRange(1, 200).Draw(t, "moments") {
			s.moment()
		}
		cfg, seed := s.node().cfg, rapid.Uint64().Draw(t, "seed")
		cfg.Recalls = cfg.Role.Receives() && rapid.Bool().Draw(t, "recalls")
		want, err := New(cfg, seed, s.now)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range s.nodes {
			got, err := Recycle(n.rank, cfg, seed, s.now)
			if err != nil {
				t.Fatal(err)
			}
			sameState(t, n.name, reflect.ValueOf(*got), reflect.ValueOf(*want))
		}
	})
}

// Renewing a rank takes a fraction of the memory that a new one does.
func TestRecycleAllocatesLittle(t *testing.T) {
	l := newLoop(t, 8)
	for range 100 {
		l.push()
	}
	cfg, now := l.r.cfg, effects.Time(0)
	fresh := testing.AllocsPerRun(100, func() {
		if _, err := New(cfg, 1, now); err != nil {
			t.Fatal(err)
		}
	})
	again := testing.AllocsPerRun(100, func() {
		if _, err := Recycle(l.r, cfg, 1, now); err != nil {
			t.Fatal(err)
		}
	})
	if again > fresh/2 {
		t.Errorf("a renewed rank takes %v pieces of memory, a new one %v", again, fresh)
	}
}

// sameState compares states but for what nobody can observe: memory that is not in use, where in an index an entry
// stands, the values of a slab without rows, and what is of one step alone.
func sameState(t *rapid.T, at string, got, want reflect.Value) {
	switch got.Type() {
	case reflect.TypeFor[table.Index](), reflect.TypeFor[table.Compact]():
		for i, cells := 0, got.FieldByName("first").FieldByName("cells"); i < cells.Len(); i++ {
			if !cells.Index(i).IsZero() {
				t.Fatalf("%s has an entry", at)
			}
		}
		if n := got.FieldByName("more").Len(); n > 0 || got.FieldByName("n").Int() != 0 {
			t.Fatalf("%s has %d parts more", at, n)
		}
		return
	}
	switch got.Kind() {
	case reflect.Struct:
		if strings.HasPrefix(got.Type().Name(), "Array[") && got.FieldByName("n").IsZero() && want.FieldByName("n").IsZero() {
			return
		}
		for i := range got.NumField() {
			field := got.Type().Field(i)
			beside := field.Tag.Get("snap") == "beside" && got.FieldByName("rows").FieldByName("rows").FieldByName("n").IsZero()
			if beside || field.Tag.Get("snap") == "scratch" {
				continue
			}
			sameState(t, at+"."+field.Name, got.Field(i), want.Field(i))
		}
	case reflect.Slice, reflect.Array:
		if got.Len() != want.Len() {
			t.Fatalf("%s has %d elements, want %d", at, got.Len(), want.Len())
		}
		for i := range got.Len() {
			sameState(t, at, got.Index(i), want.Index(i))
		}
	case reflect.Pointer, reflect.Interface:
		if got.IsNil() || want.IsNil() {
			if got.IsNil() != want.IsNil() {
				t.Fatalf("%s is %v, want %v", at, got, want)
			}
			return
		}
		sameState(t, at, got.Elem(), want.Elem())
	default:
		if !got.Equal(want) {
			t.Fatalf("%s is %v, want %v", at, got, want)
		}
	}
}
