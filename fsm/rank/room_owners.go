package rank

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/directory/registrar"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/table"
)

// Rooms that are not flows also set timers and send requests. Each type in this file adapts one room, or the rank
// itself, to flow.Flow, so that completions and deadlines reach the room. An adapter holds a pointer and nothing else,
// so that its conversion to a flow.Flow allocates nothing.

// A drainFlow owns the timer that ends a drain.
type drainFlow struct{ rank *Rank }

func (drainFlow) Step(*flow.Env, kernel.Ref, effects.Event) { kernel.Foreign("the rank") }
func (drainFlow) Signal(*flow.Env, kernel.Ref, flow.Signal) { kernel.Foreign("the rank") }
func (drainFlow) Abort(*flow.Env, kernel.Ref) bool          { return false }
func (drainFlow) Left(*flow.Env) int                        { return 0 }
func (drainFlow) Tables(table.Visit)                        {}
func (drainFlow) State(*flow.Rooms, kernel.Ref) uint16      { return uint16(Draining) }

// Due marks the drain as late. The drain ends in this step, or when its sweep has ended.
func (d drainFlow) Due(*flow.Env, kernel.Ref) { d.rank.drain.timer, d.rank.drain.late = 0, true }

// A linkFlow owns the effects and timers of the table of peers. The linkFlow also serves as the Names of a step's
// environment, from which rooms that do not know the table of peers get a peer's name and the state of a link.
type linkFlow struct{ *link.Links }

func (l linkFlow) Step(e *flow.Env, ref kernel.Ref, ev effects.Event) { l.Links.Step(&e.Env, ref, ev) }
func (l linkFlow) Due(e *flow.Env, ref kernel.Ref)                    { l.OnTimer(&e.Env, ref) }
func (linkFlow) Signal(*flow.Env, kernel.Ref, flow.Signal)            { kernel.Foreign("the table of peers") }
func (linkFlow) Abort(*flow.Env, kernel.Ref) bool                     { return false }
func (linkFlow) Left(*flow.Env) int                                   { return 0 }

// State returns the state of the peer, or the value after the last state if there is no such peer.
func (l linkFlow) State(_ *flow.Rooms, ref kernel.Ref) uint16 {
	peer := l.Outbound(ref.Subject)
	if peer == nil {
		return uint16(link.Backoff) + 1
	}
	state, _ := peer.State()
	return uint16(state)
}

func (l linkFlow) Leads(way effects.Link) bool { return link.Leads(l.Links, way) }

// A commandFlow owns the effects and timers of the engine's commands.
type commandFlow struct{ *engine.Engine }

func (c commandFlow) Step(e *flow.Env, ref kernel.Ref, ev effects.Event) {
	c.Engine.Step(&e.Env, ref, ev)
}
func (c commandFlow) Due(e *flow.Env, ref kernel.Ref) { c.Engine.Due(&e.Env, ref) }
func (commandFlow) Signal(*flow.Env, kernel.Ref, flow.Signal) {
	kernel.Foreign("the engine's commands")
}
func (c commandFlow) Abort(e *flow.Env, ref kernel.Ref) bool     { return c.Engine.Abort(&e.Env, ref) }
func (c commandFlow) Left(*flow.Env) int                         { return c.Engine.Left() }
func (c commandFlow) State(_ *flow.Rooms, ref kernel.Ref) uint16 { return uint16(c.Engine.State(ref)) }

// A waitFlow owns the waiting rows of the rooms that all targets share: Gets, claims, pending allocation requests and
// bundles.
type waitFlow struct{ rank *Rank }

func (waitFlow) Step(*flow.Env, kernel.Ref, effects.Event) {
	kernel.Foreign("what waits in shared rooms")
}
func (waitFlow) Signal(*flow.Env, kernel.Ref, flow.Signal) {
	kernel.Foreign("what waits in shared rooms")
}

