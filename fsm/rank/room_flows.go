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

func (drainFlow) Step(*flow.Env, kernel.Ref, effects.Event)   { kernel.PanicUnexpected("the rank") }
func (drainFlow) OnSignal(*flow.Env, kernel.Ref, flow.Signal) { kernel.PanicUnexpected("the rank") }
func (drainFlow) AbortCommand(*flow.Env, kernel.Ref) bool     { return false }
func (drainFlow) CountUnfinished(*flow.Env) int               { return 0 }
func (drainFlow) VisitTables(table.VisitFunc)                 {}
func (drainFlow) RowState(*flow.Rooms, kernel.Ref) uint16     { return uint16(Draining) }

// OnTimer marks the drain as late. The drain ends in this step, or when its sweep has ended.
func (d drainFlow) OnTimer(*flow.Env, kernel.Ref) { d.rank.drain.timer, d.rank.drain.late = 0, true }

// A linkFlow owns the effects and timers of the table of peers. The linkFlow also serves as the Names of a step's
// environment, from which rooms that do not know the table of peers get a peer's name and the state of a link.
type linkFlow struct{ *link.Links }

func (l linkFlow) Step(e *flow.Env, ref kernel.Ref, ev effects.Event) { l.Links.Step(&e.Env, ref, ev) }
func (l linkFlow) OnTimer(e *flow.Env, ref kernel.Ref)                { l.OnHandshakeTimer(&e.Env, ref) }
func (linkFlow) OnSignal(*flow.Env, kernel.Ref, flow.Signal) {
	kernel.PanicUnexpected("the table of peers")
}
func (linkFlow) AbortCommand(*flow.Env, kernel.Ref) bool { return false }
func (linkFlow) CountUnfinished(*flow.Env) int           { return 0 }

// RowState returns the state of the peer, or the value after the last state if there is no such peer.
func (l linkFlow) RowState(_ *flow.Rooms, ref kernel.Ref) uint16 {
	peer := l.Outbound(ref.Subject)
	if peer == nil {
		return uint16(link.Backoff) + 1
	}
	state, _ := peer.State()
	return uint16(state)
}

func (l linkFlow) HasLink(way effects.Link) bool { return link.HasLink(l.Links, way) }

// A commandFlow owns the effects and timers of the engine's commands.
type commandFlow struct{ *engine.Engine }

func (c commandFlow) Step(e *flow.Env, ref kernel.Ref, ev effects.Event) {
	c.Engine.Step(&e.Env, ref, ev)
}
func (c commandFlow) OnTimer(e *flow.Env, ref kernel.Ref) { c.Engine.OnTimer(&e.Env, ref) }
func (commandFlow) OnSignal(*flow.Env, kernel.Ref, flow.Signal) {
	kernel.PanicUnexpected("the engine's commands")
}
func (c commandFlow) AbortCommand(e *flow.Env, ref kernel.Ref) bool {
	return c.Engine.AbortCommand(&e.Env, ref)
}
func (commandFlow) CountUnfinished(*flow.Env) int { return 0 } // See eachUnfinished.
func (c commandFlow) RowState(_ *flow.Rooms, ref kernel.Ref) uint16 {
	return uint16(c.Engine.RowState(ref))
}

// A waitFlow owns the waiting rows of the rooms that all targets share: Gets, claims, pending allocation requests and
// bundles.
type waitFlow struct{ rank *Rank }

func (waitFlow) Step(*flow.Env, kernel.Ref, effects.Event) {
	kernel.PanicUnexpected("the shared rooms")
}
func (waitFlow) OnSignal(*flow.Env, kernel.Ref, flow.Signal) {
	kernel.PanicUnexpected("the shared rooms")
}

func (w waitFlow) OnTimer(e *flow.Env, ref kernel.Ref) {
	//exhaustive:ignore
	switch ref.Owner {
	case kernel.OwnerGets:
		e.Gets.OnTimer(&e.Env, &e.Store, &e.Outcomes, ref.Subject)
	case kernel.OwnerStore:
		e.Store.OnTimer(ref.Subject, &e.Env)
	case kernel.OwnerAllocQueue:
		w.rank.expireRequest(e, ref.Subject)
	case kernel.OwnerBundles:
		e.Landings.Bundles.OnTimer(&e.Env, ref.Subject)
		e.Landings.EndBundle(&e.Env, &e.Store, ref.Subject)
	}
}

