package rank

import (
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/memory/allocqueue"
	"github.com/kvferry/kvferry/fsm/table"
)

// finishStep ends a step: it handles due deadlines and changed peers, and continues the rows that waited for resources
// that the step set free. Deadlines and peers are handled up to a bound; what is left is for the next Tick, which is
// then due at once.
func (r *Rank) finishStep(e *flow.Env) {
	v := &e.Env
	// The last step left work: requests may be waiting to be served.
	retryServing := r.workLeft
	r.workLeft = false
	budget := r.cfg.Tuning.SettleMax
	// A rank without a receiving side has no pending requests, so its receiver rooms are not visited.
	receives := r.cfg.Role.Receives()
	for budget > 0 && e.Work.HasBudget() {
		ref, ok := r.timers.Pop(v.Now)
		if !ok {
			break
		}
		budget--
		r.flowOf(ref.Owner).OnTimer(e, ref)
	}
	budget = signalCallers(r, e, budget)
	if r.sweeps.anyRunning() {
		r.continueSweeps(e)
		budget = signalCallers(r, e, budget) // for the peers that a drain changed
	}
	bundles := r.cfg.Layers > 0 && r.reportLayerPuts(e)
	lookupsLeft := r.cfg.UsesDirectories() && r.p2pRequester.Searches.ContinueWork(e, &r.p2pRequester)
	for !r.sweeps.byKind[sweepUnreached].IsRunning() {
		reached, ok := r.links.NextReachOutcome()
		if !ok {
			break
		}
		r.onReached(e, reached)
	}
	flowsLeft := false
	for _, owner := range r.flows.continuers {
		flowsLeft = r.flowOf(owner).(flow.Continuer).ContinueWork(e) || flowsLeft
	}
	if receives {
		r.pullTarget.EndCondemned(e)
		r.sharedRooms.WakeGets(v)
		r.sharedRooms.ProcessEnded(v)
	}
	bundles = r.serveWaiting(e, retryServing) || bundles
	bundles = r.followUpServing(e) || bundles
	// The follow-up work itself may free pages, for example the pages of a fetch that was refused at its beginning.
	for e.Work.HasBudget() && r.servedFreedCount != r.pools.FreedCount() {
		bundles = r.serveWaiting(e, false) || bundles
		bundles = r.followUpServing(e) || bundles
	}
	if r.cfg.UsesDirectories() {
		r.registrar.Pump(v, &r.sharedRooms.Store)
	}
	r.maybeEndDrain(e)
	r.workLeft = budget == 0 || !e.Work.HasBudget() || r.sweeps.anyRunning() || lookupsLeft || flowsLeft || bundles
}

// serveWaiting serves the requests that wait for memory, as long as pages become free or requests at the front of the
// queue are removed. If force is set, serveWaiting tries at least once. A step serves as many requests as it has work
// for, and the next step continues. serveWaiting reports whether bundles are left that are over.
func (r *Rank) serveWaiting(e *flow.Env, force bool) (bundles bool) {
	sends, receives := r.cfg.Role.Sends(), r.cfg.Role.Receives()
	for e.Work.HasBudget() && (force || r.servedFreedCount != r.pools.FreedCount() || sends && r.pollSenderQueues() || receives &&
		r.pollAllocQueue()) {
		r.servedFreedCount, force = r.pools.FreedCount(), false
		if sends {
			if !e.Draining {
				r.commands.GrantWaiting(&e.Env)
			}
			r.pullSource.OfferWaiting(e)
		}
		if receives {
			r.pullTarget.AdmitFetches(e)
			r.servePending(e)
			// A request that was served may have begun another epoch, and ended bundles make room.
			if r.cfg.Layers > 0 {
				bundles = e.Landings.EndCondemnedBundles(&e.Env, &r.sharedRooms.Store) || bundles
			}
		}
	}
	return bundles
}

// followUpServing wakes Gets, begins fetches and returns chunks after requests were served, all of which may free
// pages. followUpServing reports whether bundles are left that are over.
func (r *Rank) followUpServing(e *flow.Env) (bundles bool) {
	if r.cfg.Role.Receives() {
		// Where vanilla senders are trusted (TrustUncommitted), serving a sender makes the sender's chunks readable.
		r.sharedRooms.WakeGets(&e.Env)
		r.pullTarget.StartFetches(e)
	}
	if r.cfg.Shares {
		r.p2pRequester.ReturnKeptLoans(e)
		r.commands.ProcessWithdrawn(&e.Env, &r.sharedRooms.Store)
	}
	return r.cfg.Layers > 0 && r.reportLayerPuts(e)
}

