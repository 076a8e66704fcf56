package engine

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// reserves contains the reservations of the engine, granted and waiting ones. Reservations are served first in, first
// out, so that small reservations do not overtake a large reservation.
type reserves struct {
	cfg     reservesConfig `snap:"share"`
	slab    table.Slab[reserve]
	waiting table.List // for pages, oldest first
	shifted bool       // what leftLine reports
}

// reservesConfig is the configuration of reserves.
type reservesConfig struct {
	max       uint32           // maximum number of reservations
	pages     uint32           // pages of one reservation
	pageBytes uint32           // size of a page
	patience  effects.Duration // of a Reserve without Patience
	// inLine means that reservations wait in the allocation queue together with peers' requests, which take pages of
	// the same pool. The room that has the queue decides which reservation or request is next, and reserved pages count
	// in the engine's share (class 0).
	inLine bool
}

type reserve struct {
	ticket effects.Ticket
	count  uint32
	pages  []effects.Page // empty while waiting
	timer  kernel.TimerID `snap:"set"`
}

func (x *reserves) emptied(cfg reservesConfig) reserves {
	return reserves{cfg: cfg, slab: x.slab.Emptied(int(cfg.max))}
}

// add handles a Reserve: it appends the reservation to the queue and, unless inLine, serves it at once if possible.
func (x *reserves) add(v *env.Env, t effects.Ticket, c *Reserve) {
	most, by := min(x.cfg.pages, v.Filled().Total()), " ("+v.Filled().Key()+")"
	if own := v.Filled().MostOfOwn(); x.cfg.inLine && own < most {
		most, by = own, " (engine_share_pct)"
	}
	switch {
	case c.Count == 0:
		TurnDown(v, t, effects.Invalid, &effects.Why{Field: "Count", Theirs: "0", Ours: "1 or more"})
		return
	case c.Patience < 0:
		TurnDown(v, t, effects.Invalid, &effects.Why{Field: "Patience", Theirs: c.Patience.String(), Ours: "0 or more"})
		return
	case c.Count > most:
		TurnDown(v, t, effects.TooLarge, &effects.Why{
			Field: "Count", Theirs: number(c.Count), Ours: "at most " + number(most) + by,
			Remedy: "reserve fewer, or enlarge " + v.Filled().Key(),
		})
		return
	}
	h, r := x.slab.Add()
	if r == nil {
		v.Out.Mark(Marks.ReservesFull)
		TurnDown(v, t, effects.TooMany, &effects.Why{
			Field: "tables.commands", Ours: number(x.slab.Max()) + ", and as many reserves wait or are held",
			Remedy: "release pages, or raise tables.commands",
		})
		return
	}
	patience := c.Patience
	if patience == 0 {
		patience = x.cfg.patience
	}
	*r = reserve{ticket: t, count: c.Count, pages: r.pages[:0]}
	v.Tickets.Add(t, ref(kindReserve, h))
	x.slab.PushBack(&x.waiting, h)
	v.Timers.Set(&r.timer, v.Now.Add(patience), ref(kindReserve, h))
	if x.cfg.inLine {
		x.shifted = true // The reservation may be next.
		return
	}
	x.admit(v)
}

// len returns the number of reservations, waiting ones included.
func (x *reserves) len() int { return x.slab.Len() }

// leftLine reports, once, that a reservation left the queue without pages, or joined the allocation queue. The rows
// behind the former, or the latter itself, may be served now.
func (x *reserves) leftLine() bool {
	was := x.shifted
	x.shifted = false
	return was
}

// due refuses a reservation that has waited for as long as it may.
func (x *reserves) due(v *env.Env, h table.Handle) {
	x.slab.Get(h).timer = 0
	x.fail(v, h, effects.NoMemory)
}

// waits reports whether a reservation has no pages yet.
func (x *reserves) waits(h table.Handle) bool { return x.slab.Listed(h) }

// head returns how many pages the first waiting reservation needs. head reports false if none waits.
func (x *reserves) head() (pages uint32, ok bool) {
	if r := x.slab.Get(x.waiting.Front()); r != nil {
		return r.count, true
	}
	return 0, false
}

// first returns the first reservation that waits in the allocation queue, and how many pages it needs. first returns
// zero if there is none.
func (x *reserves) first() (h table.Handle, pages uint32) {
	if pages, ok := x.head(); ok && x.cfg.inLine {
		return x.waiting.Front(), pages
	}
	return 0, 0
}

