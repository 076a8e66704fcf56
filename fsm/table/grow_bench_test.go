package table

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// A resident is as large as a key's entry in a store.
type resident struct{ _ [80]byte }

// BenchmarkGrow fills a table and an index from empty, some times over, and tells the longest that one insertion took:
// each in the quickest of its times, since on a machine that does other things as well the longest of all is somebody
// else's.
func BenchmarkGrow(b *testing.B) {
	for _, rows := range []int{64 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("slab=%d", rows), func(b *testing.B) {
			longest(b, rows, func() func(int) {
				s := NewSlab[resident](rows)
				return func(int) { s.Add() }
			})
		})
		b.Run(fmt.Sprintf("freed=%d", rows), func(b *testing.B) {
			longest(b, rows, func() func(int) {
				s := NewSlab[resident](rows)
				for range rows {
					s.Add()
				}
				return func(i int) { s.Remove(s.At(int32(i))) }
			})
		})
		b.Run(fmt.Sprintf("index=%d", rows), func(b *testing.B) {
			longest(b, rows, func() func(int) {
				x := Index{}
				return func(i int) { x.Add(foldProduct(uint64(i)), Handle(i+1)) }
			})
		})
		b.Run(fmt.Sprintf("compact=%d", rows), func(b *testing.B) {
			longest(b, rows, func() func(int) {
				x := Compact{}
				return func(i int) { x.Add(foldProduct(uint64(i)), makeHandle(int32(i), 1)) }
			})
		})
	}
}

func longest(b *testing.B, calls int, begin func() func(int)) {
	took := make([]time.Duration, calls)
	for i := range took {
		took[i] = time.Hour
	}
	for b.Loop() {
		call := begin()
		for i := range calls {
			before := time.Now()
			call(i)
			took[i] = min(took[i], time.Since(before))
		}
	}
	b.ReportMetric(float64(slices.Max(took)), "max-ns")
}
