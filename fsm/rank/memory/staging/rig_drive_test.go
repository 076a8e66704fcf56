package staging

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/table"
)

const never = effects.Time(1 << 60)

// open asks for items: L is a local one, a digit a remote one of that source. Every source
// has its own link, peer and grant, and the id 10 × ticket + digit.
func (r *rig) open(items string, patience effects.Duration) (*fetchModel, effects.Code) {
	r.t.Helper()
	r.tickets++
	f := &fetchModel{Fetch: Fetch{Ticket: r.tickets, Deadline: r.now.Add(patience)}}
	sources := 0
	for i, c := range items {
		it := Item{Length: uint32(1 + i%pageBytes)}
		if c == 'L' {
			if r.pool.FreePages() == 0 {
				continue
			}
			it.Local = r.pool.TakePages(1, nil)[0]
			it.Local.Length, it.Pin = it.Length, table.Handle(100+i)
		} else {
			it.Source = uint32(c - '0')
			it.Remote = effects.RemotePage{Index: uint32(r.tickets)<<16 | uint32(i), Generation: effects.Generation(i + 1)}
			sources = max(sources, int(it.Source)+1)
		}
		f.Items = append(f.Items, it)
	}
	for i := range sources {
		n := uint64(r.tickets)*10 + uint64(i)
		f.Sources = append(f.Sources, Source{ID: table.Handle(n), Link: effects.Link(i + 1),
			Peer:  effects.Incarnation{byte(i + 1)},
			Grant: effects.GrantID(n)})
		r.until[table.Handle(n)] = r.lease
	}
	return f, r.openFetch(f)
}

// openFetch hands over a fetch.
func (r *rig) openFetch(f *fetchModel) (code effects.Code) {
	r.t.Helper()
	r.fetches = append(r.fetches, f)
	r.step(func(v *env.Env) {
		if code, _ = r.p.OpenFetch(v, r, &f.Fetch); code == effects.OK {
			return
		}
		for _, it := range f.Items { // Nothing has happened.
			if it.isLocal() {
				r.pool.DropRef(it.Local)
			}
		}
		r.fetches = r.fetches[:len(r.fetches)-1]
	})
	return code
}

// readEnds completes a read.
func (r *rig) readEnds(rd *readModel, code effects.Code, settled bool, at effects.Time) {
	r.t.Helper()
	if settled {
		r.reads = slices.DeleteFunc(r.reads, func(o *readModel) bool { return o == rd })
	}
	if code == effects.OK {
		for _, pair := range rd.e.Pairs {
			r.content[pair.Local.Index] = pair.Remote
		}
	}
	rd.completed = !settled
	ref, _ := r.corrs.Peek(rd.e.Corr)
	if settled {
		r.corrs.Close(rd.e.Corr)
	}
	r.step(func(v *env.Env) {
		r.p.OnTransferDone(v, r, ref, &effects.TransferDone{Corr: rd.e.Corr, Code: code, Settled: settled, At: at})
	})
}

func (r *rig) settleRead(rd *readModel) {
	r.t.Helper()
	r.reads = slices.DeleteFunc(r.reads, func(o *readModel) bool { return o == rd })
	ref, _ := r.corrs.Close(rd.e.Corr)
	r.step(func(v *env.Env) { r.p.OnSettled(v, ref) })
}

func (r *rig) scatterEnds(s *scatter, code effects.Code) {
	r.t.Helper()
	r.scatters = slices.DeleteFunc(r.scatters, func(o *scatter) bool { return o == s })
	ref, _ := r.corrs.Close(s.e.Corr)
	r.step(func(v *env.Env) { r.p.OnScattered(v, r, ref, &effects.Scattered{Corr: s.e.Corr, Code: code}) })
}

func (r *rig) lose(link effects.Link) {
	r.t.Helper()
	for _, f := range r.fetches {
		f.lost = append(f.lost, link)
	}
	r.step(func(v *env.Env) { r.p.OnLinkLost(v, link) })
}

func (r *rig) advance(d effects.Duration) {
	r.t.Helper()
	end := r.now.Add(d)
	for {
		at, ok := r.timers.NextDeadline()
		if !ok || at > end {
			break
		}
		r.now = max(r.now, at)
		ref, _ := r.timers.Pop(r.now)
		r.step(func(v *env.Env) { r.p.OnTimer(v, ref) })
	}
	r.now = end
}

// oldest is the oldest read that was completed, but not settled, or that was not completed.
func (r *rig) oldest(over bool) *readModel {
	r.t.Helper()
	for _, rd := range r.reads {
		if rd.completed == over {
			return rd
		}
	}
	r.t.Fatalf("no read under way, over %v", over)
	return nil
}

// run completes everything in the order in which it began, until nothing is under way.
func (r *rig) run() {
	r.t.Helper()
	for len(r.reads)+len(r.scatters) > 0 {
		switch {
		case len(r.reads) > 0 && r.reads[0].completed:
			r.settleRead(r.reads[0])
		case len(r.reads) > 0:
			r.readEnds(r.reads[0], effects.OK, true, r.now)
		default:
			r.scatterEnds(r.scatters[0], effects.OK)
		}
	}
}

// wantNothingLeft checks that everything which was lent came back, and nothing is remembered.
func (r *rig) wantNothingLeft() {
	r.t.Helper()
	for _, f := range r.fetches {
		locals := 0
		for _, it := range f.Items {
			if it.isLocal() {
				locals++
			}
		}
		switch {
		case f.outcome == nil:
			r.t.Fatalf("ticket %d has no outcome", f.Ticket)
		case f.outcome.Held != f.returned:
			r.t.Fatalf("ticket %d: held %v, returned %v", f.Ticket, f.outcome.Held, f.returned)
		case len(f.pins) != locals || len(f.released) != len(f.Sources):
			r.t.Fatalf("ticket %d: %d of %d locals and %d of %d sources were released", f.Ticket, len(f.pins), locals,
				len(f.released), len(f.Sources))
		case f.outcome.Code == effects.OK && (int(f.next) != len(f.Items) || f.outcome.Hits != f.next):
			r.t.Fatalf("ticket %d is well with %d of %d items, and says %d", f.Ticket, f.next, len(f.Items), f.outcome.Hits)
		}
	}
	if r.pool.FreePages() != r.pool.TotalPages() || r.p.StagedPages() != 0 || r.p.CountUnfinished() != 0 || r.p.CountShort() != 0 ||
		r.corrs.Len() != 0 || r.timers.Len() != 0 ||
		r.p.byTicket.Len() != 0 {
		r.t.Fatalf("left: %d of %d pages, %d staged, %d fetches, %d short, %d completions, %d deadlines",
			r.pool.TotalPages()-r.pool.FreePages(), r.pool.TotalPages(),
			r.p.StagedPages(), r.p.CountUnfinished(), r.p.CountShort(), r.corrs.Len(), r.timers.Len())
	}
}

// wantOutcome checks how a fetch ended.
func (r *rig) wantOutcome(f *fetchModel, code effects.Code, held bool) {
	r.t.Helper()
	if f.outcome == nil || f.outcome.Code != code || f.outcome.Held != held {
		r.t.Fatalf("ticket %d ended as %+v; want %v, held %v", f.Ticket, f.outcome, code, held)
	}
}

// drain ends all that has read nothing, as the rank's sweep does.
func (r *rig) drain() {
	r.p.BeginDrain()
	r.step(func(v *env.Env) {
		for slot := int32(0); r.p.DrainAt(v, slot); slot++ {
		}
	})
}
