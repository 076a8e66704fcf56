package table

import "testing"

// TestRecount: a Recount reports the first class whose places differ from what its share counts, or all places.
func TestRecount(t *testing.T) {
	s := new(Share).Recycle(8, 3)
	rows := NewSlab[int](8)
	for _, class := range []int{1, 2, 2} {
		_, x := rows.Add()
		*x = class
		s.Acquire(class)
	}
	var r Recount
	recount := func() (counted, actual int) {
		r.Reset()
		RecountRows(&r, "rows", &s, &rows, Empty, func(x *int) (int, int) { return *x, 1 })
		return r.Counts[0].Counted, r.Counts[0].Actual
	}
	if counted, actual := recount(); counted != 3 || actual != 3 {
		t.Fatalf("%d places are counted, and %d are there; want 3", counted, actual)
	}
	s.Release(2)
	s.Acquire(1) // The sum is right, and each class is wrong.
	if counted, actual := recount(); counted != 2 || actual != 1 {
		t.Fatalf("%d places of class 1 are counted, and %d are there; want 2 and 1", counted, actual)
	}
}
