package sender

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// Reserves are the memory that the engine has, or waits for: first in, first out, so that who asks for much is not
// passed by those who ask for little.
type reserves struct {
	pageBytes uint32           `snap:"share"`
	most      uint32           `snap:"share"` // pages of one
	patience  effects.Duration `snap:"share"` // of those that say none
	slab      table.Slab[reserve]
	waiting   table.List // for pages, oldest first
	shifted   bool       // somebody left that queue without pages
}

type reserve struct {
	ticket effects.Ticket
	count  uint32
	pages  []effects.Page // empty while it waits
	timer  kernel.TimerID `snap:"set"`
}

func newReserves(cfg *Config) reserves {
	return reserves{
		pageBytes: uint32(cfg.PageBytes), most: cfg.BatchMax, patience: cfg.ReserveTimeout,
		slab: table.NewSlab[reserve](int(cfg.ReservesMax)),
	}
}

// add handles a Reserve: it waits, at the end of the queue, which may be its front.
func (x *reserves) add(v *env.Env, open *tickets, t effects.Ticket, c *Reserve) {
	switch most := min(x.most, v.Filled().Total()); {
	case c.Count == 0:
		turnDown(v, t, effects.Invalid, &effects.Why{Field: "Count", Theirs: "0", Ours: "1 or more"})
		return
	case c.Patience < 0:
		turnDown(v, t, effects.Invalid, &effects.Why{Field: "Patience", Theirs: c.Patience.String(), Ours: "0 or more"})
		return
	case c.Count > most:
		turnDown(v, t, effects.TooLarge, &effects.Why{
			Field: "Count", Theirs: number(c.Count), Ours: "at most " + number(most),
		})
		return
	}
	h, r := x.slab.Add()
	if r == nil {
		v.Out.Mark(MarkReservesFull)
		turnDown(v, t, effects.TooMany, &effects.Why{
			Field: "tables.commands", Ours: number(x.slab.Max()) + ", and as many reserves wait or are held",
			Remedy: "release pages, or raise tables.commands",
		})
		return
	}
	patience := c.Patience
	if patience == 0 {
		patience = x.patience
	}
	*r = reserve{ticket: t, count: c.Count, pages: r.pages[:0]}
	open.add(t, ticketRef(ticketReserve, h))
	x.slab.PushBack(&x.waiting, h)
	v.Timers.Set(&r.timer, v.Now.Add(patience), timerRef(timerReserve, h))
	x.admit(v)
}

// len is the number of reserves, waiting ones included.
func (x *reserves) len() int { return x.slab.Len() }

// leftLine says, once, that somebody left the queue without pages: who is behind him may get some.
func (x *reserves) leftLine() bool {
	was := x.shifted
	x.shifted = false
	return was
}

// due ends a reserve whose time to wait is over.
func (x *reserves) due(v *env.Env, open *tickets, h table.Handle) {
	x.slab.Get(h).timer = 0
	x.fail(v, open, h, effects.NoMemory)
}

// waits says whether a reserve has no pages yet.
func (x *reserves) waits(h table.Handle) bool { return x.slab.Listed(h) }

// head is how many pages the first of those who wait asks for, if anybody waits.
func (x *reserves) head() (pages uint32, ok bool) {
	if r := x.slab.Get(x.waiting.Front()); r != nil {
		return r.count, true
	}
	return 0, false
}

// admit gives pages to those who wait, in order. They are the engine's until it releases them.
func (x *reserves) admit(v *env.Env) {
	for count, ok := x.head(); ok && count <= v.Filled().Free(); count, ok = x.head() {
		h := x.waiting.Front()
		r := x.slab.Get(h)
		x.slab.Unlink(&x.waiting, h)
		v.Timers.Stop(&r.timer)
		r.pages = v.Filled().Take(count, r.pages[:0])
		for i := range r.pages {
			r.pages[i].Length = x.pageBytes // The engine may fill all of it, and lend as much.
		}
		v.Out.Publish(r.pages)
		v.Out.Deliver(effects.Deliver{Ticket: r.ticket, Pages: r.pages})
	}
}

// fail ends a reserve that waits.
func (x *reserves) fail(v *env.Env, open *tickets, h table.Handle, code effects.Code) {
	v.Out.Mark(MarkReserveFailed)
	r := x.slab.Get(h)
	x.slab.Unlink(&x.waiting, h)
	x.shifted = true
	v.Timers.Stop(&r.timer)
	v.Out.Deliver(effects.Deliver{Ticket: r.ticket, Code: code, Why: &effects.Why{
		Stage: effects.StageMemory, Field: "Count", Theirs: number(r.count),
		Ours: "at most the " + number(v.Filled().Free()) + " pages that are free of " + number(v.Filled().Total()),
	}})
	x.remove(open, h, r)
}

// failAll ends all that wait.
func (x *reserves) failAll(v *env.Env, open *tickets, code effects.Code) {
	for h := x.waiting.Front(); h != 0; h = x.waiting.Front() {
		x.fail(v, open, h, code)
	}
}

// release handles a Release. All pages go back or, if a put has one of them, none.
func (x *reserves) release(v *env.Env, open *tickets, t effects.Ticket, c *Release) {
	ref := open.find(c.Reserved)
	if ref.Kind != ticketReserve || x.waits(ref.Subject) {
		turnDown(v, t, effects.NotFound, &effects.Why{
			Field: "Reserved", Theirs: number(uint64(c.Reserved)), Ours: "the ticket of a Reserve that was not released",
		})
		return
	}
	r := x.slab.Get(ref.Subject)
	for _, p := range r.pages {
		if v.Filled().Held(p) {
			v.Out.Mark(MarkReleaseInUse)
			turnDown(v, t, effects.Invalid, &effects.Why{
				Field: "Reserved", Theirs: "in use by a put", Ours: "pages that no put has",
			})
			return
		}
	}
	for _, p := range r.pages {
		v.Filled().Unref(p)
	}
	x.remove(open, ref.Subject, r)
	agree(v, t)
}

func (x *reserves) situation(h table.Handle) Situation {
	switch {
	case x.slab.Get(h) == nil:
		return Gone
	case x.waits(h):
		return ReserveWaiting
	}
	return ReserveHeld
}

func (x *reserves) remove(open *tickets, h table.Handle, r *reserve) {
	open.remove(r.ticket)
	r.pages = table.Shed(r.pages)
	x.slab.Remove(h)
}
