package staging

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/table"
)

// end fails a fetch because of an event outside the fetch's own progress.
func (p *Pipeline) end(v *env.Env, h table.Handle, f *fetch, code effects.Code, why effects.Why) {
	p.fail(v, h, f, code, why)
	p.tidy(v, h, f)
}

// fail ends a fetch as a whole: the engine must compute all chunks. Only the first cause is reported. The reads in
// flight are cancelled; the pages that they or a scatter still touch are released later.
func (p *Pipeline) fail(v *env.Env, h table.Handle, f *fetch, code effects.Code, why effects.Why) {
	if f.delivered {
		return
	}
	f.held = f.halves[f.scattered&1].state == scattering
	p.deliver(v, h, f, code, &why)
	for i := range f.sources {
		if s := &f.sources[i]; s.read != 0 && !s.done {
			v.Out.Cancel(s.read)
		}
	}
	for i := range f.halves {
		if b := &f.halves[i]; b.state == full {
			p.retire(f, b)
		}
	}
	p.releaseLocal(f, f.next, uint32(len(f.items)))
}

// deliver gives a fetch its only outcome. Held means that a scatter still stores into the engine's memory (M8). Reads
// that go on do not count, because they store into staging pages, which never belonged to the engine.
func (p *Pipeline) deliver(v *env.Env, h table.Handle, f *fetch, code effects.Code, why *effects.Why) {
	f.delivered = true
	v.Timers.Stop(&f.timer)
	if p.fetches.Listed(h) {
		p.fetches.Unlink(&p.short, h)
	}
	out := effects.Deliver{Ticket: f.ticket, Code: code, Held: f.held, Begun: code != effects.OK, Why: why}
	if code == effects.OK {
		out.Hits = uint32(len(f.items))
	}
	v.Out.Deliver(out)
	p.report(Ended, f, 0, code)
}

// why returns the reason for a failure because of a source.
func (s *source) why(field, ours string) effects.Why {
	return effects.Why{Name: s.Name, Peer: s.Peer, Stage: effects.StageTransfer, Field: field, Ours: ours}
}

// state describes a fetch that is ended from outside: the stage of the fetch, and the first source that it was still
// reading.
func (f *fetch) state() effects.Why {
	for i := range f.sources {
		if s := &f.sources[i]; s.read != 0 || s.unread > 0 {
			return effects.Why{Name: s.Name, Peer: s.Peer, Stage: effects.StageTransfer}
		}
	}
	return effects.Why{Stage: effects.StageScatter}
}

// retire empties a half that nothing touches.
func (p *Pipeline) retire(f *fetch, b *half) {
	p.releaseLocal(f, b.first, b.first+uint32(len(b.pages)))
	for i, page := range b.pages {
		if it := &f.items[int(b.first)+i]; !it.local() {
			f.idle = append(f.idle, page)
		}
	}
	b.state, b.pages = empty, b.pages[:0]
}

// tidy releases everything that a fetch has no more use for, and removes the fetch when nothing is left.
func (p *Pipeline) tidy(v *env.Env, h table.Handle, f *fetch) {
	p.trim(v, f)
	p.releaseSources(f)
	// The fetch never wants more pages later than now.
	if p.fetches.Listed(h) && f.staged >= p.wants(f) {
		p.fetches.Unlink(&p.short, h)
	}
	if f.delivered && f.halves[0].state == empty && f.halves[1].state == empty {
		p.byTicket.Remove(ticketHash(f.ticket), h)
		f.items, f.sources = table.Shed(f.items), table.Shed(f.sources)
		p.fetches.Remove(h)
	}
}
