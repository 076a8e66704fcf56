package sim

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/kvferry/kvferry/sim/world"
)

// TestQueueAgainstModel pushes deliveries for now, for later and for earlier, and pops in between.
func TestQueueAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q world.Queue
		type item struct {
			at int64
			i  uint64
		}
		var model []item
		now, pushed := int64(0), uint64(0)
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				at := now + rapid.SampledFrom([]int64{0, 0, 0, 1, 2, -1}).Draw(t, "ahead")
				q.Push(at, world.Delivery{A: pushed})
				model = append(model, item{at, pushed})
				pushed++
			},
			"pop": func(t *rapid.T) {
				if len(model) == 0 {
					t.Skip("empty")
				}
				least := slices.MinFunc(model, func(x, y item) int {
					return cmp.Or(cmp.Compare(x.at, y.at),
						cmp.Compare(x.i, y.i))
				})
				if q.NextInstant() != least.at {
					t.Fatalf("the next is at %d, want %d", q.NextInstant(), least.at)
				}
				at, d := q.Pop()
				if at != least.at || d.A != least.i {
					t.Fatalf("popped %d at %d, want %d at %d", d.A, at, least.i, least.at)
				}
				model = slices.DeleteFunc(model, func(o item) bool { return o == least })
				now = at
			},
			"": func(t *rapid.T) {
				if q.Len() != len(model) {
					t.Fatalf("%d deliveries, want %d", q.Len(), len(model))
				}
			},
		})
	})
}

// TestQueueOrder compares the heap with a stable sort.
func TestQueueOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q world.Queue
		times := rapid.SliceOf(rapid.Int64Range(0, 20)).Draw(t, "times")
		type item struct {
			at int64
			i  uint64
		}
		var want []item
		for i, at := range times {
			q.Push(at, world.Delivery{A: uint64(i)})
			want = append(want, item{at, uint64(i)})
		}
		slices.SortStableFunc(want, func(x, y item) int { return int(x.at - y.at) })
		for _, w := range want {
			if at, d := q.Pop(); at != w.at || d.A != w.i {
				t.Fatalf("popped %d at %d, want %d at %d", d.A, at, w.i, w.at)
			}
		}
		if q.Len() != 0 {
			t.Fatalf("%d deliveries left", q.Len())
		}
	})
}
