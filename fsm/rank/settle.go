package rank

import (
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/memory/allocqueue"
	"github.com/kvferry/kvferry/fsm/table"
)

// settle ends a step: it handles due deadlines and changed peers, and continues the rows that waited for resources that
// the step set free. Deadlines and peers are handled up to a bound; what is left is for the next Tick, which is then
// due at once.
func (r *Rank) settle(e *flow.Env) {
	v := &e.Env
	// The last step left work: requests may be waiting to be served.
	rest := r.more
	r.more = false
	budget := r.cfg.Tuning.SettleMax
	// A rank without a receiving side has no pending requests, so its receiver rooms are not visited.
	receives := r.cfg.Role.Receives()
	for budget > 0 && e.Work.Left() {
		ref, ok := r.timers.Pop(v.Now)
		if !ok {
			break
		}
		budget--
		r.owner(ref.Owner).Due(e, ref)
	}
	budget = tellCallers(r, e, budget)
	if r.sweeps.under() {
		r.sweep(e)
		budget = tellCallers(r, e, budget) // for the peers that a drain changed
	}
	bundles := r.cfg.Layers > 0 && r.layered(e)
	sought := r.cfg.Knows() && r.p2pRequester.Seeks.GoOn(e, &r.p2pRequester)
	for !r.sweeps.of[sweepUnreached].Under() {
		reached, ok := r.links.NextReached()
		if !ok {
			break
		}
		r.onReached(e, reached)
	}
	continues := false
	for _, of := range r.flows.continuers {
		continues = r.owner(of).(flow.Continuer).Continue(e) || continues
	}
	if receives {
		r.pullTarget.GoOn(e)
		r.rooms.Wake(v)
		r.rooms.HearEnded(v)
	}
	bundles = r.serve(e, rest) || bundles
	bundles = r.followUp(e) || bundles
	// The follow-up work itself may free pages, for example the pages of a fetch that was refused at its beginning.
	for e.Work.Left() && r.freed != r.pools.Freed() {
		bundles = r.serve(e, false) || bundles
		bundles = r.followUp(e) || bundles
	}
	if r.cfg.Knows() {
		r.registrar.Pump(v, &r.rooms.Store)
	}
	r.maybeEndDrain(e)
	r.more = budget == 0 || !e.Work.Left() || r.sweeps.under() || sought || continues || bundles
}

// serve serves the requests that wait for memory, as long as pages become free or requests at the front of the queue
// are removed. If anyway is set, serve tries at least once. A step serves as many requests as it has work for, and the
// next step continues. serve reports whether bundles are left that are over.
func (r *Rank) serve(e *flow.Env, anyway bool) (bundles bool) {
	sends, receives := r.cfg.Role.Sends(), r.cfg.Role.Receives()
	for e.Work.Left() && (anyway || r.freed != r.pools.Freed() || sends && r.shifted() || receives && r.lineMoved()) {
		r.freed, anyway = r.pools.Freed(), false
		if sends {
			if !e.Draining {
				r.commands.Admit(&e.Env)
			}
			r.pullSource.Admit(e)
		}
		if receives {
			r.pullTarget.Admit(e)
			r.admit(e)
			// A request that was served may have begun another epoch, and ended bundles make room.
			if r.cfg.Layers > 0 {
				bundles = e.Landings.EndBundles(&e.Env, &r.rooms.Store) || bundles
			}
		}
	}
	return bundles
}

// followUp wakes Gets, begins fetches and returns chunks after requests were served, all of which may free pages.
// followUp reports whether bundles are left that are over.
func (r *Rank) followUp(e *flow.Env) (bundles bool) {
	if r.cfg.Role.Receives() {
		// Where vanilla senders are trusted (TrustUncommitted), serving a sender makes the sender's chunks readable.
		r.rooms.Wake(&e.Env)
		r.pullTarget.StartFetches(e)
	}
	if r.cfg.Shares {
		r.p2pRequester.ReturnKept(e)
		r.commands.HearWithdrawn(&e.Env, &r.rooms.Store)
	}
	return r.cfg.Layers > 0 && r.layered(e)
}