// signalCallers signals the flows in registry.peerSignaled about the outbound peers that changed, up to budget, and
// returns what is left of the budget.
func signalCallers(r *Rank, e *flow.Env, budget uint32) uint32 {
	for budget > 0 && e.Work.HasBudget() {
		h, ok := r.links.NextChanged()
		if !ok {
			break
		}
		budget--
		for _, owner := range r.flows.peerSignaled {
			r.signalRow(e, owner, h, flow.Signal{Kind: flow.PeerChanged})
		}
	}
	return budget
}

// reportLayerPuts reports to the layerwise source what became of the puts that were carried for it, and ends condemned
// bundles. reportLayerPuts reports whether condemned bundles are left.
func (r *Rank) reportLayerPuts(e *flow.Env) (more bool) {
	for {
		for i := 0; i < len(e.CarriedResults); i++ { // OnCarriedResult may append to CarriedResults.
			t := e.CarriedResults[i]
			r.layers.OnCarriedResult(e, &t)
		}
		e.CarriedResults = e.CarriedResults[:0]
		// A put that was stopped frees its place after it was reported.
		if r.cfg.pushesLayers() {
			r.layers.SendWaiting(e)
		}
		if len(e.CarriedResults) == 0 {
			break
		}
	}
	return e.Landings.EndCondemnedBundles(&e.Env, &e.Store)
}

// pollSenderQueues reports, once, that a reservation or a put of the sending side left its queue without being served,
// so that the rows behind it may be served now.
func (r *Rank) pollSenderQueues() bool {
	reserves, puts := r.commands.TakeQueueMoved(), r.pullSource.PollMoved()
	return reserves || puts
}

// pollAllocQueue reports, once, that the allocation queue has to be looked at although no page became free: a request
// left the queue, or an offer at the front, for which pages are kept, may have lost the link to its pages.
func (r *Rank) pollAllocQueue() bool {
	moved, linkLost := r.sharedRooms.Pending.PollMoved(), r.links.TakeLinkDropped()
	return moved || linkLost
}

// servePending serves pending requests until no next request of any class can be served. servePending is called when
// pages became free. In a rank with both roles, the first of our engine's reservations waits in the same queue. A rank
// that drains serves no request: the pending ones are condemned.
func (r *Rank) servePending(e *flow.Env) {
	if e.Draining {
		return
	}
	e.Pending.SetEngineHead(r.commands.FirstReserve(&e.Env))
	e.Pending.ReviewHeldBack(&e.Env, e.Store.TotalReadied())
	for heads := e.Pending.HeadsInTurn(&e.Env); len(heads) > 0; {
		if !e.Work.HasBudget() {
			e.Out.Mark(flow.Marks.LineCut)
			return
		}
		h := heads[0].Request
		if heads = heads[1:]; h == 0 && r.serveEngineHead(e) || h != 0 && r.servePeerHead(e, h) {
			// All classes may be served again, and another reservation of the engine may be next.
			e.Pending.SetEngineHead(r.commands.FirstReserve(&e.Env))
			heads = e.Pending.HeadsInTurn(&e.Env)
		}
	}
}

// servePeerHead serves the next request of the allocation queue, or refuses a request that waits in vain, and reports
// whether the queue has moved.
func (r *Rank) servePeerHead(e *flow.Env, h table.Handle) bool {
	q := e.Pending.Get(h)
	if e.Pending.IsConnLost(q) {
		return e.Pending.RemoveConnLost(&e.Env)
	}
	keys := int(q.PagesMax)
	if e.Pending.IsCondemned(q) || e.Abandons.IsAbandoning(q.RequestHash) {
		panic("BUG: a request that is condemned is served before the sweep has come to it")
	}
	result, shortfall := r.tryRequest(e, q)
	if result == allocqueue.Served {
		e.Work.SpendRows(1 + keys)
	}
	return e.Pending.RecordResult(&e.Env, h, result, shortfall, e.Store.TotalReadied())
}

// serveEngineHead gives our engine's oldest reservation its pages if that is possible now, and reports whether it did.
func (r *Rank) serveEngineHead(e *flow.Env) bool {
	_, n := r.commands.FirstReserve(&e.Env)
	if !e.Pools.FitsShare(e.Pool, allocqueue.EngineClass, n) || !e.Store.MakeRoom(&e.Env, e.Pool, n, 0) {
		return false
	}
	e.Work.SpendRows(int(n))
	r.commands.GrantFirst(&e.Env)
	e.Pending.CountEnginePass(&e.Env)
	return true
}
