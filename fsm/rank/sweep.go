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

// What ends many rows at once: each kind condemns in the step that it hears of, and is swept by a pass of its own. The
// rows of a step are counted (kernel.Work), whoever asks for them. While a pass is under way the deadline is now.
//
// What is condemned and not yet ended is safe. Memory: a row ends by the rules that it would end by without a sweep,
// only later; until then its pages are its own. Promises: nothing new begins with it, as each kind says below.

// The kinds of sweeps, in the order in which they come if all begin at once.
const (
	// A peer that is gone: on fenced planes what it was granted, what it asks for, and what it recalls. It is a stranger
	// until it shakes hands again, and a grant of before is refused when it is asked for again. Nobody who waits is served
	// while a pass is under way, for it has the step's work to its end (settle).
	sweepLost = iota
	// Senders out of reach: what they offer. No fetch begins that would read it.
	sweepUnreached
	// Requests that nobody wants. Abandon has its outcome when the pass ends: till then they are being abandoned, and
	// what comes for them is refused.
	sweepAbandoned
	// A drain. Nothing new is taken, and who waits is not served any more. It does not end before its pass.
	sweepDrained
	// Connections of peers that are gone: what was asked on them. Nobody is there to hear what becomes of it.
	sweepHungUp
	sweepKinds
)

// sweeps are the passes of each kind.
type sweeps struct {
	of        [sweepKinds]kernel.Sweep
	turn      uint8        // whose pass goes on: no kind waits for another one that comes again and again
	unreached link.Reached // what the pass of that kind is about; those behind it wait in the links' room
}

// tablesOf is how many tables a pass of each kind goes over.
//
//kvferry:table
var tablesOf = [sweepKinds]uint8{sweepLost: 3, sweepUnreached: 2, sweepAbandoned: 5, sweepDrained: 10, sweepHungUp: 1}

// under says whether any pass is under way.
func (s *sweeps) under() bool {
	for i := range s.of {
		if s.of[i].Under() {
			return true
		}
	}
	return false
}

// sweep goes on with what is condemned while this step has work left.
func (r *Rank) sweep(e *flow.Env) {
	s := &r.sweeps
	for idle := 0; idle < sweepKinds && e.Work.Left(); idle++ {
		if of := &s.of[s.turn]; of.Under() {
			if !r.pass(e, of) {
				return // There is no work left.
			}
			idle = -1
		}
		s.turn = (s.turn + 1) % sweepKinds
	}
	if !s.under() {
		s.turn = 0
	}
}

// pass goes on with a pass, and says whether it has ended it.
func (r *Rank) pass(e *flow.Env, of *kernel.Sweep) (ended bool) {
	s, kind := &r.sweeps, r.sweeps.turn
	tables := tablesOf[kind]
	if kind == sweepLost && r.cfg.Shares {
		tables++
	}
	if kind == sweepDrained && r.cfg.registers() {
		tables += 2
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
		e.Deferred.Stir() // A fetch for such a request did not begin meanwhile.
		if of.Under() {
			e.Abandons.Sweeps()
		}
	}
	return true
}

// peerLost condemns what a peer that is gone was granted, and what it asks for if it is silent: before anybody is
// served, else it would be given what this very step sets free, and nobody would use that before its lease is over. If
// it is there to hear it, it shakes hands again.
func (r *Rank) peerLost(e *flow.Env, class int, silent bool) {
	e.Landings.Lose(class)
	e.Ended.Lost(class)
	if silent {
		e.Pending.Lose(class)
		if r.cfg.answers() {
			r.recallTarget.Loans().Lose(class)
		}
		if r.cfg.Shares {
			r.p2pOwner.Loans().Lose(class)
		}
	}
	r.sweeps.of[sweepLost].Want()
	r.sweep(e)
}

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
	case 2:
		return r.recallTarget.Loans().LostAt(&e.Env, slot)
	case 4:
		return r.p2pOwner.Loans().LostAt(&e.Env, slot)
	}
	if h, q := e.Pending.At(slot); h != 0 && e.Pending.Lost(q) {
		e.Out.Mark(allocqueue.Marks.RequesterLost)
		e.Work.Spend(1)
		r.refuse(e, h, effects.Stale, flow.Cut())
	}
	return kernel.At(slot < e.Pending.Slots())
}

// sweepLayers ends what is condemned of chunks that come or go layer by layer: bundles, and in a drain runs.
func sweepLayers(e *flow.Env, r *Rank, kind uint8, slot int32) kernel.Where {
	all := &e.Landings.Bundles
	if h := all.At(slot); h != 0 && (kind == sweepDrained || kind == sweepLost && all.Lost(h) ||
		kind == sweepAbandoned && e.Abandons.Ordered(all.Request(h))) {
		e.Landings.EndBundle(&e.Env, &e.Store, h)
	}
	more := kind == sweepDrained && r.cfg.layers() && r.layers.DrainAt(e, slot)
	return kernel.At(slot < all.Slots() || more)
}

// onReached tells who waits for a link that it is there, or cannot be had.
func (r *Rank) onReached(e *flow.Env, reached link.Reached) {
	s := flow.Signal{Kind: flow.Reached, Class: reached.Class, Code: reached.Code}
	r.pullTarget.Signal(e, kernel.Ref{}, s)
	if r.cfg.Shares {
		r.p2pOwner.Signal(e, kernel.Ref{}, s)
	}
	if r.cfg.registers() {
		r.producer.Signal(e, kernel.Ref{}, s)
	}
	if reached.Code != effects.OK {
		r.sweeps.unreached = reached
		r.sweeps.of[sweepUnreached].Want()
		r.sweep(e)
	}
}

func (r *Rank) sweepUnreached(e *flow.Env, table uint8, slot int32) kernel.Where {
	of := &r.sweeps.unreached
	if table == 1 {
		return r.pullTarget.UnreachedAt(e, slot, of.Class, of.Code)
	}
	return r.pullTarget.UnreachedFirst(e, of.Class, of.Code, of.Why)
}

// abandon begins to cancel a request wherever it stands here. Its senders hear of it.
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

// stopServing begins to answer who waits, to take grants back and to drop what no engine will come for.
func (r *Rank) stopServing(e *flow.Env) {
	e.Fetches.Drain()
	e.Store.Close()
	r.sweeps.of[sweepDrained].Want()
	r.sweep(e)
}

// sweepDrained ends one row of a drain.
func (r *Rank) sweepDrained(e *flow.Env, table uint8, slot int32) (at kernel.Where) {
	switch table {
	case 1:
		at = kernel.Front(r.commands.DrainFirst(&e.Env))
	case 2: // In the order in which each class waits.
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
	case 11:
		return kernel.At(r.consumer.DrainAt(e, slot))
	default:
		return kernel.At(r.producer.DrainAt(e, slot))
	}
	if at == kernel.SameSlot {
		e.Work.Spend(1)
	}
	return at
}
