package rank

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory/allocqueue"
	"github.com/kvferry/kvferry/fsm/rank/memory/landing"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
)

// Some events end many rows at once, for example the loss of a peer. These events are handled in two parts. The step
// that takes the event condemns the rows, without visiting any row. A sweep, one for each kind, then ends the condemned
// rows, a bounded number in each step (kernel.Work counts the rows of all kinds). While a sweep is in progress the
// rank's deadline is the current time.
//
// A row that is condemned but has not ended yet is safe. Memory: the row ends by the same rules as without a sweep,
// only later, and until then the row keeps its pages. Promises: no new work begins with the row, as the comment of each
// kind explains.

// The kinds of sweeps, in the order in which they run if all begin at once.
const (
	// sweepLost follows the loss of a peer. sweepLost ends the peer's grants, pending requests and recalls on fenced
	// planes. The peer is unknown until it shakes hands again, and a retry that names an older grant is refused. No
	// pending request is served while this sweep is in progress, because the sweep takes all work of the step (settle).
	sweepLost = iota
	// sweepUnreached follows the failure to link to a sender. sweepUnreached ends the sender's offers. No fetch that
	// would read these offers begins.
	sweepUnreached
	// sweepAbandoned follows an Abandon, and ends the rows of the request. The Abandon has its outcome when the sweep
	// ends; until then the request counts as being abandoned, and messages for it are refused.
	sweepAbandoned
	// sweepDrained follows a Drain. New work is refused, and pending requests are not served any more. The drain does
	// not end before its sweep.
	sweepDrained
	// sweepHungUp follows the loss of inbound connections, and ends the requests that arrived on them: nobody could
	// receive the reply.
	sweepHungUp
	sweepKinds
)

// sweeps holds the sweep of each kind.
type sweeps struct {
	of [sweepKinds]kernel.Sweep
	// The kind of sweep that continues next. Kinds take turns, so that a kind that is requested again and again does
	// not hold up the rest.
	turn uint8
	// subject of the current sweepUnreached; later ones wait in links
	unreached link.Reached
}

// tablesOf contains the number of tables of the rooms that a sweep of each kind visits, in addition to the tables of
// flows.
//
//kvferry:table
var tablesOf = [sweepKinds]uint8{sweepLost: 2, sweepUnreached: 2, sweepAbandoned: 5, sweepDrained: 10, sweepHungUp: 1}

// under reports whether any sweep is in progress.
func (s *sweeps) under() bool {
	for i := range s.of {
		if s.of[i].Under() {
			return true
		}
	}
	return false
}

// sweep continues the sweeps that are in progress, as long as this step has work left.
func (r *Rank) sweep(e *flow.Env) {
	s := &r.sweeps
	for idle := 0; idle < sweepKinds && e.Work.Left(); idle++ {
		if of := &s.of[s.turn]; of.Under() {
			if !r.pass(e, of) {
				return // The step has no work left.
			}
			idle = -1
		}
		s.turn = (s.turn + 1) % sweepKinds
	}
	if !s.under() {
		s.turn = 0
	}
}

// pass continues the pass of the current kind, and reports whether the pass has ended.
func (r *Rank) pass(e *flow.Env, of *kernel.Sweep) (ended bool) {
	s, kind := &r.sweeps, r.sweeps.turn
	tables := tablesOf[kind]
	switch kind {
	case sweepLost:
		tables += uint8(len(r.flows.lossSweeps))
	case sweepDrained:
		tables += uint8(len(r.flows.drainSweeps))
	}
	layered := r.cfg.Layers > 0 && (kind == sweepLost || kind == sweepAbandoned || kind == sweepDrained)
	if layered {
		tables++
	}
	ended = of.Go(e.Work, tables, func(table uint8, slot int32) kernel.Where {
		if layered {
			if table--; table == 0 {
				return sweepLayers(e, r, kind, slot)
			}
		}
		switch kind {
		case sweepLost:
			return r.sweepLost(e, table, slot)
		case sweepUnreached:
			return r.sweepUnreached(e, table, slot)
		case sweepAbandoned:
			return r.sweepAbandoned(e, table, slot)
		case sweepHungUp:
			return kernel.Front(e.Pending.RemoveHungUp(&e.Env))
		}
		return r.sweepDrained(e, table, slot)
	})
	if !ended {
		return false
	}
	switch kind {
	case sweepUnreached:
		s.unreached = link.Reached{}
	case sweepAbandoned:
		e.Deferred.Stir() // Fetches for this request did not begin during the sweep.
		if of.Under() {
			e.Abandons.Sweeps()
		}
	}
	return true
}

