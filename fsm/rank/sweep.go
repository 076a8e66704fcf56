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
// rows, a bounded number in each step (kernel.WorkBudget counts the rows of all kinds). While a sweep is in progress
// the rank's deadline is the current time.
//
// A row that is condemned but has not ended yet is safe. Memory: the row ends by the same rules as without a sweep,
// only later, and until then the row keeps its pages. Promises: no new work begins with the row, as the comment of each
// kind explains.

// The kinds of sweeps, in the order in which they run if all begin at once.
const (
	// sweepLost follows the loss of a peer. sweepLost ends the peer's grants, pending requests and recalls on fenced
	// planes. The peer is unknown until it shakes hands again, and a retry that names an older grant is refused. No
	// pending request is served while this sweep is in progress, because the sweep takes all work of the step
	// (finishStep).
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
	// sweepConnLost follows the loss of inbound connections, and ends the requests that arrived on them: nobody could
	// receive the reply.
	sweepConnLost
	sweepKinds
)

// sweeps holds the sweep of each kind.
type sweeps struct {
	byKind [sweepKinds]kernel.Sweep
	// The kind of sweep that continues next. Kinds take turns, so that a kind that is requested again and again does
	// not hold up the rest.
	turn uint8
	// subject of the current sweepUnreached; later ones wait in links
	unreached link.ReachOutcome
}

// sweepTables contains the number of tables of the rooms that a sweep of each kind visits, in addition to the tables of
// flows.
//
//kvferry:table
var sweepTables = [sweepKinds]uint8{sweepLost: 2, sweepUnreached: 2, sweepAbandoned: 5, sweepDrained: 10, sweepConnLost: 1}

// anyRunning reports whether any sweep is in progress.
func (s *sweeps) anyRunning() bool {
	for i := range s.byKind {
		if s.byKind[i].IsRunning() {
			return true
		}
	}
	return false
}

// continueSweeps continues the sweeps that are in progress, as long as this step has work left.
func (r *Rank) continueSweeps(e *flow.Env) {
	s := &r.sweeps
	for idle := 0; idle < sweepKinds && e.Work.HasBudget(); idle++ {
		if sweep := &s.byKind[s.turn]; sweep.IsRunning() {
			if !r.continuePass(e, sweep) {
				return // The step has no work left.
			}
			idle = -1
		}
		s.turn = (s.turn + 1) % sweepKinds
	}
	if !s.anyRunning() {
		s.turn = 0
	}
}

// continuePass continues the pass of the current kind, and reports whether the pass has ended.
func (r *Rank) continuePass(e *flow.Env, sweep *kernel.Sweep) (ended bool) {
	s, kind := &r.sweeps, r.sweeps.turn
	tables := sweepTables[kind]
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
	ended = sweep.ContinuePass(e.Work, tables, func(table uint8, slot int32) kernel.VisitResult {
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
		case sweepConnLost:
			return kernel.SameSlotIf(e.Pending.RemoveConnLost(&e.Env))
		}
		return r.sweepDrained(e, table, slot)
	})
	if !ended {
		return false
	}
	switch kind {
	case sweepUnreached:
		s.unreached = link.ReachOutcome{}
	case sweepAbandoned:
		e.Deferred.MarkChanged() // Fetches for this request did not begin during the sweep.
		if sweep.IsRunning() {
			e.Abandons.BeginSweep()
		}
	}
	return true
}

// onPeerLost condemns the grants of a lost peer and, if the peer is silent, its pending requests. This must happen
// before any request is served: otherwise the lost peer's own requests could get the pages that this very step sets
// free, and these would be unused until the lease is over. If the peer is alive, it shakes hands again.
func (r *Rank) onPeerLost(e *flow.Env, class int, silent bool) {
	e.Landings.CondemnClass(class)
	e.Outcomes.OnPeerLost(class)
	if silent {
		e.Pending.CondemnClass(class)
		for _, owner := range r.flows.lossSweeps {
			if owner != kernel.OwnerNone {
				r.flowOf(owner).(flow.LossSweeper).CondemnClass(class)
			}
		}
	}
	r.sweeps.byKind[sweepLost].RequestPass()
	r.continueSweeps(e)
}

