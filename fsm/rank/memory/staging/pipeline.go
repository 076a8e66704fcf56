// Package staging implements fetches: a receiver's engine fetches chunks that are still at the senders (delayed pull).
// The pipeline reads the chunks into a few staging pages and hands them to the engine's device code (scatter) batch by
// batch. It reads a batch while the preceding batch is scattered.
//
// The package knows no keys and manages no links: a fetch consists of plain values. A caller may rely
// on the following. Three things come back, each exactly once:
//
//   - a Deliver for the command,
//   - a [Report] for everything that the caller lent to the fetch (sources and local pages),
//   - each staging page to the pool, when nothing can touch the page any more (M1).
//
// Example: a fetch of five remote chunks has four staging pages and a depth of two. Chunks 0 and 1 are read into half
// 0. While half 0 is scattered, chunks 2 and 3 are read into half 1. When the scatter of half 0 has ended, the half is
// empty, and chunk 4 is read into half 0 while half 1 is scattered. After the scatter of chunk 4 the command is
// delivered as OK.
package staging

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// Config is the part of the rank's configuration that the package needs.
type Config struct {
	Settings
	PageBytes uint64
	// Depth is the largest number of items in a batch: half of the staging pages of a fetch.
	Depth      uint32
	ItemsMax   uint32 // limit of items in a fetch
	SourcesMax uint32 // limit of sources in a fetch
}

// DepthOf returns the depth for poolBytes of staging memory in all, in two buffers of equally many pages. DepthOf
// returns 1 if not even two pages fit.
func DepthOf(poolBytes, pageBytes uint64) uint32 {
	return uint32(min(max(1, poolBytes/(2*max(1, pageBytes))), 1<<31))
}

// Pipeline is the table of fetches of a rank.
type Pipeline struct {
	cfg            Config
	fetches        table.Slab[fetch]
	byTicket       table.Index
	shortFetches   table.List // fetches that want more staging pages than they have, oldest first
	stagedPages    uint32     // staging pages of all fetches together
	stagedPagesMax uint32     // the largest value of staged so far
	draining       bool
	lostLinks      []effects.Link // links that fetches may still need
	lossSweep      kernel.Sweep   // the sweep that ends these fetches

	reports

	pairs []effects.Pair `snap:"scratch"`
}

// New returns an empty pipeline.
func New(cfg Config) Pipeline { return new(Pipeline).Recycle(cfg) }

// Recycle returns what New returns, and reuses the memory of p. The caller must not use p afterwards.
func (p *Pipeline) Recycle(cfg Config) Pipeline {
	cfg.StagingPages = max(1, cfg.StagingPages)
	cfg.Depth = max(1, min(cfg.Depth, cfg.StagingPages/2))
	return Pipeline{
		cfg: cfg, fetches: p.fetches.Recycle(int(cfg.FetchesMax)), byTicket: p.byTicket.Recycle(), pairs: p.pairs[:0],
		lostLinks: p.lostLinks[:0],
	}
}

// The kinds of completions and deadlines of this package.
const (
	kindRead uint8 = iota + 1
	kindScatter

	timerFetch uint8 = 1 // when a fetch must have its outcome
)

// CountShort returns the number of fetches that want more staging pages than they have.
func (p *Pipeline) CountShort() int { return p.shortFetches.Len() }

// StagedPages returns the number of staging pages in use.
func (p *Pipeline) StagedPages() uint32 { return p.stagedPages }

// MaxStagedPages returns the largest number of staging pages that were ever in use at the same time.
func (p *Pipeline) MaxStagedPages() uint32 { return p.stagedPagesMax }

// CountUnfinished returns the number of fetches for which a drain still waits.
func (p *Pipeline) CountUnfinished() int { return p.fetches.Len() }

// BeginDrain makes OpenFetch refuse new fetches.
func (p *Pipeline) BeginDrain() { p.draining = true }

// DrainAt ends the fetch at a slot if the fetch has no staging page yet, and reports whether there is such a slot.
// Fetches with staging pages go on until their deadlines.
func (p *Pipeline) DrainAt(v *env.Env, slot int32) bool {
	if h := p.fetches.At(slot); h != 0 && p.fetches.InList(h) {
		if f := p.fetches.Get(h); f.stagedPages == 0 {
			v.Work.SpendRows(len(f.items))
			p.endFetch(v, h, f, effects.Draining, f.stageReason())
		}
	}
	return slot < p.fetches.Slots()
}

// OnTimer handles the deadline of a fetch: the fetch ends as Expired.
func (p *Pipeline) OnTimer(v *env.Env, ref kernel.Ref) {
	f := p.fetches.Get(ref.Subject)
	f.timer = 0
	v.Out.Mark(Marks.FetchExpired)
	why := f.stageReason()
	why.Field, why.Ours = "pull.fetch_timeout", "over"
	p.endFetch(v, ref.Subject, f, effects.Expired, why)
}