// peerLost condemns the grants of a lost peer and, if the peer is silent, its pending requests. This must happen before
// any request is served: otherwise the lost peer's own requests could get the pages that this very step sets free, and
// these would be unused until the lease is over. If the peer is alive, it shakes hands again.
func (r *Rank) peerLost(e *flow.Env, class int, silent bool) {
	e.Landings.Lose(class)
	e.Ended.Lost(class)
	if silent {
		e.Pending.Lose(class)
		for _, of := range r.flows.lossSweeps {
			if of != kernel.OwnerNone {
				r.owner(of).(flow.LossSweeper).Condemn(class)
			}
		}
	}
	r.sweeps.of[sweepLost].Want()
	r.sweep(e)
}

// sweepLost visits one slot of a table for the sweep of that name.
func (r *Rank) sweepLost(e *flow.Env, table uint8, slot int32) kernel.Where {
	switch table {
	case 1:
		if int(slot) >= e.Landings.Slots() {
			return kernel.NextTable
		}
		if x := e.Landings.Standing(int(slot)); x != nil {
			e.Landings.RevokeLost(&e.Env, x)
		}
		return kernel.NextSlot
	case 3:
		if h, q := e.Pending.At(slot); h != 0 && e.Pending.Lost(q) {
			e.Out.Mark(allocqueue.Marks.RequesterLost)
			e.Work.Spend(1)
			r.refuse(e, h, effects.Stale, flow.Cut())
		}
		return kernel.At(slot < e.Pending.Slots())
	}
	// The first flow is swept before the pending requests, and the remaining flows are swept afterwards.
	of := r.flows.lossSweeps[max(0, int(table)-3)]
	if of == kernel.OwnerNone {
		return kernel.NextTable
	}
	return r.owner(of).(flow.LossSweeper).LostAt(e, slot)
}

// sweepLayers ends what is condemned of chunks that arrive or are sent layer by layer: bundles and, in a drain, runs.
func sweepLayers(e *flow.Env, r *Rank, kind uint8, slot int32) kernel.Where {
	all := &e.Landings.Bundles
	if h := all.At(slot); h != 0 && (kind == sweepDrained || kind == sweepLost && all.Lost(h) ||
		kind == sweepAbandoned && e.Abandons.Ordered(all.Request(h))) {
		e.Landings.EndBundle(&e.Env, &e.Store, h)
	}
	more := kind == sweepDrained && r.cfg.layers() && r.layers.DrainRunAt(e, slot)
	return kernel.At(slot < all.Slots() || more)
}

// onReached notifies the flows that have rows waiting for a link to a peer's pages that the link is up, or that the
// link cannot be made.
func (r *Rank) onReached(e *flow.Env, reached link.Reached) {
	for _, of := range r.flows.linkWaiters {
		r.owner(of).(flow.LinkWaiter).Reached(e, reached.Class, reached.Code)
	}
	if reached.Code != effects.OK {
		r.sweeps.unreached = reached
		r.sweeps.of[sweepUnreached].Want()
		r.sweep(e)
	}
}

// sweepUnreached visits one slot of a table for the sweep of that name.
func (r *Rank) sweepUnreached(e *flow.Env, table uint8, slot int32) kernel.Where {
	of := &r.sweeps.unreached
	if table == 1 {
		return r.pullTarget.UnreachedAt(e, slot, of.Class, of.Code)
	}
	return r.pullTarget.UnreachedFirst(e, of.Class, of.Code, of.Why)
}

