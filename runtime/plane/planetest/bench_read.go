package planetest

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane"
)

// BenchReads reads batches as [BenchPushes] pushes batches. The results are the rates of each contender and their
// ratios to the contender's pushes, to Go's copy of pages of that size and to 1 and 2 bare TCP streams that carry the
// pages. Both sides of a ratio come from the same round.
func BenchReads(b *testing.B, contenders ...Contender) {
	var alternatives []Alternative
	var first *BatchMover
	for _, c := range contenders {
		f := NewBatchMover(b, c.Open)
		if first == nil {
			first = f
		}
		alternatives = append(alternatives,
			Alternative{c.Name, func(rng *rand.Rand) time.Duration { return f.ReadBatch(b, rng) }},
			Alternative{c.Name + "-push", func(rng *rand.Rand) time.Duration { return f.PushBatch(b, rng) }})
	}
	alternatives = append(alternatives, Alternative{"copy",
		func(rng *rand.Rand) time.Duration { return first.copyBatch(rng, 1, plane.Move) }})
	alternatives = append(alternatives, streamAlternatives(b, first)[:2]...)
	t := TimeAlternatives(b, alternatives)
	for _, c := range contenders {
		b.ReportMetric(benchBatch*benchBytes/t.Median(c.Name)/1e9, c.Name+":GB/s")
		b.ReportMetric(t.Cores(c.Name), c.Name+":cores")
		for _, other := range []string{c.Name + "-push", "copy", "tcp1", "tcp2"} {
			b.ReportMetric(t.Ratio(c.Name, other), c.Name+":x-"+other)
		}
	}
}

// ReadBatch publishes new generations of pages, leases the pages, reads a batch, and revokes the lease.
func (f *BatchMover) ReadBatch(b *testing.B, rng *rand.Rand) time.Duration {
	into, from := f.drawPages(rng)
	begin := time.Now()
	f.a.republishPages(f.from, into)
	f.b.republishPages(f.into, from)
	grant := f.b.GrantRead(f.a.Inc, from)
	done := f.a.AwaitDone(b, f.a.StartRead(Pull{Of: f.b.Inc, Link: f.link, Grant: grant, From: from, Into: into,
		Buffer: f.b.Pool.Buffer().ID}))
	f.b.Pool.Revoke(grant)
	taken := time.Since(begin)
	if done.Code != effects.OK {
		b.Fatalf("read ended as %s", done.Code)
	}
	f.b.dropEvents()
	return taken
}

// republishPages publishes new generations of pages, and records the new generations in all.
func (n *Node) republishPages(all, pages []effects.Page) {
	for i := range pages {
		n.lastGeneration++
		pages[i].Generation = n.lastGeneration
		all[pages[i].Index] = pages[i]
	}
	n.Pool.Publish(pages)
}

// BenchSmallRead reads a single page of 4 KiB at a time under the same lease, which measures the fixed cost of a read.
func BenchSmallRead(b *testing.B, open plane.Opener) {
	const size = 4096
	a, z := OpenNode(b, open, 1, 1, size), OpenNode(b, open, 2, 1, size)
	from := z.PublishPages(0, 1, size)
	pull := Pull{Of: z.Inc, Link: a.Import(b, z.Inc, z.Plane.Blob()), Grant: z.GrantRead(a.Inc, from), From: from,
		Into: a.PublishPages(0, 1, size), Buffer: z.Pool.Buffer().ID}
	for b.Loop() {
		if done := a.AwaitDone(b, a.StartRead(pull)); done.Code != effects.OK {
			b.Fatalf("read ended as %s", done.Code)
		}
	}
}
