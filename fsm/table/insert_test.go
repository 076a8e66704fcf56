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
			s.Insert(&l, h, before)
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
		for h := s.listed(l.tail); h != 0; h = s.listed(s.cells[h.Slot()].prev) {
			back = append(back, h)
		}
		slices.Reverse(back)
		if !slices.Equal(got, want) || !slices.Equal(back, want) || l.Len() != len(want) {
			t.Fatalf("forwards %v, backwards %v, want %v; it says %d", got, back, want, l.Len())
		}
	})
}