// abandon begins to cancel a request in all tables of this rank. The senders of the request are notified. abandon
// refuses the command if too many requests are being abandoned.
func (r *Rank) abandon(e *flow.Env, t effects.Ticket, request uint64) {
	if !e.Abandons.Order(t, request) {
		_, most := e.Abandons.Orders()
		engine.TurnDown(&e.Env, t, effects.TooMany, &effects.Why{
			Field: "tables.commands", Ours: flow.Number(most) + ", and as many requests are being abandoned",
			Remedy: "retry when one has been, or raise tables.commands",
		})
		return
	}
	e.Abandons.Note(e.Now, request, r.cfg.AbandonTTL)
	if r.sweeps.of[sweepAbandoned].Want() {
		e.Abandons.Sweeps()
	}
	r.sweep(e)
}

// sweepAbandoned visits one slot of a table for the sweep of that name. After the last table the outcomes are
// delivered.
func (r *Rank) sweepAbandoned(e *flow.Env, table uint8, slot int32) kernel.Where {
	switch table {
	case 1:
		request, is, more := e.Store.ClaimAt(slot)
		if is && e.Abandons.Ordered(request) {
			e.Out.Mark(flow.Marks.Abandoned)
			e.Work.Spend(1)
			e.Store.EndClaimAt(slot, &e.Env)
		}
		return kernel.At(more)
	case 2:
		return r.pullTarget.AbandonAt(e, slot)
	case 3:
		if h, q := e.Pending.At(slot); h != 0 && e.Abandons.Ordered(q.Who) {
			e.Out.Mark(allocqueue.Marks.RequestAbandoned)
			e.Work.Spend(1)
			r.refuse(e, h, effects.Cancelled, flow.WhyEnded(effects.Cancelled))
		}
		return kernel.At(slot < e.Pending.Slots())
	case 4:
		if int(slot) >= e.Landings.Slots() {
			return kernel.NextTable
		}
		if x := e.Landings.Standing(int(slot)); x != nil && e.Abandons.Ordered(x.Request) {
			e.Out.Mark(landing.Marks.GrantAbandoned)
			e.Work.Spend(x.Size())
			r.end(e, x, effects.Cancelled)
		}
		return kernel.NextSlot
	}
	t := e.Abandons.Swept()
	if t != 0 {
		e.Work.Spend(1)
		engine.Agree(&e.Env, t)
	}
	return kernel.Front(t != 0)
}

// stopServing begins to refuse pending requests, to revoke grants, and to drop the chunks that no engine will request.
func (r *Rank) stopServing(e *flow.Env) {
	e.Fetches.Drain()
	e.Store.Close()
	r.sweeps.of[sweepDrained].Want()
	r.sweep(e)
}

// sweepDrained ends one row in a drain.
func (r *Rank) sweepDrained(e *flow.Env, table uint8, slot int32) (at kernel.Where) {
	switch table {
	case 1:
		at = kernel.Front(r.commands.DrainFirst(&e.Env))
	case 2: // in the order in which the requests of each class wait
		if int(slot) >= e.Pending.Classes() {
			return kernel.NextTable
		}
		h := e.Pending.First(int(slot))
		if h == 0 {
			return kernel.NextSlot
		}
		r.refuse(e, h, effects.Draining, flow.WhyEnded(effects.Draining))
		at = kernel.SameSlot
	case 3:
		return kernel.At(e.Gets.DrainAt(&e.Env, slot))
	case 4:
		at = r.pullTarget.DrainFirstFetch(e)
	case 5:
		return r.pullTarget.DrainFetchAt(e, slot)
	case 6:
		return r.pullTarget.DrainAt(e, slot)
	case 7:
		if int(slot) >= e.Landings.Slots() {
			return kernel.NextTable
		}
		if x := e.Landings.Standing(int(slot)); x != nil {
			e.Work.Spend(x.Size())
			r.end(e, x, effects.Draining)
		}
		return kernel.NextSlot
	case 8:
		_, is, more := e.Store.ClaimAt(slot)
		if is {
			e.Work.Spend(1)
			e.Store.EndClaimAt(slot, &e.Env)
		}
		return kernel.At(more)
	case 9:
		return kernel.At(e.Store.LetGoAt(slot, &e.Env))
	case 10:
		at = kernel.Front(e.Store.LetGoFirst(&e.Env))
	default:
		return kernel.At(r.owner(r.flows.drainSweeps[table-11]).(flow.DrainSweeper).DrainAt(e, slot))
	}
	if at == kernel.SameSlot {
		e.Work.Spend(1)
	}
	return at
}
