package sim

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestQueueOrder compares the heap with a stable sort.
func TestQueueOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q queue
		times := rapid.SliceOf(rapid.Int64Range(0, 20)).Draw(t, "times")
		type item struct {
			at int64
			i  uint64
		}
		var want []item
		for i, at := range times {
			q.push(at, delivery{a: uint64(i)})
			want = append(want, item{at, uint64(i)})
		}
		slices.SortStableFunc(want, func(x, y item) int { return int(x.at - y.at) })
		for _, w := range want {
			if at, d := q.pop(); at != w.at || d.a != w.i {
				t.Fatalf("popped %d at %d, want %d at %d", d.a, at, w.i, w.at)
			}
		}
		if q.len() != 0 {
			t.Fatalf("%d deliveries left", q.len())
		}
	})
}
