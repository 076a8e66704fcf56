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
	cfg        reservesConfig `snap:"share"`
	slab       table.Slab[reserve]
	waiting    table.List // for pages, oldest first
	queueMoved bool       // what takeQueueMoved reports
}

// reservesConfig is the configuration of reserves.
type reservesConfig struct {
	max       uint32           // maximum number of reservations
	pages     uint32           // pages of one reservation
	pageBytes uint32           // size of a page
	timeout   effects.Duration // of a Reserve without Timeout
	// inAllocQueue means that reservations wait in the allocation queue together with peers' requests, which take pages
	// of the same pool. The room that has the queue decides which reservation or request is next, and reserved pages
	// count in the engine's share (class 0).
	inAllocQueue bool
}

type reserve struct {
	ticket effects.Ticket
	count  uint32
	tenant effects.Tenant
	waiter table.Handle   // while waiting: counts the reservation for the tenant (Pool.AddTenantWaiter)
	pages  []effects.Page // empty while waiting
	timer  kernel.TimerID `snap:"set"`
	since  effects.Time   `snap:"skip"` // when the Reserve began; for operators
}

func (x *reserves) recycle(cfg reservesConfig) reserves {
	return reserves{cfg: cfg, slab: x.slab.Recycle(int(cfg.max))}
}

// addReserve handles a Reserve: it appends the reservation to the queue and, unless inAllocQueue, serves it at once if
// possible.
func (x *reserves) addReserve(v *env.Env, t effects.Ticket, c *Reserve) {
	limit, by := min(x.cfg.pages, v.EnginePool().TotalPages()), " ("+v.EnginePool().ConfigKey()+")"
	if own := v.EnginePool().EngineLimit(); x.cfg.inAllocQueue && own < limit {
		limit, by = own, " (engine_share_pct)"
	}
	switch {
	case c.Count == 0:
		RefuseCommand(v, t, effects.Invalid, &effects.Why{Field: "Count", Theirs: "0", Ours: "1 or more"})
		return
	case c.Timeout < 0:
		RefuseCommand(v, t, effects.Invalid, &effects.Why{Field: "Timeout", Theirs: c.Timeout.String(), Ours: "0 or more"})
		return
	case c.Count > limit:
		RefuseCommand(v, t, effects.TooLarge, &effects.Why{
			Field: "Count", Theirs: formatCount(c.Count), Ours: "at most " + formatCount(limit) + by,
			Remedy: "reserve fewer, or enlarge " + v.EnginePool().ConfigKey(),
		})
		return
	}
	h, r := x.slab.Add()
	if r == nil {
		v.Out.Mark(Marks.ReservesFull)
		RefuseCommand(v, t, effects.TooMany, &effects.Why{
			Field: "tables.commands", Ours: formatCount(x.slab.Max()) + ", and as many reserves wait or are held",
			Remedy: "release pages, or raise tables.commands",
		})
		return
	}
	timeout := c.Timeout
	if timeout == 0 {
		timeout = x.cfg.timeout
	}
	*r = reserve{ticket: t, count: c.Count, tenant: c.Tenant, waiter: v.EnginePool().AddTenantWaiter(c.Tenant), pages: r.pages[:0],
		since: v.Now}
	v.Tickets.Add(t, engineRef(kindReserve, h))
	x.slab.PushBack(&x.waiting, h)
	v.Timers.Set(&r.timer, v.Now.Add(timeout), engineRef(kindReserve, h))
	if x.cfg.inAllocQueue {
		x.queueMoved = true // The reservation may be next.
		return
	}
	x.grantWaiting(v)
}

// len returns the number of reservations, waiting ones included.
func (x *reserves) len() int { return x.slab.Len() }

// takeQueueMoved reports, once, that a reservation left the queue without pages, or joined the allocation queue. The
// rows behind the former, or the latter itself, may be served now.
func (x *reserves) takeQueueMoved() bool {
	moved := x.queueMoved
	x.queueMoved = false
	return moved
}

// onTimer refuses a reservation that has waited for as long as it may.
func (x *reserves) onTimer(v *env.Env, h table.Handle) {
	x.slab.Get(h).timer = 0
	x.failReserve(v, h, effects.NoMemory)
}

// isWaiting reports whether a reservation has no pages yet.
func (x *reserves) isWaiting(h table.Handle) bool { return x.slab.InList(h) }

// nextWaiting returns the first waiting reservation that the share of its tenant does not hold back, and how many pages it
// needs. nextWaiting returns zero if there is none.
func (x *reserves) nextWaiting(v *env.Env) (h table.Handle, pages uint32) {
	pool := v.EnginePool()
	pool.BeginTenantScan()
	for h := x.waiting.Front(); h != 0; h = x.slab.Next(h) {
		r := x.slab.Get(h)
		switch {
		case pool.FitsTenant(r.tenant, r.count) && !pool.IsTenantMarked(r.waiter):
			return h, r.count
		case pool.IsTenantMarked(r.waiter): // An earlier reservation for the tenant comes first.
		default:
			pool.MarkTenant(r.waiter)
		}
	}
	return 0, 0
}

// firstWaiting returns the first reservation that waits in the allocation queue, and how many pages it needs.
// firstWaiting returns zero if there is none.
func (x *reserves) firstWaiting(v *env.Env) (h table.Handle, pages uint32) {
	if x.cfg.inAllocQueue {
		return x.nextWaiting(v)
	}
	return 0, 0
}

