package directory

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/prng"
)

// spread is a hash that has nothing in common with its neighbour's.
func spread(n uint64) uint64 {
	s := prng.New(n)
	return s.Next()
}

// timed runs what is benchmarked and tells the median, which is what it takes on a machine that does other things as
// well.
func timed(b *testing.B, f func()) {
	took := []time.Duration{}
	for b.Loop() {
		begin := time.Now()
		f()
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2]), "median-ns")
}

// BenchmarkReport is one report of 50 operations, LMCache's batch: chunks that come, and as many that go.
func BenchmarkReport(b *testing.B) {
	for _, chunks := range []uint64{10_000, 1_000_000} {
		b.Run(fmt.Sprint(chunks), func(b *testing.B) {
			d := New(Default())
			s := Sender{Instance: []byte("a")}
			d.Register(1, s, Address{URL: []byte("u")})
			ops, next := make([]Operation, 50), uint64(0)
			report := func() {
				for i := range ops {
					ops[i] = Operation{Hash: spread(next / 2), Sequence: next}
					if next%2 == 1 && next/2 >= chunks {
						ops[i].Hash, ops[i].Evict = spread(next/2-chunks), true
					}
					next++
				}
				if code := d.ApplyReport(1, &Report{Sender: s, Location: []byte("cpu"), Operations: ops}); code != effects.OK {
					b.Fatal(code)
				}
			}
			for next < 2*chunks {
				report()
			}
			timed(b, report)
		})
	}
}

// BenchmarkLookup is one of 1,000 chunks that so many workers have, and an answer of eight of them at the most.
func BenchmarkLookup(b *testing.B) {
	for _, workers := range []int{4, 64} {
		b.Run(fmt.Sprint(workers), func(b *testing.B) {
			d := fleet(Default(), workers, 1000)
			hashes := make([]uint64, 1000)
			for i := range hashes {
				hashes[i] = uint64(i)
			}
			var peers []Peer
			timed(b, func() {
				peers, _ = d.Lookup(1, Sender{Instance: []byte("x")}, hashes, peers[:0])
				if len(peers) != min(workers, 8) || peers[0].Chunks != len(hashes) {
					b.Fatal(peers)
				}
			})
		})
	}
}

// BenchmarkSweep is one step of sweeping what a worker of a million chunks left.
func BenchmarkSweep(b *testing.B) {
	d := fleet(Default(), 1, 1_000_000)
	d.Deregister(1, Sender{Instance: []byte("a")}, Address{IP: []byte("10.0.0.1"), Port: 9000})
	timed(b, func() { d.Advance(1) })
	if !d.chunks.HasRetired() {
		b.Fatal("nothing was left to sweep: run it 200 times at the most")
	}
}
