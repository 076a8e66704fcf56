package sender

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// A reserve is memory that the engine has, or waits for.
type reserve struct {
	ticket effects.Ticket
	count  uint32
	pages  []effects.Page // empty while it waits
	timer  kernel.TimerID `snap:"set"`
}

// OnReserve handles a Reserve.
func (s *Sender) OnReserve(v *env.Env, t effects.Ticket, c *Reserve) {
	switch {
	case s.draining:
		turnDown(v, t, effects.Draining, &effects.Why{})
		return
	case c.Count == 0:
		turnDown(v, t, effects.Invalid, &effects.Why{Field: "Count", Theirs: "0", Ours: "1 or more"})
		return
	case c.Patience < 0:
		turnDown(v, t, effects.Invalid, &effects.Why{Field: "Patience", Theirs: c.Patience.String(), Ours: "0 or more"})
		return
	case c.Count > s.cfg.BatchMax || c.Count > v.Filled().Total():
		turnDown(v, t, effects.TooLarge, &effects.Why{
			Field: "Count", Theirs: number(c.Count), Ours: "at most " + number(min(s.cfg.BatchMax, v.Filled().Total())),
		})
		return
	}
	h, r := s.reserves.Add()
	if r == nil {
		v.Out.Mark(MarkReservesFull)
		turnDown(v, t, effects.TooMany, &effects.Why{
			Field: "tables.commands", Ours: number(s.cfg.ReservesMax) + ", and as many reserves wait or are held",
			Remedy: "release pages, or raise tables.commands",
		})
		return
	}
	patience := c.Patience
	if patience == 0 {
		patience = s.cfg.ReserveTimeout
	}
	*r = reserve{ticket: t, count: c.Count, pages: r.pages[:0]}
	s.tickets.add(t, ticketRef(ticketReserve, h))
	s.reserves.PushBack(&s.waiting, h)
	v.Timers.Set(&r.timer, v.Now.Add(patience), timerRef(timerReserve, h))
	s.AdmitReserves(v)
}

// Shifted says, once, that somebody left the queue without having got pages.
func (s *Sender) Shifted() bool {
	was := s.shifted
	s.shifted = false
	return was
}

// AdmitReserves gives pages to those who wait, first in, first out.
func (s *Sender) AdmitReserves(v *env.Env) {
	for h := s.waiting.Front(); h != 0; h = s.waiting.Front() {
		r := s.reserves.Get(h)
		if r.count > v.Filled().Free() {
			return
		}
		s.reserves.Unlink(&s.waiting, h)
		v.Timers.Stop(&r.timer)
		r.pages = v.Filled().Take(r.count, r.pages[:0])
		for i := range r.pages {
			r.pages[i].Length = uint32(s.cfg.PageBytes) // The engine may fill all of it, and lend as much.
		}
		v.Out.Publish(r.pages)
		v.Out.Deliver(effects.Deliver{Ticket: r.ticket, Pages: r.pages})
	}
}

func (s *Sender) failReserve(v *env.Env, h table.Handle, code effects.Code) {
	v.Out.Mark(MarkReserveFailed)
	r := s.reserves.Get(h)
	s.reserves.Unlink(&s.waiting, h)
	s.shifted = true
	v.Timers.Stop(&r.timer)
	v.Out.Deliver(effects.Deliver{Ticket: r.ticket, Code: code, Why: &effects.Why{
		Stage: effects.StageMemory, Field: "Count", Theirs: number(r.count),
		Ours: "at most the " + number(v.Filled().Free()) + " pages that are free of " + number(v.Filled().Total()),
	}})
	s.removeReserve(h, r)
}

func (s *Sender) removeReserve(h table.Handle, r *reserve) {
	s.tickets.remove(r.ticket)
	r.pages = table.Shed(r.pages)
	s.reserves.Remove(h)
}

// OnRelease handles a Release.
func (s *Sender) OnRelease(v *env.Env, t effects.Ticket, c *Release) {
	ref := s.tickets.find(c.Reserved)
	h := ref.Subject
	if ref.Kind != ticketReserve || s.reserves.Listed(h) {
		turnDown(v, t, effects.NotFound, &effects.Why{
			Field: "Reserved", Theirs: number(uint64(c.Reserved)), Ours: "the ticket of a Reserve that was not released",
		})
		return
	}
	r := s.reserves.Get(h)
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
	s.removeReserve(h, r)
	refuse(v, t, effects.OK)
}
