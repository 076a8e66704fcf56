package planetest

import (
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane"
)

// The pages of a batch are drawn at random from more pages than any cache holds.
const (
	benchBatch = 64
	benchTotal = 256
	benchBytes = 1 << 20
	// After that many rounds, 99 % of the pages have been drawn at least once, so that page faults, which each peer
	// pays once, are over.
	benchWarmUps = 16
)

// An Alternative is a way to move a batch. Move returns the time that the batch took.
type Alternative struct {
	Name string
	Move func(rng *rand.Rand) time.Duration
}

// Times are the times that alternatives took, in the order of the rounds.
type Times struct {
	taken map[string][]float64
	cores map[string][]float64
	cpu   map[string][]float64
}

// Alternate lets the alternatives take turns: a round for each b.N, each alternative once in each round, in a random
// order, because the previous alternative decides what the caches hold.
func Alternate(b *testing.B, alternatives []Alternative) Times {
	rng := rand.New(rand.NewPCG(1, 1))
	t := Times{taken: map[string][]float64{}, cores: map[string][]float64{}, cpu: map[string][]float64{}}
	round := func() {
		for _, i := range rng.Perm(len(alternatives)) {
			a := alternatives[i]
			before, begin := cpuTime(), time.Now()
			t.taken[a.Name] = append(t.taken[a.Name], a.Move(rng).Seconds())
			cpu := (cpuTime() - before).Seconds()
			t.cores[a.Name] = append(t.cores[a.Name], cpu/time.Since(begin).Seconds())
			t.cpu[a.Name] = append(t.cpu[a.Name], cpu)
		}
	}
	for range benchWarmUps {
		round()
	}
	clear(t.taken)
	clear(t.cores)
	clear(t.cpu)
	b.ResetTimer()
	for range b.N {
		round()
	}
	b.StopTimer()
	b.ReportMetric(0, "ns/op") // The default would be the sum of all alternatives.
	return t
}

// Median returns the median time of an alternative in seconds.
func (t Times) Median(name string) float64 { return median(slices.Clone(t.taken[name])) }

// Ratio returns the median, over the rounds, of the speed of an alternative divided by the speed of another.
func (t Times) Ratio(name, other string) float64 {
	ratios := slices.Clone(t.taken[other])
	for i := range ratios {
		ratios[i] /= t.taken[name][i]
	}
	return median(ratios)
}

// CPU returns the median of the CPU seconds that this process used for an alternative, on all cores. If further
// processes load the machine, CPU time says more than the clock.
func (t Times) CPU(name string) float64 { return median(slices.Clone(t.cpu[name])) }

// Cores returns the number of cores that this process used while the alternative ran. The number shows whether the
// process had the machine to itself.
func (t Times) Cores(name string) float64 { return median(slices.Clone(t.cores[name])) }

func median(s []float64) float64 {
	slices.Sort(s)
	return s[len(s)/2]
}

// cpuTime returns the CPU time that this process has used so far.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic("BUG: getrusage: " + err.Error())
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// A Contender is a plane in a benchmark.
type Contender struct {
	Name string
	Open plane.Opener
}

// Bench pushes batches of 64 pages of 1 MiB, out of 256 pages that no cache holds, over each contender. The results
// are the rates and their ratios to Go's copy of pages of that size and to 1, 2 and 4 bare TCP streams that carry the
// pages. Both sides of a ratio come from the same round. A plane that does not copy as Go does passes its mover as
// own, so that the overhead of the plane itself can be seen.
func Bench(b *testing.B, own plane.Mover, contenders ...Contender) {
	benchOf(b, own, benchBytes, benchBatch, contenders)
}

// BenchMany pushes batches of as many bytes in 4096 pages of 16 KiB.
func BenchMany(b *testing.B, contenders ...Contender) {
	benchOf(b, nil, benchBytes*benchBatch/maxPushPages, maxPushPages, contenders)
}