// grantWaiting gives free pages to waiting reservations, in order, as many pages as this step has work for.
// grantWaiting does nothing if the reservations wait in the allocation queue.
func (x *reserves) grantWaiting(v *env.Env) {
	if x.cfg.inAllocQueue {
		return
	}
	for h, count := x.nextWaiting(v); h != 0 && count <= v.EnginePool().FreePages(); h, count = x.nextWaiting(v) {
		if !v.Work.HasBudget() {
			v.Out.Mark(Marks.ReservesCut)
			return
		}
		v.Work.SpendRows(int(count))
		x.grantPages(v, h)
	}
}

// grantFirst gives pages to the waiting reservation that firstWaiting returns, and counts them in the engine's share. The
// pages must be free, and the engine's share must allow them.
func (x *reserves) grantFirst(v *env.Env) {
	h, _ := x.firstWaiting(v)
	v.Pools.ChargeEngine(v.EnginePool(), x.slab.Get(h).count)
	x.grantPages(v, h)
}

// grantPages gives a waiting reservation its pages. The pages belong to the engine until their Release.
func (x *reserves) grantPages(v *env.Env, h table.Handle) {
	r := x.slab.Get(h)
	r.pages = v.EnginePool().TakePages(r.count, r.pages[:0])
	v.EnginePool().CountTenant(r.tenant, r.pages)
	x.endWait(v, h, r)
	for i := range r.pages {
		v.EnginePool().ReservePage(r.pages[i])
		r.pages[i].Length = x.cfg.pageBytes // The engine may fill and lend the whole page.
	}
	v.Out.Publish(r.pages)
	v.Out.Deliver(effects.Deliver{Ticket: r.ticket, Pages: r.pages})
}

// endWait takes a reservation out of the queue.
func (x *reserves) endWait(v *env.Env, h table.Handle, r *reserve) {
	x.slab.Unlink(&x.waiting, h)
	v.Timers.Stop(&r.timer)
	v.EnginePool().DropTenantWaiter(r.waiter)
	r.waiter = 0
}

// failReserve refuses a waiting reservation.
func (x *reserves) failReserve(v *env.Env, h table.Handle, code effects.Code) {
	v.Out.Mark(Marks.ReserveFailed)
	r := x.slab.Get(h)
	pool := v.EnginePool()
	fitsTenant := pool.FitsTenant(r.tenant, r.count)
	x.endWait(v, h, r)
	x.queueMoved = true
	free, total := formatCount(pool.FreePages()), formatCount(pool.TotalPages())
	why := &effects.Why{
		Stage: effects.StageMemory, Field: "Count", Theirs: formatCount(r.count),
		Ours: "at most the " + free + " pages that are free of " + total,
	}
	switch {
	case !fitsTenant:
		why.Ours = formatCount(pool.TenantUse(r.tenant)) + " of at most " + formatCount(pool.TenantLimit()) + " of " + total +
			" pages in use by the chunks of this tenant (tenant_share_pct)"
	case x.cfg.inAllocQueue && r.count <= pool.FreePages():
		why.Ours = "its turn: the " + free + " pages that are free of " + total +
			" are kept for a peer, or beyond the engine's " + formatCount(pool.EngineLimit()) + " (engine_share_pct)"
	}
	v.Out.Deliver(effects.Deliver{Ticket: r.ticket, Code: code, Why: why})
	x.removeReserve(v, h, r)
}

// failFirst refuses the first waiting reservation, and reports whether there was one.
func (x *reserves) failFirst(v *env.Env, code effects.Code) bool {
	h := x.waiting.Front()
	if h != 0 {
		x.failReserve(v, h, code)
	}
	return h != 0
}

// releaseReserve handles a Release. All pages go back, or none if a put or a Share holds any of the pages (M1).
func (x *reserves) releaseReserve(v *env.Env, t effects.Ticket, c *Release) {
	ref := v.Tickets.Find(c.Reserved)
	if ref.Owner != kernel.OwnerEngine || ref.Kind != kindReserve || x.isWaiting(ref.Subject) {
		RefuseCommand(v, t, effects.NotFound, &effects.Why{
			Field: "Reserved", Theirs: formatCount(uint64(c.Reserved)), Ours: "the ticket of a Reserve that was not released",
		})
		return
	}
	r := x.slab.Get(ref.Subject)
	for _, p := range r.pages {
		if v.EnginePool().HasHold(p) {
			v.Out.Mark(Marks.ReleaseInUse)
			RefuseCommand(v, t, effects.Invalid, pagesInUseReason("Reserved"))
			return
		}
	}
	for _, p := range r.pages {
		v.EnginePool().UnreservePage(p)
		v.EnginePool().DropRef(p)
	}
	if x.cfg.inAllocQueue {
		v.Pools.DischargeEngine(v.EnginePool(), uint32(len(r.pages)))
	}
	x.removeReserve(v, ref.Subject, r)
	DeliverOK(v, t)
}

func (x *reserves) removeReserve(v *env.Env, h table.Handle, r *reserve) {
	v.Tickets.Remove(r.ticket)
	r.pages = table.TrimSlice(r.pages)
	x.slab.Remove(h)
}