// admit gives free pages to waiting reservations, in order, as many pages as this step has work for. admit does nothing
// if the reservations wait in the allocation queue.
func (x *reserves) admit(v *env.Env) {
	if x.cfg.inLine {
		return
	}
	for count, ok := x.head(); ok && count <= v.Filled().Free(); count, ok = x.head() {
		if !v.Work.Left() {
			v.Out.Mark(Marks.ReservesCut)
			return
		}
		v.Work.Spend(int(count))
		x.admitFirst(v, count)
	}
}

// grantFirst gives pages to the first waiting reservation, which is next, and counts them in the engine's share. The
// pages must be free, and the engine's share must allow them.
func (x *reserves) grantFirst(v *env.Env) {
	count, _ := x.head()
	v.Pools.Charge(v.Filled(), count)
	x.admitFirst(v, count)
}

// admitFirst gives count pages to the first waiting reservation. The pages belong to the engine until their Release.
func (x *reserves) admitFirst(v *env.Env, count uint32) {
	h := x.waiting.Front()
	r := x.slab.Get(h)
	x.slab.Unlink(&x.waiting, h)
	v.Timers.Stop(&r.timer)
	r.pages = v.Filled().Take(count, r.pages[:0])
	for i := range r.pages {
		v.Filled().Reserve(r.pages[i])
		r.pages[i].Length = x.cfg.pageBytes // The engine may fill and lend the whole page.
	}
	v.Out.Publish(r.pages)
	v.Out.Deliver(effects.Deliver{Ticket: r.ticket, Pages: r.pages})
}

// fail refuses a waiting reservation.
func (x *reserves) fail(v *env.Env, h table.Handle, code effects.Code) {
	v.Out.Mark(Marks.ReserveFailed)
	r := x.slab.Get(h)
	x.slab.Unlink(&x.waiting, h)
	x.shifted = true
	v.Timers.Stop(&r.timer)
	why := &effects.Why{
		Stage: effects.StageMemory, Field: "Count", Theirs: number(r.count),
		Ours: "at most the " + number(v.Filled().Free()) + " pages that are free of " + number(v.Filled().Total()),
	}
	if x.cfg.inLine && r.count <= v.Filled().Free() {
		why.Ours = "its turn: the " + number(v.Filled().Free()) + " pages that are free of " + number(v.Filled().Total()) +
			" are kept for a peer, or beyond the engine's " + number(v.Filled().MostOfOwn()) + " (engine_share_pct)"
	}
	v.Out.Deliver(effects.Deliver{Ticket: r.ticket, Code: code, Why: why})
	x.remove(v, h, r)
}

// failFirst refuses the first waiting reservation, and reports whether there was one.
func (x *reserves) failFirst(v *env.Env, code effects.Code) bool {
	h := x.waiting.Front()
	if h != 0 {
		x.fail(v, h, code)
	}
	return h != 0
}

// release handles a Release. All pages go back, or none if a put or a Share holds any of the pages (M1).
func (x *reserves) release(v *env.Env, t effects.Ticket, c *Release) {
	of := v.Tickets.Find(c.Reserved)
	if of.Owner != kernel.OwnerEngine || of.Kind != kindReserve || x.waits(of.Subject) {
		TurnDown(v, t, effects.NotFound, &effects.Why{
			Field: "Reserved", Theirs: number(uint64(c.Reserved)), Ours: "the ticket of a Reserve that was not released",
		})
		return
	}
	r := x.slab.Get(of.Subject)
	for _, p := range r.pages {
		if v.Filled().Held(p) {
			v.Out.Mark(Marks.ReleaseInUse)
			TurnDown(v, t, effects.Invalid, inUse("Reserved"))
			return
		}
	}
	for _, p := range r.pages {
		v.Filled().Unreserve(p)
		v.Filled().Unref(p)
	}
	if x.cfg.inLine {
		v.Pools.Discharge(v.Filled(), uint32(len(r.pages)))
	}
	x.remove(v, of.Subject, r)
	Agree(v, t)
}

func (x *reserves) remove(v *env.Env, h table.Handle, r *reserve) {
	v.Tickets.Remove(r.ticket)
	r.pages = table.Shed(r.pages)
	x.slab.Remove(h)
}
