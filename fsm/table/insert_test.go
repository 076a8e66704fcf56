package table

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Insert puts an element where it is told, at either end and between.
func TestInsertKeepsOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := NewSlab[int](64)
		var l List
		var want []Handle
		for range rapid.IntRange(0, 40).Draw(t, "elements") {
			h, _ := s.Add()
			at := rapid.IntRange(0, len(want)).Draw(t, "at")
			before := Handle(0)
			if at < len(want) {
				before = want[at]
			}
			s.InsertBefore(&l, h, before)
			want = slices.Insert(want, at, h)
			if len(want) > 3 && rapid.Bool().Draw(t, "unlink") {
				i := rapid.IntRange(0, len(want)-1).Draw(t, "which")
				s.Unlink(&l, want[i])
				want = slices.Delete(want, i, i+1)
			}
		}
		var got, back []Handle
		for h := l.Front(); h != 0; h = s.Next(h) {
			got = append(got, h)
		}
		for h := neighbourHandle(&s.rows, l.tail); h != 0; h = neighbourHandle(&s.rows, rowAt(&s.rows, h.Slot()+1).prev) {
			back = append(back, h)
		}
		slices.Reverse(back)
		if !slices.Equal(got, want) || !slices.Equal(back, want) || l.Len() != len(want) {
			t.Fatalf("forwards %v, backwards %v, want %v; it says %d", got, back, want, l.Len())
		}
	})
}

// A list that is joined to another stands behind it, and its elements are found there by both ways and taken out.
func TestJoinKeepsOrder(t *testing.T) {
	for a := range 4 {
		for b := range 4 {
			s := NewSlab[int](8)
			var l, other List
			var want []Handle
			for i := range a + b {
				h, _ := s.Add()
				if want = append(want, h); i < a {
					s.PushBack(&l, h)
				} else {
					s.PushBack(&other, h)
				}
			}
			s.JoinLists(&l, &other)
			if other.Len() != 0 || l.Len() != a+b {
				t.Fatalf("%d and %d: %d are in one, %d in the other", a, b, l.Len(), other.Len())
			}
			for at, h := 0, l.Front(); h != 0; at, h = at+1, s.Next(h) {
				if h != want[at] {
					t.Fatalf("%d and %d: element %d is another", a, b, at)
				}
			}
			for i := len(want) - 1; i >= 0; i-- { // The last is found by its neighbour before.
				s.Unlink(&l, want[i])
				s.Remove(want[i])
			}
			if l != (List{}) {
				t.Fatalf("%d and %d: %+v is left", a, b, l)
			}
		}
	}
}