func (w waitFlow) Due(e *flow.Env, ref kernel.Ref) {
	//exhaustive:ignore
	switch ref.Owner {
	case kernel.OwnerGets:
		e.Gets.Due(&e.Env, &e.Store, &e.Ended, ref.Subject)
	case kernel.OwnerStore:
		e.Store.Due(ref.Subject, &e.Env)
	case kernel.OwnerPending:
		w.rank.waitedTooLong(e, ref.Subject)
	case kernel.OwnerBundles:
		e.Landings.Bundles.Due(&e.Env, ref.Subject)
		e.Landings.EndBundle(&e.Env, &e.Store, ref.Subject)
	}
}

func (waitFlow) Abort(e *flow.Env, ref kernel.Ref) bool { return e.Gets.Abort(&e.Env, ref.Subject) }

// Tables visits the rows of the shared rooms, whichever flow the rows belong to.
func (w waitFlow) Tables(visit table.Visit) {
	m := &w.rank.rooms
	visit("gets", m.Gets.Len(), table.Empty)
	m.Landings.Bundles.Tables(visit)
	visit("pending requests", m.Pending.Len(), table.Empty)
	visit("deferred offers", m.Deferred.Len(), table.Empty)
	visit("fetches", m.Fetches.Len(), table.Empty)
	visit("staging pages", int(m.Fetches.Pipeline().Staged()), table.Empty)
	visit("claims", m.Store.Claims(), table.Empty)
	visit("remote locations", m.Store.Locations(), table.Empty)
	visit("chunks", m.Store.Entries(), table.Ready)
	visit("abandoned requests", m.Abandons.Len(), table.Bounded)
	visit("requests of peers", m.Ended.Len(), table.Bounded)
}

// Left counts the rows of the shared rooms, whichever flow the rows belong to.
func (waitFlow) Left(e *flow.Env) int {
	return e.Pending.Len() + e.Gets.Len() + e.Pools.Grants() + e.Fetches.Left() + e.Deferred.Len() +
		e.Landings.Bundles.Len()
}

func (waitFlow) State(m *flow.Rooms, ref kernel.Ref) uint16 {
	//exhaustive:ignore
	switch ref.Owner {
	case kernel.OwnerPending:
		return waitsAsk
	case kernel.OwnerStore:
		return waitsClaimed
	case kernel.OwnerBundles:
		return waitsBundle
	}
	switch waiting, open := m.Gets.State(ref.Subject); {
	case waiting:
		return waitsGet
	case open:
		return waitsPinned
	}
	return waitsGone
}

// A registrarFlow owns the effects and timers of the registrar, which reports to the directories which chunks the store
// has.
type registrarFlow struct{ *registrar.Registrar }

func (r registrarFlow) Step(e *flow.Env, ref kernel.Ref, ev effects.Event) {
	r.Registrar.Step(&e.Env, &e.Store, ref, ev)
}

func (r registrarFlow) Due(e *flow.Env, ref kernel.Ref) { r.Registrar.Due(&e.Env, &e.Store, ref) }

func (registrarFlow) Signal(*flow.Env, kernel.Ref, flow.Signal) { kernel.Foreign("the registrar") }
func (registrarFlow) Abort(*flow.Env, kernel.Ref) bool          { return false }
func (r registrarFlow) Left(*flow.Env) int                      { return r.Registrar.Left() }
func (registrarFlow) State(*flow.Rooms, kernel.Ref) uint16      { return 0 }

// A lookupFlow owns the lookups in directories. The flow that started a lookup receives the reply itself.
type lookupFlow struct{ *registrar.Lookups }

func (l lookupFlow) Step(e *flow.Env, ref kernel.Ref, ev effects.Event) {
	l.Lookups.Step(&e.Env, ref, ev)
}
func (l lookupFlow) Due(e *flow.Env, ref kernel.Ref) { l.Lookups.Due(&e.Env, ref) }
func (lookupFlow) Signal(*flow.Env, kernel.Ref, flow.Signal) {
	kernel.Foreign("lookups in directories")
}
func (lookupFlow) Abort(*flow.Env, kernel.Ref) bool     { return false }
func (lookupFlow) Left(*flow.Env) int                   { return 0 }
func (lookupFlow) Tables(table.Visit)                   {}
func (lookupFlow) State(*flow.Rooms, kernel.Ref) uint16 { return 0 }
