package staging

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/prng"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory"
	"github.com/kvferry/kvferry/fsm/table"
)

const pageBytes = 64

// fatal is what tests of both kinds can do.
type fatal interface {
	Helper()
	Fatalf(format string, args ...any)
}

// rig is the room alone, with what its caller and the driver do around it. It holds the
// room to everything that it promises, after each step.
type rig struct {
	t         fatal
	cfg       Config
	p         Pipeline
	pools     memory.Pools
	pool      *memory.Pool
	timers    kernel.Timers
	corrs     kernel.Corrs
	out       effects.Effects
	now       effects.Time
	freed     uint64
	tickets   effects.Ticket
	lease     effects.Time                  // of the sources of fetches opened from now on
	until     map[table.Handle]effects.Time // of some of those; of the others it is for ever
	fetches   []*fetchModel
	reads     []*readModel
	scatters  []*scatter
	cancels   []effects.Corr
	content   map[uint32]effects.RemotePage // of staging pages, by index: what was read last
	published map[effects.Generation]bool   // published
	onEffect  func(e effects.Effect)        // told of each, if it is set
	onReport  func(Report)
}

// fetchModel is a fetch as its caller knows it.
type fetchModel struct {
	Fetch
	staging  []uint32 // pages that it reads or scatters now
	next     uint32   // the next item to be scattered
	outcome  *effects.Deliver
	returned bool
	pins     []table.Handle // of locals that were released
	released []table.Handle // sources
	ended    int
	lost     []effects.Link // links that were lost since it began
}

// readModel is a Transfer under way; over says that only its Settled is due.
type readModel struct {
	e         effects.Transfer
	fetch     *fetchModel
	source    uint32
	began     effects.Time
	completed bool
}

type scatter struct {
	e     effects.Scatter
	fetch *fetchModel
	began effects.Time
}

func newRig(t fatal, pages uint32, cfg Config) *rig {
	if cfg.PageBytes == 0 {
		cfg.PageBytes = pageBytes
	}
	if cfg.FetchesMax == 0 {
		cfg.ItemsMax, cfg.SourcesMax, cfg.FetchesMax = 32, 4, 4
	}
	r := &rig{
		t: t, cfg: cfg, p: New(cfg), pools: memory.New(1, 1, prng.Shuffle{}, memory.PoolConfig{Pages: pages}),
		timers: kernel.NewTimers(int(cfg.FetchesMax)), now: effects.Time(effects.Second), lease: never,
		until:   map[table.Handle]effects.Time{},
		content: map[uint32]effects.RemotePage{}, published: map[effects.Generation]bool{},
	}
	r.pool, r.cfg = r.pools.Pool(0), r.p.cfg
	r.corrs = kernel.NewCorrs(int(r.p.cfg.StagingPages + r.p.cfg.FetchesMax))
	return r
}

// ReadDeadline is until when a source may be read.
func (r *rig) ReadDeadline(source table.Handle) effects.Time {
	if at, ok := r.until[source]; ok {
		return at
	}
	return never
}

// unlimitedRights lets each source be read.
type unlimitedRights struct{}

func (unlimitedRights) ReadDeadline(table.Handle) effects.Time { return never }

// withdraw takes a source from all fetches.
func (r *rig) withdraw(v *env.Env, source table.Handle) {
	r.t.Helper()
	if !r.p.WithdrawSource(v, source, effects.Withdrawn, func(effects.Ticket) bool { return true }) {
		r.t.Fatalf("some still read of source %d", source)
	}
}

// step is one step, with what the rank does around it.
func (r *rig) step(f func(v *env.Env)) {
	r.t.Helper()
	r.out.Reset()
	v := &env.Env{Now: r.now, Out: &r.out, Pools: &r.pools, Pool: r.pool, Timers: &r.timers, Corrs: &r.corrs}
	f(v)
	for {
		said, ok := r.p.Next()
		switch {
		case ok:
			r.handleReport(said)
		case r.freed != r.pools.FreedCount():
			r.freed = r.pools.FreedCount()
			r.p.AdmitFetches(v, r)
		default:
			for i := range r.out.Len() {
				r.handleEffect(r.out.At(i))
			}
			r.out.Scribble()
			r.checkPages()
			r.checkLacking()
			return
		}
	}
}

// checkLacking holds what bounds a step's look at those that are short: each lacks a page at least.
func (r *rig) checkLacking() {
	r.t.Helper()
	for h := r.p.shortFetches.Front(); h != 0; h = r.p.fetches.Next(h) {
		if f := r.p.fetches.Get(h); f.stagedPages >= r.p.pagesWanted(f) {
			r.t.Fatalf("ticket %d is short with %d of the %d pages that it wants", f.ticket, f.stagedPages, r.p.pagesWanted(f))
		}
	}
}

