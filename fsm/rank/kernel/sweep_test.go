package kernel

import (
	"slices"
	"testing"
)

// A pass looks at each slot once, in order, at most so many a step, and ends although more is asked for all the time.
func TestSweep(t *testing.T) {
	slots := []int32{5, 0, 3}
	for _, rows := range []int{1, 2, 3, 100} {
		var s Sweep
		var w WorkBudget
		var seen []int32
		if !s.RequestPass() || s.RequestPass() {
			t.Fatal("a pass is begun once")
		}
		steps, ended := 0, false
		for !ended {
			w.StartStep(rows)
			before := len(seen)
			ended = s.ContinuePass(&w, 3, func(table uint8, slot int32) VisitResult {
				if slot == slots[table-1] {
					return NextTable
				}
				seen = append(seen, 10*int32(table)+slot)
				w.SpendRows(1)
				return NextSlot
			})
			if n := len(seen) - before; n > rows {
				t.Fatalf("%d rows in a step of %d", n, rows)
			}
			if steps++; steps > 20 {
				t.Fatal("it does not end")
			}
			if !ended {
				s.RequestPass()
			}
		}
		if want := []int32{10, 11, 12, 13, 14, 30, 31, 32}; !slices.Equal(seen, want) {
			t.Fatalf("with %d a step it saw %v; want %v", rows, seen, want)
		}
		if !s.IsRunning() {
			t.Fatal("who asked meanwhile has no pass")
		}
		w.StartStep(100)
		if again := s.ContinuePass(&w, 3, func(uint8, int32) VisitResult { return NextTable }); !again || s.IsRunning() {
			t.Fatal("who asked meanwhile has one more, and it ends")
		}
	}
}

// What a class had is condemned, what it gets later is not.
func TestLosses(t *testing.T) {
	l := new(Losses).Recycle(2)
	before := l.CountFor(1)
	l.CondemnRows(1)
	if !l.IsCondemned(1, before) || l.IsCondemned(1, l.CountFor(1)) || l.IsCondemned(0, l.CountFor(0)) {
		t.Fatal("another one is condemned")
	}
}