func (waitFlow) AbortCommand(e *flow.Env, ref kernel.Ref) bool {
	return e.Gets.AbortWaiting(&e.Env, ref.Subject)
}

// VisitTables visits the rows of the shared rooms, whichever flow the rows belong to.
func (w waitFlow) VisitTables(visit table.VisitFunc) {
	m := &w.rank.sharedRooms
	visit("gets", m.Gets.Len(), table.Empty)
	m.Landings.Bundles.VisitTables(visit)
	visit("pending requests", m.Pending.Len(), table.Empty)
	visit("deferred offers", m.Deferred.Len(), table.Empty)
	visit("fetches", m.Fetches.Len(), table.Empty)
	visit("staging pages", int(m.Fetches.Pipeline().StagedPages()), table.Empty)
	visit("claims", m.Store.CountClaims(), table.Empty)
	visit("remote locations", m.Store.CountLocations(), table.Empty)
	visit("chunks", m.Store.CountEntries(), table.Ready)
	visit("abandoned requests", m.Abandons.Len(), table.Bounded)
	visit("requests of peers", m.Outcomes.Len(), table.Bounded)
}

// CountUnfinished returns 0: countRooms counts the rows of the shared rooms, whichever flow the rows belong to.
func (waitFlow) CountUnfinished(*flow.Env) int { return 0 }

func (waitFlow) RowState(m *flow.Rooms, ref kernel.Ref) uint16 {
	//exhaustive:ignore
	switch ref.Owner {
	case kernel.OwnerAllocQueue:
		return waitsRequest
	case kernel.OwnerStore:
		return waitsClaimed
	case kernel.OwnerBundles:
		return waitsBundle
	}
	switch waiting, open := m.Gets.StateOf(ref.Subject); {
	case waiting:
		return waitsGet
	case open:
		return waitsPinned
	}
	return waitsNoRow
}

// A registrarFlow owns the effects and timers of the registrar, which reports to the directories which chunks the store
// has.
type registrarFlow struct{ *registrar.Registrar }

func (r registrarFlow) Step(e *flow.Env, ref kernel.Ref, ev effects.Event) {
	r.Registrar.Step(&e.Env, &e.Store, ref, ev)
}

func (r registrarFlow) OnTimer(e *flow.Env, ref kernel.Ref) {
	r.Registrar.OnTimer(&e.Env, &e.Store, ref)
}

func (registrarFlow) OnSignal(*flow.Env, kernel.Ref, flow.Signal) {
	kernel.PanicUnexpected("the registrar")
}
func (registrarFlow) AbortCommand(*flow.Env, kernel.Ref) bool { return false }
func (r registrarFlow) CountUnfinished(*flow.Env) int         { return r.CountActive() }
func (registrarFlow) RowState(*flow.Rooms, kernel.Ref) uint16 { return 0 }

// A lookupFlow owns the lookups in directories. The flow that started a lookup receives the reply itself.
type lookupFlow struct{ *registrar.Lookups }

func (l lookupFlow) Step(e *flow.Env, ref kernel.Ref, ev effects.Event) {
	l.Lookups.Step(&e.Env, ref, ev)
}
func (l lookupFlow) OnTimer(e *flow.Env, ref kernel.Ref) { l.Lookups.OnTimer(&e.Env, ref) }
func (lookupFlow) OnSignal(*flow.Env, kernel.Ref, flow.Signal) {
	kernel.PanicUnexpected("lookups in directories")
}
func (lookupFlow) AbortCommand(*flow.Env, kernel.Ref) bool { return false }
func (lookupFlow) CountUnfinished(*flow.Env) int           { return 0 }
func (lookupFlow) VisitTables(table.VisitFunc)             {}
func (lookupFlow) RowState(*flow.Rooms, kernel.Ref) uint16 { return 0 }