func (r *rig) handleReport(said Report) {
	r.t.Helper()
	if r.onReport != nil {
		r.onReport(said)
	}
	f := r.fetch(said.Ticket)
	switch said.Kind {
	case SourceReleased:
		if slices.Contains(f.released, said.Subject) {
			r.t.Fatalf("source %d of ticket %d is released twice", said.Subject, said.Ticket)
		}
		f.released = append(f.released, said.Subject)
		for _, rd := range r.reads {
			if rd.fetch == f && f.Sources[rd.source].ID == said.Subject {
				r.t.Fatalf("source %d of ticket %d is released while read %d goes on", said.Subject, said.Ticket, rd.e.Corr)
			}
		}
	case LocalReleased:
		if slices.Contains(f.pins, said.Subject) {
			r.t.Fatalf("local %d of ticket %d is released twice", said.Subject, said.Ticket)
		}
		f.pins = append(f.pins, said.Subject)
		for _, it := range f.Items {
			if it.isLocal() && it.Pin == said.Subject {
				for _, s := range r.scatters {
					if s.fetch == f && slices.ContainsFunc(s.e.Pages, func(p effects.Page) bool { return p.Index == it.Local.Index }) {
						r.t.Fatalf("local %d of ticket %d is released while it is scattered", said.Subject, said.Ticket)
					}
				}
				r.pool.DropRef(it.Local)
			}
		}
	case Ended:
		f.ended++
	}
}

func (r *rig) fetch(t effects.Ticket) *fetchModel {
	r.t.Helper()
	for _, f := range r.fetches {
		if f.Ticket == t {
			return f
		}
	}
	r.t.Fatalf("nobody asked for ticket %d", t)
	return nil
}

// sourceOfGrant is the fetch and the position of its source that a Transfer is for: grants are
// given to one fetch each here.
func (r *rig) sourceOfGrant(g effects.GrantID) (*fetchModel, uint32) {
	r.t.Helper()
	for _, f := range r.fetches {
		for i := range f.Sources {
			if f.Sources[i].Grant == g {
				return f, uint32(i)
			}
		}
	}
	r.t.Fatalf("nobody was granted %d", g)
	return nil, 0
}

func (r *rig) handleEffect(e effects.Effect) {
	r.t.Helper()
	if r.onEffect != nil {
		r.onEffect(e)
	}
	switch e := e.(type) {
	case *effects.Publish:
		for _, page := range e.Pages {
			r.published[page.Generation] = true
		}
	case *effects.Transfer:
		r.transfer(e)
	case *effects.Scatter:
		r.scatter(e)
	case *effects.Cancel:
		r.cancels = append(r.cancels, e.Corr)
	case *effects.Deliver:
		f := r.fetch(e.Ticket)
		if f.outcome != nil {
			r.t.Fatalf("ticket %d is delivered twice", e.Ticket)
		}
		kept := *e
		f.outcome = &kept
		if held := r.scattering(f); held != e.Held {
			r.t.Fatalf("ticket %d is delivered with held %v; scattered is it %v", e.Ticket, e.Held, held)
		}
	case *effects.Return:
		f := r.fetch(e.Ticket)
		if f.outcome == nil || !f.outcome.Held || f.returned || r.scattering(f) {
			r.t.Fatalf("ticket %d is returned: %+v, returned %v", e.Ticket, f.outcome, f.returned)
		}
		f.returned = true
	default:
		r.t.Fatalf("a pipeline asks for %T", e)
	}
}

func (r *rig) scattering(f *fetchModel) bool {
	return slices.ContainsFunc(r.scatters, func(s *scatter) bool { return s.fetch == f })
}

// transfer checks a read: whose it is, from where, into which pages, and until when.
func (r *rig) transfer(e *effects.Transfer) {
	r.t.Helper()
	f, at := r.sourceOfGrant(e.Grant)
	s := &f.Sources[at]
	switch {
	case !e.Read || e.Link != s.Link || e.Peer != s.Peer:
		r.t.Fatalf("read %+v of source %+v", e, s)
	case f.outcome != nil || slices.Contains(f.released, s.ID):
		r.t.Fatalf("ticket %d reads after its outcome %+v, or after it released source %d", f.Ticket, f.outcome, s.ID)
	case e.NotAfter != min(f.Deadline, r.ReadDeadline(s.ID)) || r.now > e.NotAfter:
		r.t.Fatalf("a read is begun at %d, not after %d", r.now, e.NotAfter)
	case slices.Contains(f.lost, e.Link):
		r.t.Fatalf("a read over link %d, which was lost", e.Link)
	}
	for _, rd := range r.reads {
		if rd.fetch == f && rd.source == at {
			r.t.Fatalf("two reads of source %d at a time", s.ID)
		}
	}
	kept := *e
	kept.Pairs = slices.Clone(e.Pairs)
	for _, pair := range kept.Pairs {
		if !r.pool.IsLive(pair.Local) || !r.published[pair.Local.Generation] || r.isTouched(pair.Local.Index) {
			r.t.Fatalf("ticket %d reads into page %+v, which is somebody's or was not published", f.Ticket, pair.Local)
		}
		if !slices.ContainsFunc(f.Items, func(it Item) bool {
			return !it.isLocal() && it.Source == at && it.Remote == pair.Remote && it.Length == pair.Local.Length
		}) {
			r.t.Fatalf("ticket %d reads %+v, which it was not asked for", f.Ticket, pair)
		}
		delete(r.content, pair.Local.Index)
	}
	r.reads = append(r.reads, &readModel{e: kept, fetch: f, source: at, began: r.now})
}

