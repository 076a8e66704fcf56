package planetest

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane"
)

// BenchRead reads batches as [Bench] pushes batches. The results are the rates of each contender and their ratios to
// the contender's pushes, to Go's copy of pages of that size and to 1 and 2 bare TCP streams that carry the pages.
// Both sides of a ratio come from the same round.
func BenchRead(b *testing.B, contenders ...Contender) {
	var alternatives []Alternative
	var first *Ferry
	for _, c := range contenders {
		f := NewFerry(b, c.Open)
		if first == nil {
			first = f
		}
		alternatives = append(alternatives,
			Alternative{c.Name, func(rng *rand.Rand) time.Duration { return f.Read(b, rng) }},
			Alternative{c.Name + "-push", func(rng *rand.Rand) time.Duration { return f.Push(b, rng) }})
	}
	alternatives = append(alternatives, Alternative{"copy",
		func(rng *rand.Rand) time.Duration { return first.copy(rng, 1, plane.Move) }})
	alternatives = append(alternatives, bareStreams(b, first)[:2]...)
	t := Alternate(b, alternatives)
	for _, c := range contenders {
		b.ReportMetric(benchBatch*benchBytes/t.Median(c.Name)/1e9, c.Name+":GB/s")
		b.ReportMetric(t.Cores(c.Name), c.Name+":cores")
		for _, other := range []string{c.Name + "-push", "copy", "tcp1", "tcp2"} {
			b.ReportMetric(t.Ratio(c.Name, other), c.Name+":x-"+other)
		}
	}
}

// ReadBatch publishes new generations of pages, leases the pages, reads a batch, and revokes the lease.
func (f *Ferry) Read(b *testing.B, rng *rand.Rand) time.Duration {
	into, from := f.draw(rng)
	begin := time.Now()
	f.a.live(f.from, into)
	f.z.live(f.into, from)
	grant := f.z.Lend(f.a.Inc, from)
	done := f.a.Done(b, f.a.Read(Pull{Of: f.z.Inc, Link: f.link, Grant: grant, From: from, Into: into,
		Buffer: f.z.Pool.Buffer().ID}))
	f.z.Pool.Revoke(grant)
	taken := time.Since(begin)
	if done.Code != effects.OK {
		b.Fatalf("read ended as %s", done.Code)
	}
	f.z.forget()
	return taken
}

// live publishes new generations of pages, and records the new generations in all.
func (n *Node) live(all, pages []effects.Page) {
	for i := range pages {
		n.lives++
		pages[i].Generation = n.lives
		all[pages[i].Index] = pages[i]
	}
	n.Pool.Publish(pages)
}

// BenchSmallRead reads a single page of 4 KiB at a time under the same lease, which measures the fixed cost of a read.
func BenchSmallRead(b *testing.B, open plane.Opener) {
	const size = 4096
	a, z := Open(b, open, 1, 1, size), Open(b, open, 2, 1, size)
	from := z.Life(0, 1, size)
	pull := Pull{Of: z.Inc, Link: a.Import(b, z.Inc, z.Plane.Blob()), Grant: z.Lend(a.Inc, from), From: from,
		Into: a.Life(0, 1, size), Buffer: z.Pool.Buffer().ID}
	for b.Loop() {
		if done := a.Done(b, a.Read(pull)); done.Code != effects.OK {
			b.Fatalf("read ended as %s", done.Code)
		}
	}
}