// tellCallers signals the flows that call peers about the outbound peers that changed, up to budget, and returns what
// is left of the budget.
func tellCallers(r *Rank, e *flow.Env, budget uint32) uint32 {
	for budget > 0 && e.Work.Left() {
		h, ok := r.links.Changed()
		if !ok {
			break
		}
		budget--
		for _, of := range r.flows.callers {
			r.signal(e, of, h, flow.Signal{Kind: flow.Changed})
		}
	}
	return budget
}

// layered reports to the layerwise source what became of the puts that were carried for it, and ends condemned bundles.
// layered reports whether condemned bundles are left.
func (r *Rank) layered(e *flow.Env) (more bool) {
	for {
		for i := 0; i < len(e.Told); i++ { // Hear may append to Told.
			t := e.Told[i]
			r.layers.Hear(e, &t)
		}
		e.Told = e.Told[:0]
		// A put that was stopped frees its place after it was reported.
		if r.cfg.layers() {
			r.layers.GoOn(e)
		}
		if len(e.Told) == 0 {
			break
		}
	}
	return e.Landings.EndBundles(&e.Env, &e.Store)
}

// shifted reports, once, that a reservation or a put of the sending side left its queue without being served, so that
// the rows behind it may be served now.
func (r *Rank) shifted() bool {
	reserves, puts := r.commands.LeftLine(), r.pullSource.Shifted()
	return reserves || puts
}

// lineMoved reports, once, that the allocation queue has to be looked at although no page became free: a request left
// the queue, or an offer at the front, for which pages are kept, may have lost the link to its pages.
func (r *Rank) lineMoved() bool {
	left, lost := r.rooms.Pending.Shifted(), r.links.LostWay()
	return left || lost
}

// admit serves pending requests until no next request of any class can be served. admit is called when pages became
// free. In a rank with both roles, the first of our engine's reservations waits in the same queue. A rank that drains
// serves no request: the pending ones are condemned.
func (r *Rank) admit(e *flow.Env) {
	if e.Draining {
		return
	}
	e.Pending.NoteOwn(r.commands.First())
	c := e.Pending.Collects(&e.Env)
	for idle := 0; idle < e.Pending.Classes() && e.Pending.Waits(); idle++ {
		if !e.Work.Left() {
			e.Out.Mark(flow.Marks.LineCut)
			return
		}
		h, ours := e.Pending.Next(c)
		if ours && r.admitOwn(e) || h != 0 && r.admitHead(e, h) {
			idle, c = -1, e.Pending.Collects(&e.Env) // All classes may be served again.
		}
	}
}

// admitHead serves the next request of the allocation queue, or refuses a request that waits in vain, and reports
// whether the queue has moved.
func (r *Rank) admitHead(e *flow.Env, h table.Handle) bool {
	q := e.Pending.Get(h)
	if e.Pending.HungUp(q) {
		return e.Pending.RemoveHungUp(&e.Env)
	}
	keys := int(q.Keys)
	if e.Pending.Lost(q) || e.Abandons.Ordered(q.Who) {
		panic("BUG: a request that is condemned is served before the sweep has come to it")
	}
	how, lacks := r.try(e, q)
	if how == allocqueue.Served {
		e.Work.Spend(1 + keys)
	}
	return e.Pending.Tried(&e.Env, h, how, lacks)
}

// admitOwn gives our engine's oldest reservation its pages if that is possible now, and reports whether it did.
func (r *Rank) admitOwn(e *flow.Env) bool {
	_, n := r.commands.First()
	if !e.Pools.FitsShare(e.Pool, allocqueue.Own, n) || !e.Store.MakeRoom(&e.Env, e.Pool, n, 0) {
		return false
	}
	e.Work.Spend(int(n))
	r.commands.AdmitFirst(&e.Env)
	e.Pending.NoteOwn(r.commands.First())
	e.Pending.PassedByOwn(&e.Env)
	return true
}
