// Package staging is the room through which a receiver's engine fetches chunks whose bytes
// are still at their senders (delayed pull). It reads them into a few staging pages and
// hands them to the engine's device code batch by batch, reading one batch while the one
// before it is scattered.
//
// The room knows no keys and no links: a fetch is made of plain values. Three things come
// back, each exactly once: a Deliver for the command, a [Report] for everything that the
// caller lent, and each staging page to the pool once nothing can touch it.
package staging

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// Config is the part of the rank's configuration that the room needs.
type Config struct {
	PageBytes uint64
	// Depth is the most items that one batch reads: half the staging pages of one fetch.
	Depth uint32
	// StagingMax bounds the staging pages of all fetches together. One page is enough, but
	// then nothing overlaps: a batch is read when the one before it was scattered.
	StagingMax uint32
	ItemsMax   uint32 // of one fetch
	SourcesMax uint32 // of one fetch
	FetchesMax uint32 // waiting, running, and delivered ones that something still touches
}

// DepthOf is the depth for staging of poolBytes in all: two buffers of as many pages.
// Where not even two pages fit it is 1.
func DepthOf(poolBytes, pageBytes uint64) uint32 {
	return uint32(min(max(1, poolBytes/(2*max(1, pageBytes))), 1<<31))
}

// Pipeline is the room.
type Pipeline struct {
	cfg      Config
	fetches  table.Slab[fetch]
	byTicket table.Index
	short    table.List // fetches that want more staging pages than they have, oldest first
	staged   uint32     // staging pages of all fetches
	most     uint32     // the most that there ever were
	draining bool
	lost     []effects.Link // of which fetches may still want to read
	losing   kernel.Sweep   // ends those

	reports

	pairs []effects.Pair `snap:"scratch"`
}

// New returns the room.
func New(cfg Config) Pipeline { return new(Pipeline).Emptied(cfg) }

// Emptied returns what New does, in the memory of p, which is not used any more.
func (p *Pipeline) Emptied(cfg Config) Pipeline {
	cfg.StagingMax = max(1, cfg.StagingMax)
	cfg.Depth = max(1, min(cfg.Depth, cfg.StagingMax/2))
	return Pipeline{
		cfg: cfg, fetches: p.fetches.Emptied(int(cfg.FetchesMax)), byTicket: p.byTicket.Emptied(), pairs: p.pairs[:0],
		lost: p.lost[:0],
	}
}

// Kinds of this room's completions and deadlines.
const (
	kindRead uint8 = iota + 1
	kindScatter

	timerFetch uint8 = 1 // when a fetch must have its outcome
)

// Short is the number of fetches that want more staging pages than they have.
func (p *Pipeline) Short() int { return p.short.Len() }

// Staged is the number of staging pages in use.
func (p *Pipeline) Staged() uint32 { return p.staged }

// StagedMost is the most staging pages that ever were in use at a time.
func (p *Pipeline) StagedMost() uint32 { return p.most }

// Left counts what a drain still waits for.
func (p *Pipeline) Left() int { return p.fetches.Len() }

// Drain refuses new fetches.
func (p *Pipeline) Drain() { p.draining = true }

// DrainAt ends the fetch at a slot if it has no staging page yet, and says whether there is such a slot. The others go
// on until their own deadlines.
func (p *Pipeline) DrainAt(v *env.Env, slot int32) bool {
	if h := p.fetches.At(slot); h != 0 && p.fetches.Listed(h) {
		if f := p.fetches.Get(h); f.staged == 0 {
			v.Work.Spend(len(f.items))
			p.end(v, h, f, effects.Draining, f.state())
		}
	}
	return slot < p.fetches.Slots()
}

// OnTimer handles this room's deadlines.
func (p *Pipeline) OnTimer(v *env.Env, ref kernel.Ref) {
	f := p.fetches.Get(ref.Subject)
	f.timer = 0
	v.Out.Mark(Marks.FetchExpired)
	why := f.state()
	why.Field, why.Ours = "pull.fetch_timeout", "over"
	p.end(v, ref.Subject, f, effects.Expired, why)
}
