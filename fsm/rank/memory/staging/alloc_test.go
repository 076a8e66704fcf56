package staging

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/prng"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory"
)

// fetcher runs one fetch after the other, completing everything at once.
type fetcher struct {
	p        Pipeline
	v        env.Env
	f        Fetch
	corrs    []effects.Corr
	finished int
}

func newFetcher(items, depth int) *fetcher {
	pages := uint32(2 * depth)
	b := &fetcher{
		p: New(Config{
			Settings: Settings{StagingPages: pages, FetchesMax: 4}, PageBytes: pageBytes, Depth: uint32(depth),
			ItemsMax: uint32(items), SourcesMax: 2,
		}),
	}
	pools, deadlines := memory.New(1, 1, prng.Shuffle{}, memory.PoolConfig{Pages: pages}), kernel.NewTimers(4)
	outstanding := kernel.NewCorrs(int(b.p.cfg.StagingPages + b.p.cfg.FetchesMax))
	b.v = env.Env{Now: 1, Out: &effects.Effects{}, Pool: pools.Pool(0), Timers: &deadlines, Corrs: &outstanding}
	b.f = Fetch{Deadline: never, Sources: []Source{{ID: 1, Grant: 1}, {ID: 2, Grant: 2}}}
	for i := range items {
		b.f.Items = append(b.f.Items, Item{Source: uint32(i % 2), Length: pageBytes})
	}
	return b
}

func (b *fetcher) run() {
	b.f.Ticket++
	b.v.Out.Reset()
	b.p.OpenFetch(&b.v, unlimitedRights{}, &b.f)
	b.collect()
	for len(b.corrs) > 0 {
		c := b.corrs[0]
		b.corrs = append(b.corrs[:0], b.corrs[1:]...)
		b.v.Out.Reset()
		if ref, _ := b.v.Corrs.Close(c); ref.Kind == kindRead {
			b.p.OnTransferDone(&b.v, unlimitedRights{}, ref, &effects.TransferDone{Corr: c, Settled: true})
		} else {
			b.p.OnScattered(&b.v, unlimitedRights{}, ref, &effects.Scattered{Corr: c})
		}
		b.collect()
	}
}

func (b *fetcher) collect() {
	for i := range b.v.Out.Len() {
		switch e := b.v.Out.At(i).(type) {
		case *effects.Transfer:
			b.corrs = append(b.corrs, e.Corr)
		case *effects.Scatter:
			b.corrs = append(b.corrs, e.Corr)
		default: // Nothing is owed for the others.
		}
	}
	for {
		said, ok := b.p.Next()
		if !ok {
			return
		}
		if said.Kind == Ended && said.Code == effects.OK {
			b.finished++
		}
	}
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	b := newFetcher(64, 4)
	for range 16 { // Slots, arenas and the queue of reports find their sizes.
		b.run()
	}
	if n := testing.AllocsPerRun(100, b.run); n != 0 {
		t.Errorf("%v allocations a fetch", n)
	}
	if b.finished != 16+101 || b.p.CountUnfinished() != 0 {
		t.Errorf("%d fetches ended well, %d are left", b.finished, b.p.CountUnfinished())
	}
}

func BenchmarkFetch(b *testing.B) {
	f := newFetcher(64, 4)
	b.ReportAllocs()
	for b.Loop() {
		f.run()
	}
}