func benchOf(b *testing.B, own plane.Mover, pageBytes uint32, batch int, contenders []Contender) {
	var alternatives []Alternative
	var first *Ferry
	for _, c := range contenders {
		f := NewFerryOf(b, c.Open, benchTotal*benchBytes/int(pageBytes), pageBytes, batch)
		if first == nil {
			first = f
		}
		alternatives = append(alternatives, Alternative{c.Name, func(rng *rand.Rand) time.Duration { return f.Push(b, rng) }})
	}
	alternatives = append(alternatives, bareCopies(first, own)...)
	alternatives = append(alternatives, bareStreams(b, first)...)
	t := Alternate(b, alternatives)
	for _, c := range contenders {
		b.ReportMetric(benchBatch*benchBytes/t.Median(c.Name)/1e9, c.Name+":GB/s")
		b.ReportMetric(t.Cores(c.Name), c.Name+":cores")
		b.ReportMetric(1e3*t.CPU(c.Name), c.Name+":cpu-ms")
		for _, a := range alternatives[len(contenders):] {
			b.ReportMetric(t.Ratio(c.Name, a.Name), c.Name+":x-"+a.Name)
		}
	}
	for _, a := range alternatives[len(contenders):] {
		b.ReportMetric(t.Ratio(a.Name, "copy"), a.Name+":x-copy")
		b.ReportMetric(t.Cores(a.Name), a.Name+":cores")
		b.ReportMetric(1e3*t.CPU(a.Name), a.Name+":cpu-ms")
	}
}

// A Ferry moves batches of a benchmark from a node of this process to a second node.
type Ferry struct {
	a, z       *Node
	link       effects.Link
	from, into []effects.Page
	batch      int
}

// NewFerry opens both nodes and touches all pages.
func NewFerry(b *testing.B, open plane.Opener) *Ferry {
	return NewFerryOf(b, open, benchTotal, benchBytes, benchBatch)
}

// NewFerryOf opens nodes with a number of pages of pageBytes bytes; batches are drawn from these pages.
func NewFerryOf(b *testing.B, open plane.Opener, pages int, pageBytes uint32, batch int) *Ferry {
	f := &Ferry{a: Open(b, open, 1, uint32(pages), uint64(pageBytes)),
		z: Open(b, open, 2, uint32(pages), uint64(pageBytes)), batch: batch}
	f.link = f.a.Import(b, f.z.Inc, f.z.Plane.Blob())
	f.from, f.into = f.a.Life(0, pages, pageBytes), f.z.Life(0, pages, pageBytes)
	for i := range f.from {
		fill(f.a.Pool.Bytes(f.from[i]), uint64(i))
		fill(f.z.Pool.Bytes(f.into[i]), uint64(i))
	}
	return f
}

// PushBatch grants pages and pushes a batch into these pages, in as few pushes as possible.
func (f *Ferry) Push(b *testing.B, rng *rand.Rand) time.Duration {
	src, dst := f.draw(rng)
	begin := time.Now()
	var pushes []effects.Corr
	for from := 0; from < len(dst); from += maxPushPages {
		part := dst[from:min(from+maxPushPages, len(dst))]
		for i := range part {
			f.z.lives++
			part[i].Generation = f.z.lives
		}
		f.z.grants++
		f.z.Pool.Grant(&effects.Grant{ID: f.z.grants, Peer: f.a.Inc, Pages: part})
		pushes = append(pushes, f.a.Start(Push{To: f.z.Inc, Link: f.link, Grant: f.z.grants, From: src[from : from+len(part)],
			Into: part, Buffer: f.z.Pool.Buffer().ID}))
	}
	for _, push := range pushes {
		if done := f.a.Done(b, push); done.Code != effects.OK {
			b.Fatalf("push ended as %s", done.Code)
		}
	}
	taken := time.Since(begin)
	f.z.forget()
	f.a.forget()
	return taken
}

// maxPushPages is the number of pages that a push may have by the default bounds of a plane.
const maxPushPages = 4096

func (f *Ferry) draw(rng *rand.Rand) (src, dst []effects.Page) {
	return draw(rng, f.from, f.batch), draw(rng, f.into, f.batch)
}

func draw(rng *rand.Rand, pages []effects.Page, n int) []effects.Page {
	drawn := make([]effects.Page, n)
	for i, at := range rng.Perm(len(pages))[:n] {
		drawn[i] = pages[at]
	}
	return drawn
}

// BenchSmall pushes a single page of 4 KiB at a time, which measures the fixed cost of a push and its confirmation.
func BenchSmall(b *testing.B, open plane.Opener) {
	const size = 4096
	a, z := Open(b, open, 1, 1, size), Open(b, open, 2, 1, size)
	link := a.Import(b, z.Inc, z.Plane.Blob())
	from := a.Life(0, 1, size)
	for b.Loop() {
		grant, into := z.Grant(a.Inc, 0, 1, size)
		done := a.Done(b, a.Start(Push{To: z.Inc, Link: link, Grant: grant, From: from, Into: into,
			Buffer: z.Pool.Buffer().ID}))
		if done.Code != effects.OK {
			b.Fatalf("push ended as %s", done.Code)
		}
		z.forget()
	}
}

// forget drops all events, so that a long benchmark does not search through old events.
func (n *Node) forget() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.events = n.events[:0]
}
