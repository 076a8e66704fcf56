package rank

import (
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/memory/allocqueue"
	"github.com/kvferry/kvferry/fsm/table"
)

// settle lets go on whoever waited for what this step set free. Deadlines and peers are handled up to a bound; what is
// left is the next Tick's, which is due at once.
func (r *Rank) settle(e *flow.Env) {
	v := &e.Env
	rest := r.more // The last step left something: somebody may be the next to be served.
	r.more = false
	budget := r.cfg.Tuning.SettleMax
	// A side that this rank does not have has nobody who waits, and is not asked.
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
		budget = tellCallers(r, e, budget) // Of those whom a drain stirred.
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
	pushes := r.cfg.Shares && r.p2pOwner.GoOn(e)
	pushes = r.cfg.registers() && r.producer.GoOn(e) || pushes
	if receives {
		r.pullTarget.GoOn(e)
		r.rooms.Wake(v)
		r.rooms.HearEnded(v)
	}
	bundles = r.serve(e, rest) || bundles
	bundles = r.followUp(e) || bundles
	for e.Work.Left() && r.freed != r.pools.Freed() { // Such as of a fetch that was refused as it began.
		bundles = r.serve(e, false) || bundles
		bundles = r.followUp(e) || bundles
	}
	if r.cfg.Knows() {
		r.registrar.Pump(v, &r.rooms.Store)
	}
	r.maybeEndDrain(e)
	r.more = budget == 0 || !e.Work.Left() || r.sweeps.under() || sought || pushes || bundles
}

// serve serves the requests that wait for memory, as long as pages become free or requests at the front give up; anyway
// has it look once in any case. A step serves as many as it has work for, and the next one goes on. It reports whether
// bundles are left that are over.
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
			if r.cfg.Layers > 0 { // Who is served may have begun another epoch, and what is over makes room.
				bundles = e.Landings.EndBundles(&e.Env, &r.rooms.Store) || bundles
			}
		}
	}
	return bundles
}

// followUp wakes readers, begins fetches and gives back chunks after requests were served, which may free pages. It
// reports whether bundles are left that are over.
func (r *Rank) followUp(e *flow.Env) (bundles bool) {
	if r.cfg.Role.Receives() {
		r.rooms.Wake(&e.Env) // A plain sender that is trusted makes chunks readable as it is served.
		r.pullTarget.StartFetches(e)
	}
	if r.cfg.Shares {
		r.p2pRequester.ReturnKept(e)
		r.commands.HearWithdrawn(&e.Env, &r.rooms.Store)
	}
	return r.cfg.Layers > 0 && r.layered(e)
}

// tellCallers tells of peers that changed, as far as the step's budget goes, and returns what is left of it.
func tellCallers(r *Rank, e *flow.Env, budget uint32) uint32 {
	for budget > 0 && e.Work.Left() {
		h, ok := r.links.Changed()
		if !ok {
			break
		}
		budget--
		for _, of := range r.callers {
			r.signal(e, of, h, flow.Signal{Kind: flow.Changed})
		}
	}
	return budget
}

// layered tells who pushes layers what became of what was carried for it, and ends bundles that are condemned: if not
// all, it says so.
func (r *Rank) layered(e *flow.Env) (more bool) {
	for {
		for i := 0; i < len(e.Told); i++ { // More may be told meanwhile.
			t := e.Told[i]
			r.layers.Hear(e, &t)
		}
		e.Told = e.Told[:0]
		if r.cfg.layers() { // What was stopped makes room later than it is told.
			r.layers.GoOn(e)
		}
		if len(e.Told) == 0 {
			break
		}
	}
	return e.Landings.EndBundles(&e.Env, &e.Store)
}

// shifted says, once, that somebody at the sending side left a line without what he waited for.
func (r *Rank) shifted() bool {
	reserves, puts := r.commands.LeftLine(), r.pullSource.Shifted()
	return reserves || puts
}

// lineMoved says, once, that the line for pages is to be looked at although no page became free: a request left it, or
// an offer at its front may have lost the way to its pages, for which pages are kept from the others.
func (r *Rank) lineMoved() bool {
	left, lost := r.rooms.Pending.Shifted(), r.links.LostWay()
	return left || lost
}

// admit serves who waits for pages, until nobody whose turn comes can be. It is called when pages became free. In a
// rank of both sides the first of our engine's reservations stands in the same line. A drain serves nobody: who waits
// is condemned.
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
			idle, c = -1, e.Pending.Collects(&e.Env) // All others may go on again.
		}
	}
}

// admitHead serves whose turn it is, or answers that it waits in vain, and says whether the line has moved.
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

// admitOwn gives our engine's oldest reservation its pages, if it can have them now.
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
