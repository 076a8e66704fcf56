package index

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/kvferry/kvferry/fsm/prng"
)

// prefixLen is how many chunks a prefix of the benchmarks has: 256,000 tokens at 256 tokens a chunk.
const prefixLen = 1000

// chunkOf is the hash of a chunk: nothing like that of its neighbour.
func chunkOf(n int) uint64 {
	s := prng.New(uint64(n))
	return s.Next()
}

// filled is an index of so many chunks, in prefixes each of which so many of 64 instances hold whole.
func filled(chunks, copies int) *Index {
	x := New(Limits{Chunks: 4 * chunks * copies, Holders: 100, Groups: 64, HoldersPerChunk: 256}, 1)
	for range 64 {
		x.ShowHolder(x.OpenHolder(x.holders.used, x.holders.used, 0))
	}
	for n := range chunks {
		for c := range copies {
			x.Add(Holder((n/prefixLen+c*7)%64+1), chunkOf(n))
		}
	}
	return &x
}

func sizes(b *testing.B, run func(b *testing.B, chunks int)) {
	for _, chunks := range []int{10_000, 100_000, 1_000_000, 10_000_000} {
		b.Run(fmt.Sprint(chunks), func(b *testing.B) { run(b, chunks) })
	}
}

// BenchmarkPrefix looks up prefixes of 1,000 chunks, another one each time, so that in a large index their rows come
// from memory. So many instances hold each of them: three lie in its row, twelve in a block. The median is what a
// lookup takes on a machine that does other things as well, and beside it stands what 1,000 loads of rows alone take.
func BenchmarkPrefix(b *testing.B) {
	for _, copies := range []int{3, 12} {
		b.Run(fmt.Sprintf("copies=%d", copies), func(b *testing.B) {
			sizes(b, func(b *testing.B, chunks int) {
				x := filled(chunks, copies)
				hashes, hits := make([]uint64, prefixLen), []Hit{}
				at, took, loads, sum := 0, []time.Duration{}, []time.Duration{}, uint64(0)
				next := func() {
					at = (at + 6_971) % (chunks / prefixLen)
					for i := range hashes {
						hashes[i] = chunkOf(at*prefixLen + i)
					}
				}
				for b.Loop() {
					next()
					for i, hash := range hashes {
						hashes[i] = x.cipher.placeOf(hash, x.cipher.rankKey(0))
					}
					begin := time.Now()
					for _, place := range hashes {
						s := x.segmentOf(place)
						sum += s.slots[s.homeSlot(place)].place
					}
					loads = append(loads, time.Since(begin))
					next()
					begin = time.Now()
					hits = x.FindPrefix(0, hashes, -1, hits[:0])
					if took = append(took, time.Since(begin)); len(hits) != copies || hits[0].Chunks != prefixLen || sum == 0 {
						b.Fatal(hits)
					}
				}
				slices.Sort(took)
				slices.Sort(loads)
				b.ReportMetric(float64(took[len(took)/2]), "median-ns")
				b.ReportMetric(float64(took[len(took)*9/10]), "p90-ns")
				b.ReportMetric(float64(loads[len(loads)/2]), "loads-ns")
			})
		})
	}
}

// BenchmarkSize tells the bytes of a chunk as an index grows, by its own count and by the collector's.
func BenchmarkSize(b *testing.B) {
	for _, copies := range []int{1, 4, 12} {
		b.Run(fmt.Sprintf("copies=%d", copies), func(b *testing.B) {
			sizes(b, func(b *testing.B, chunks int) {
				for b.Loop() {
					var before, after runtime.MemStats
					runtime.GC()
					runtime.ReadMemStats(&before)
					x := filled(chunks, copies)
					runtime.GC()
					runtime.ReadMemStats(&after)
					f := x.Figures()
					b.ReportMetric(float64(f.Bytes)/float64(f.Rows), "B/chunk")
					b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(f.Rows), "heap-B/chunk")
				}
			})
		})
	}
}