// sweepLost visits one slot of a table for the sweep of that name.
func (r *Rank) sweepLost(e *flow.Env, table uint8, slot int32) kernel.VisitResult {
	switch table {
	case 1:
		if int(slot) >= e.Landings.Slots() {
			return kernel.NextTable
		}
		if x := e.Landings.ActiveAt(int(slot)); x != nil {
			e.Landings.RevokeCondemned(&e.Env, x)
		}
		return kernel.NextSlot
	case 3:
		if h, q := e.Pending.At(slot); h != 0 && e.Pending.IsCondemned(q) {
			e.Out.Mark(allocqueue.Marks.RequesterLost)
			e.Work.SpendRows(1)
			r.refuseRequest(e, h, effects.Stale, flow.LinkLostReason())
		}
		return kernel.NextSlotIf(slot < e.Pending.Slots())
	}
	// The first flow is swept before the pending requests, and the remaining flows are swept afterwards.
	owner := r.flows.lossSweeps[max(0, int(table)-3)]
	if owner == kernel.OwnerNone {
		return kernel.NextTable
	}
	return r.flowOf(owner).(flow.LossSweeper).SweepLost(e, slot)
}

// sweepLayers ends what is condemned of chunks that arrive or are sent layer by layer: bundles and, in a drain, runs.
func sweepLayers(e *flow.Env, r *Rank, kind uint8, slot int32) kernel.VisitResult {
	all := &e.Landings.Bundles
	if h := all.At(slot); h != 0 && (kind == sweepDrained || kind == sweepLost && all.IsCondemned(h) ||
		kind == sweepAbandoned && e.Abandons.IsAbandoning(all.RequestOf(h))) {
		e.Landings.EndBundle(&e.Env, &e.Store, h)
	}
	more := kind == sweepDrained && r.cfg.pushesLayers() && r.layers.SweepDrainRun(e, slot)
	return kernel.NextSlotIf(slot < all.Slots() || more)
}

// onReached notifies the flows that have rows waiting for a link to a peer's pages that the link is up, or that the
// link cannot be made.
func (r *Rank) onReached(e *flow.Env, reached link.ReachOutcome) {
	for _, owner := range r.flows.linkWaiters {
		r.flowOf(owner).(flow.LinkWaiter).OnReachOutcome(e, reached.Class, reached.Code)
	}
	if reached.Code != effects.OK {
		r.sweeps.unreached = reached
		r.sweeps.byKind[sweepUnreached].RequestPass()
		r.continueSweeps(e)
	}
}

// sweepUnreached visits one slot of a table for the sweep of that name.
func (r *Rank) sweepUnreached(e *flow.Env, table uint8, slot int32) kernel.VisitResult {
	peer := &r.sweeps.unreached
	if table == 1 {
		return r.pullTarget.SweepUnreached(e, slot, peer.Class, peer.Code)
	}
	return r.pullTarget.SweepFirstUnreached(e, peer.Class, peer.Code, peer.Why)
}

// abandonRequest begins to cancel a request in all tables of this rank. The senders of the request are notified.
// abandonRequest refuses the command if too many requests are being abandoned.
func (r *Rank) abandonRequest(e *flow.Env, t effects.Ticket, request uint64) {
	if !e.Abandons.StartCommand(t, request) {
		_, limit := e.Abandons.CountCommands()
		engine.RefuseCommand(&e.Env, t, effects.TooMany, &effects.Why{
			Field: "tables.commands", Ours: flow.FormatCount(limit) + ", and as many requests are being abandoned",
			Remedy: "retry when one has been, or raise tables.commands",
		})
		return
	}
	e.Abandons.RecordRequest(e.Now, request, r.cfg.AbandonTTL)
	if r.sweeps.byKind[sweepAbandoned].RequestPass() {
		e.Abandons.BeginSweep()
	}
	r.continueSweeps(e)
}

