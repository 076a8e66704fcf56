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

// TimeAlternatives lets the alternatives take turns: a round for each b.N, each alternative once in each round, in a
// random order, because the previous alternative decides what the caches hold.
func TimeAlternatives(b *testing.B, alternatives []Alternative) Times {
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
func (t Times) Median(name string) float64 { return medianOf(slices.Clone(t.taken[name])) }

// Ratio returns the median, over the rounds, of the speed of an alternative divided by the speed of another.
func (t Times) Ratio(name, other string) float64 {
	ratios := slices.Clone(t.taken[other])
	for i := range ratios {
		ratios[i] /= t.taken[name][i]
	}
	return medianOf(ratios)
}

// CPU returns the median of the CPU seconds that this process used for an alternative, on all cores. If further
// processes load the machine, CPU time says more than the clock.
func (t Times) CPU(name string) float64 { return medianOf(slices.Clone(t.cpu[name])) }

// Cores returns the number of cores that this process used while the alternative ran. The number shows whether the
// process had the machine to itself.
func (t Times) Cores(name string) float64 { return medianOf(slices.Clone(t.cores[name])) }

func medianOf(s []float64) float64 {
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

// BenchPushes pushes batches of 64 pages of 1 MiB, out of 256 pages that no cache holds, over each contender. The
// results are the rates and their ratios to Go's copy of pages of that size and to 1, 2 and 4 bare TCP streams that
// carry the pages. Both sides of a ratio come from the same round. A plane that does not copy as Go does passes its
// mover as own, so that the overhead of the plane itself can be seen.
func BenchPushes(b *testing.B, own plane.Mover, contenders ...Contender) {
	benchPushesOf(b, own, benchBytes, benchBatch, contenders)
}

// BenchManyPages pushes batches of as many bytes in 4096 pages of 16 KiB.
func BenchManyPages(b *testing.B, contenders ...Contender) {
	benchPushesOf(b, nil, benchBytes*benchBatch/maxPushPages, maxPushPages, contenders)
}

func benchPushesOf(b *testing.B, own plane.Mover, pageBytes uint32, batch int, contenders []Contender) {
	var alternatives []Alternative
	var first *BatchMover
	for _, c := range contenders {
		f := NewBatchMoverOf(b, c.Open, benchTotal*benchBytes/int(pageBytes), pageBytes, batch)
		if first == nil {
			first = f
		}
		alternatives = append(alternatives, Alternative{c.Name, func(rng *rand.Rand) time.Duration { return f.PushBatch(b, rng) }})
	}
	alternatives = append(alternatives, copyAlternatives(first, own)...)
	alternatives = append(alternatives, streamAlternatives(b, first)...)
	t := TimeAlternatives(b, alternatives)
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

// A BatchMover moves batches of a benchmark from a node of this process to a second node.
type BatchMover struct {
	a, b       *Node
	link       effects.Link
	from, into []effects.Page
	batch      int
}

// NewBatchMover opens both nodes and touches all pages.
func NewBatchMover(b *testing.B, open plane.Opener) *BatchMover {
	return NewBatchMoverOf(b, open, benchTotal, benchBytes, benchBatch)
}

// NewBatchMoverOf opens nodes with a number of pages of pageBytes bytes; batches are drawn from these pages.
func NewBatchMoverOf(b *testing.B, open plane.Opener, pages int, pageBytes uint32, batch int) *BatchMover {
	f := &BatchMover{a: OpenNode(b, open, 1, uint32(pages), uint64(pageBytes)),
		b: OpenNode(b, open, 2, uint32(pages), uint64(pageBytes)), batch: batch}
	f.link = f.a.Import(b, f.b.Inc, f.b.Plane.Blob())
	f.from, f.into = f.a.PublishPages(0, pages, pageBytes), f.b.PublishPages(0, pages, pageBytes)
	for i := range f.from {
		fillPattern(f.a.Pool.Bytes(f.from[i]), uint64(i))
		fillPattern(f.b.Pool.Bytes(f.into[i]), uint64(i))
	}
	return f
}

// PushBatch grants pages and pushes a batch into these pages, in as few pushes as possible.
func (f *BatchMover) PushBatch(b *testing.B, rng *rand.Rand) time.Duration {
	src, dst := f.drawPages(rng)
	begin := time.Now()
	var pushes []effects.Corr
	for from := 0; from < len(dst); from += maxPushPages {
		part := dst[from:min(from+maxPushPages, len(dst))]
		for i := range part {
			f.b.lastGeneration++
			part[i].Generation = f.b.lastGeneration
		}
		f.b.grants++
		f.b.Pool.Grant(&effects.Grant{ID: f.b.grants, Peer: f.a.Inc, Pages: part})
		pushes = append(pushes, f.a.StartPush(Push{To: f.b.Inc, Link: f.link, Grant: f.b.grants, From: src[from : from+len(part)],
			Into: part, Buffer: f.b.Pool.Buffer().ID}))
	}
	for _, push := range pushes {
		if done := f.a.AwaitDone(b, push); done.Code != effects.OK {
			b.Fatalf("push ended as %s", done.Code)
		}
	}
	taken := time.Since(begin)
	f.b.dropEvents()
	f.a.dropEvents()
	return taken
}

// maxPushPages is the number of pages that a push may have by the default bounds of a plane.
const maxPushPages = 4096

func (f *BatchMover) drawPages(rng *rand.Rand) (src, dst []effects.Page) {
	return drawSample(rng, f.from, f.batch), drawSample(rng, f.into, f.batch)
}

func drawSample(rng *rand.Rand, pages []effects.Page, n int) []effects.Page {
	drawn := make([]effects.Page, n)
	for i, at := range rng.Perm(len(pages))[:n] {
		drawn[i] = pages[at]
	}
	return drawn
}

// BenchSmallPush pushes a single page of 4 KiB at a time, which measures the fixed cost of a push and its confirmation.
func BenchSmallPush(b *testing.B, open plane.Opener) {
	const size = 4096
	a, z := OpenNode(b, open, 1, 1, size), OpenNode(b, open, 2, 1, size)
	link := a.Import(b, z.Inc, z.Plane.Blob())
	from := a.PublishPages(0, 1, size)
	for b.Loop() {
		grant, into := z.GrantWrite(a.Inc, 0, 1, size)
		done := a.AwaitDone(b, a.StartPush(Push{To: z.Inc, Link: link, Grant: grant, From: from, Into: into,
			Buffer: z.Pool.Buffer().ID}))
		if done.Code != effects.OK {
			b.Fatalf("push ended as %s", done.Code)
		}
		z.dropEvents()
	}
}

// dropEvents drops all events, so that a long benchmark does not search through old events.
func (n *Node) dropEvents() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.events = n.events[:0]
}