// isTouched says whether a read or a scatter is under way on a page (S15).
func (r *rig) isTouched(index uint32) bool {
	return slices.ContainsFunc(r.reads, func(rd *readModel) bool {
		return slices.ContainsFunc(rd.e.Pairs, func(p effects.Pair) bool { return p.Local.Index == index })
	}) || slices.ContainsFunc(r.scatters, func(s *scatter) bool {
		return slices.ContainsFunc(s.e.Pages, func(p effects.Page) bool { return p.Index == index })
	})
}

// scatter checks that the engine is given the next items, whole, and once.
func (r *rig) scatter(e *effects.Scatter) {
	r.t.Helper()
	f := r.fetch(e.Ticket)
	if e.First != f.next || len(e.Pages) == 0 || f.outcome != nil || r.scattering(f) {
		r.t.Fatalf("ticket %d scatters %d items from %d; the next is %d, its outcome %+v", e.Ticket, len(e.Pages), e.First,
			f.next, f.outcome)
	}
	for i, page := range e.Pages {
		it := f.Items[int(e.First)+i]
		switch {
		case it.isLocal() && page != it.Local:
			r.t.Fatalf("item %d of ticket %d is scattered from %+v, not from %+v", int(e.First)+i, e.Ticket, page, it.Local)
		case !it.isLocal() && (r.content[page.Index] != it.Remote || page.Length != it.Length || r.isTouched(page.Index) ||
			!r.pool.IsLive(page)):
			r.t.Fatalf("item %d of ticket %d, %+v, is scattered from %+v, which holds %+v", int(e.First)+i, e.Ticket, it, page,
				r.content[page.Index])
		}
	}
	f.next += uint32(len(e.Pages))
	kept := *e
	kept.Pages = slices.Clone(e.Pages)
	r.scatters = append(r.scatters, &scatter{e: kept, fetch: f, began: r.now})
}

// checkPages checks what must hold between any two steps.
func (r *rig) checkPages() {
	r.t.Helper()
	for _, f := range r.fetches {
		f.staging = f.staging[:0]
	}
	for _, rd := range r.reads {
		for _, pair := range rd.e.Pairs {
			rd.fetch.staging = append(rd.fetch.staging, pair.Local.Index)
			if !r.pool.IsLive(pair.Local) {
				r.t.Fatalf("page %d is free while it is read into", pair.Local.Index)
			}
		}
	}
	for _, s := range r.scatters {
		for i, page := range s.e.Pages {
			if it := s.fetch.Items[int(s.e.First)+i]; !it.isLocal() {
				s.fetch.staging = append(s.fetch.staging, page.Index)
			}
			if !r.pool.IsLive(page) {
				r.t.Fatalf("page %d is free while it is scattered", page.Index)
			}
		}
	}
	if r.p.StagedPages() > r.cfg.StagingPages {
		r.t.Fatalf("%d staging pages, at most %d", r.p.StagedPages(), r.cfg.StagingPages)
	}
	for _, f := range r.fetches {
		if in := r.p.fetches.Get(r.p.findFetch(f.Ticket)); in != nil && in.stagedPages > 2*r.cfg.Depth ||
			len(f.staging) > int(2*r.cfg.Depth) {
			r.t.Fatalf("ticket %d has %d staging pages in use, with depth %d", f.Ticket, len(f.staging), r.cfg.Depth)
		}
		if f.outcome == nil && len(f.staging) == 0 && !r.scattering(f) && r.pool.FreePages() > 0 &&
			r.p.StagedPages() < r.cfg.StagingPages {
			r.t.Fatalf("ticket %d stands still while pages are free", f.Ticket)
		}
		if (f.outcome != nil) != (f.ended == 1) || f.outcome == nil && f.ended > 0 {
			r.t.Fatalf("ticket %d: outcome %+v, reported %d times", f.Ticket, f.outcome, f.ended)
		}
	}
}
