package table

import "testing"

// A slot whose lives come round goes on: handles are never zero, the last one is not the next one's, and lists and
// lookups work.
func TestHandlesComeRound(t *testing.T) {
	s := NewSlab[int](1)
	h, _ := s.Add()
	s.Remove(h)
	s.rows.rows.At(0).life = 1<<32 - 3
	last := h
	for n := range 6 {
		h, v := s.Add()
		if *v = n; h == 0 || h == last || s.Get(last) != nil || s.Get(h) != v || s.At(0) != h || h.Slot() != 0 {
			t.Fatalf("life %d: handle %#x after %#x", n, uint64(h), uint64(last))
		}
		var l List
		s.PushBack(&l, h)
		if s.Unlink(&l, h); l.Len() != 0 {
			t.Fatal("a list keeps what was taken out")
		}
		s.Remove(h)
		if s.Get(h) != nil {
			t.Fatalf("life %d goes on after its end", n)
		}
		last = h
	}
}