// sweepAbandoned visits one slot of a table for the sweep of that name. After the last table the outcomes are
// delivered.
func (r *Rank) sweepAbandoned(e *flow.Env, table uint8, slot int32) kernel.VisitResult {
	switch table {
	case 1:
		request, exists, more := e.Store.ClaimAt(slot)
		if exists && e.Abandons.IsAbandoning(request) {
			e.Out.Mark(flow.Marks.Abandoned)
			e.Work.SpendRows(1)
			e.Store.EndClaimAt(slot, &e.Env)
		}
		return kernel.NextSlotIf(more)
	case 2:
		return r.pullTarget.SweepAbandoned(e, slot)
	case 3:
		if h, q := e.Pending.At(slot); h != 0 && e.Abandons.IsAbandoning(q.RequestHash) {
			e.Out.Mark(allocqueue.Marks.RequestAbandoned)
			e.Work.SpendRows(1)
			r.refuseRequest(e, h, effects.Cancelled, flow.EndReason(effects.Cancelled))
		}
		return kernel.NextSlotIf(slot < e.Pending.Slots())
	case 4:
		if int(slot) >= e.Landings.Slots() {
			return kernel.NextTable
		}
		if x := e.Landings.ActiveAt(int(slot)); x != nil && e.Abandons.IsAbandoning(x.Request) {
			e.Out.Mark(landing.Marks.GrantAbandoned)
			e.Work.SpendRows(x.PageCount())
			r.endLanding(e, x, effects.Cancelled)
		}
		return kernel.NextSlot
	}
	t := e.Abandons.PopSwept()
	if t != 0 {
		e.Work.SpendRows(1)
		engine.DeliverOK(&e.Env, t)
	}
	return kernel.SameSlotIf(t != 0)
}

// stopServing begins to refuse pending requests, to revoke grants, and to drop the chunks that no engine will request.
func (r *Rank) stopServing(e *flow.Env) {
	e.Fetches.DrainPipeline()
	e.Store.StopCaching()
	r.sweeps.byKind[sweepDrained].RequestPass()
	r.continueSweeps(e)
}

// sweepDrained ends one row in a drain.
func (r *Rank) sweepDrained(e *flow.Env, table uint8, slot int32) (at kernel.VisitResult) {
	switch table {
	case 1:
		at = kernel.SameSlotIf(r.commands.DrainFirst(&e.Env))
	case 2: // in the order in which the requests of each class wait
		if int(slot) >= e.Pending.Classes() {
			return kernel.NextTable
		}
		h := e.Pending.FirstOf(int(slot))
		if h == 0 {
			return kernel.NextSlot
		}
		r.refuseRequest(e, h, effects.Draining, flow.EndReason(effects.Draining))
		at = kernel.SameSlot
	case 3:
		return kernel.NextSlotIf(e.Gets.SweepDrain(&e.Env, slot))
	case 4:
		at = r.pullTarget.DrainFirstFetch(e)
	case 5:
		return r.pullTarget.SweepDrainFetch(e, slot)
	case 6:
		return r.pullTarget.SweepDrain(e, slot)
	case 7:
		if int(slot) >= e.Landings.Slots() {
			return kernel.NextTable
		}
		if x := e.Landings.ActiveAt(int(slot)); x != nil {
			e.Work.SpendRows(x.PageCount())
			r.endLanding(e, x, effects.Draining)
		}
		return kernel.NextSlot
	case 8:
		_, exists, more := e.Store.ClaimAt(slot)
		if exists {
			e.Work.SpendRows(1)
			e.Store.EndClaimAt(slot, &e.Env)
		}
		return kernel.NextSlotIf(more)
	case 9:
		return kernel.NextSlotIf(e.Store.WithdrawAt(slot, &e.Env))
	case 10:
		at = kernel.SameSlotIf(e.Store.EvictFirst(&e.Env))
	default:
		return kernel.NextSlotIf(r.flowOf(r.flows.drainSweeps[table-11]).(flow.DrainSweeper).SweepDrain(e, slot))
	}
	if at == kernel.SameSlot {
		e.Work.SpendRows(1)
	}
	return at
}
