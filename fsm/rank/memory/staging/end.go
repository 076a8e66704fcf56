package staging

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/table"
)

// endFetch fails a fetch because of an event outside the fetch's own progress.
func (p *Pipeline) endFetch(v *env.Env, h table.Handle, f *fetch, code effects.Code, why effects.Why) {
	p.failFetch(v, h, f, code, why)
	p.releaseUnused(v, h, f)
}

// failFetch ends a fetch as a whole: the engine must compute all chunks. Only the first cause is reported. The reads in
// flight are cancelled; the pages that they or a scatter still touch are released later.
func (p *Pipeline) failFetch(v *env.Env, h table.Handle, f *fetch, code effects.Code, why effects.Why) {
	if f.delivered {
		return
	}
	f.returnDue = f.halves[f.scatteredBatches&1].state == scattering
	p.deliverOutcome(v, h, f, code, &why)
	for i := range f.sources {
		if s := &f.sources[i]; s.read != 0 && !s.completed {
			v.Out.Cancel(s.read)
		}
	}
	for i := range f.halves {
		if b := &f.halves[i]; b.state == full {
			p.emptyHalf(f, b)
		}
	}
	p.releaseLocal(f, f.next, uint32(len(f.items)))
}

// deliverOutcome gives a fetch its only outcome. Held means that a scatter still stores into the engine's memory (M8).
// Reads that go on do not count, because they store into staging pages, which never belonged to the engine.
func (p *Pipeline) deliverOutcome(v *env.Env, h table.Handle, f *fetch, code effects.Code, why *effects.Why) {
	f.delivered = true
	v.Timers.Stop(&f.timer)
	if p.fetches.InList(h) {
		p.fetches.Unlink(&p.shortFetches, h)
	}
	out := effects.Deliver{Ticket: f.ticket, Code: code, Held: f.returnDue, Begun: code != effects.OK, Why: why}
	if code == effects.OK {
		out.Hits = uint32(len(f.items))
	}
	v.Out.Deliver(out)
	p.addReport(Ended, f, 0, code)
}

// failureReason returns the reason for a failure because of a source.
func (s *source) failureReason(field, detail string) effects.Why {
	return effects.Why{Name: s.Name, Peer: s.Peer, Stage: effects.StageTransfer, Field: field, Ours: detail}
}

// stageReason describes a fetch that is ended from outside: the stage of the fetch, and the first source that it was
// still reading.
func (f *fetch) stageReason() effects.Why {
	for i := range f.sources {
		if s := &f.sources[i]; s.read != 0 || s.unreadItems > 0 {
			return effects.Why{Name: s.Name, Peer: s.Peer, Stage: effects.StageTransfer}
		}
	}
	return effects.Why{Stage: effects.StageScatter}
}

// emptyHalf empties a half that nothing touches.
func (p *Pipeline) emptyHalf(f *fetch, b *half) {
	p.releaseLocal(f, b.first, b.first+uint32(len(b.pages)))
	for i, page := range b.pages {
		if it := &f.items[int(b.first)+i]; !it.isLocal() {
			f.idlePages = append(f.idlePages, page)
		}
	}
	b.state, b.pages = empty, b.pages[:0]
}

// releaseUnused releases everything that a fetch has no more use for, and removes the fetch when nothing is left.
func (p *Pipeline) releaseUnused(v *env.Env, h table.Handle, f *fetch) {
	p.returnIdlePages(v, f)
	p.releaseSources(f)
	// The fetch never wants more pages later than now.
	if p.fetches.InList(h) && f.stagedPages >= p.pagesWanted(f) {
		p.fetches.Unlink(&p.shortFetches, h)
	}
	if f.delivered && f.halves[0].state == empty && f.halves[1].state == empty {
		p.byTicket.Remove(ticketHash(f.ticket), h)
		f.items, f.sources = table.TrimSlice(f.items), table.TrimSlice(f.sources)
		p.fetches.Remove(h)
	}
}
