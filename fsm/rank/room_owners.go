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

// What rooms ask for by themselves comes back to them as to a flow. Each of these is a room, or the rank, by another
// name.

// own is what the rank itself asks for: the end of a drain.
type own Rank

func (o *own) Step(*flow.Env, kernel.Ref, effects.Event) { kernel.Foreign("the rank") }
func (o *own) Signal(*flow.Env, kernel.Ref, flow.Signal) { kernel.Foreign("the rank") }
func (o *own) Abort(*flow.Env, kernel.Ref) bool          { return false }
func (o *own) Left(*flow.Env) int                        { return 0 }
func (o *own) Tables(table.Visit)                        {}
func (o *own) State(*flow.Rooms, kernel.Ref) uint16      { return uint16(Draining) }

// Due ends a drain that took too long, in this step or when its pass has ended.
func (o *own) Due(*flow.Env, kernel.Ref) { o.drain.timer, o.drain.late = 0, true }

type links link.Links

func (l *links) Step(e *flow.Env, ref kernel.Ref, ev effects.Event) {
	(*link.Links)(l).Step(&e.Env, ref, ev)
}
func (l *links) Due(e *flow.Env, ref kernel.Ref)           { (*link.Links)(l).OnTimer(&e.Env, ref) }
func (l *links) Signal(*flow.Env, kernel.Ref, flow.Signal) { kernel.Foreign("who keeps links") }
func (l *links) Abort(*flow.Env, kernel.Ref) bool          { return false }
func (l *links) Tables(visit table.Visit)                  { (*link.Links)(l).Tables(visit) }
func (l *links) Left(*flow.Env) int                        { return 0 }

// State is that of the peer, or that there is none.
func (l *links) State(_ *flow.Rooms, ref kernel.Ref) uint16 {
	peer := (*link.Links)(l).Outbound(ref.Subject)
	if peer == nil {
		return uint16(link.Backoff) + 1
	}
	state, _ := peer.State()
	return uint16(state)
}

// Name and Leads are what rooms that know no peer are told of one.
func (l *links) Name(class int) string       { return (*link.Links)(l).Name(class) }
func (l *links) Leads(way effects.Link) bool { return link.Leads((*link.Links)(l), way) }

type commands engine.Engine

func (c *commands) Step(e *flow.Env, ref kernel.Ref, ev effects.Event) {
	(*engine.Engine)(c).Step(&e.Env, ref, ev)
}
func (c *commands) Due(e *flow.Env, ref kernel.Ref)           { (*engine.Engine)(c).Due(&e.Env, ref) }
func (c *commands) Signal(*flow.Env, kernel.Ref, flow.Signal) { kernel.Foreign("the engine's room") }
func (c *commands) Abort(e *flow.Env, ref kernel.Ref) bool {
	return (*engine.Engine)(c).Abort(&e.Env, ref)
}
func (c *commands) Tables(visit table.Visit) { (*engine.Engine)(c).Tables(visit) }
func (c *commands) Left(*flow.Env) int       { return (*engine.Engine)(c).Left() }
func (c *commands) State(_ *flow.Rooms, ref kernel.Ref) uint16 {
	return uint16((*engine.Engine)(c).State(ref))
}

// waits are the rooms of targets in which things wait that are no flow's: Gets, claims, requests for pages.
type waits Rank

func (w *waits) Step(*flow.Env, kernel.Ref, effects.Event) { kernel.Foreign("who waits") }
func (w *waits) Signal(*flow.Env, kernel.Ref, flow.Signal) { kernel.Foreign("who waits") }

func (w *waits) Due(e *flow.Env, ref kernel.Ref) {
	//exhaustive:ignore
	switch ref.Owner {
	case kernel.OwnerGets:
		e.Gets.Due(&e.Env, &e.Store, &e.Ended, ref.Subject)
	case kernel.OwnerStore:
		e.Store.Due(ref.Subject, &e.Env)
	case kernel.OwnerPending:
		(*Rank)(w).waitedTooLong(e, ref.Subject)
	case kernel.OwnerBundles:
		e.Landings.Bundles.Due(&e.Env, ref.Subject)
		e.Landings.EndBundle(&e.Env, &e.Store, ref.Subject)
	}
}

func (w *waits) Abort(e *flow.Env, ref kernel.Ref) bool { return e.Gets.Abort(&e.Env, ref.Subject) }

// Tables shows what is in the rooms of targets, whosever it is.
func (w *waits) Tables(visit table.Visit) {
	m := &w.rooms
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

// Left counts what is in the rooms of targets, whosever it is.
func (w *waits) Left(e *flow.Env) int {
	return e.Pending.Len() + e.Gets.Len() + e.Pools.Grants() + e.Fetches.Left() + e.Deferred.Len() +
		e.Landings.Bundles.Len()
}

func (w *waits) State(m *flow.Rooms, ref kernel.Ref) uint16 {
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

// told are directories that are told of what the store has.
type told registrar.Registrar

func (t *told) Step(e *flow.Env, ref kernel.Ref, ev effects.Event) {
	(*registrar.Registrar)(t).Step(&e.Env, &e.Store, ref, ev)
}

func (t *told) Due(e *flow.Env, ref kernel.Ref) {
	(*registrar.Registrar)(t).Due(&e.Env, &e.Store, ref)
}

func (t *told) Signal(*flow.Env, kernel.Ref, flow.Signal) { kernel.Foreign("who tells directories") }
func (t *told) Abort(*flow.Env, kernel.Ref) bool          { return false }
func (t *told) Left(*flow.Env) int                        { return (*registrar.Registrar)(t).Left() }
func (t *told) Tables(visit table.Visit)                  { (*registrar.Registrar)(t).Tables(visit) }
func (t *told) State(*flow.Rooms, kernel.Ref) uint16      { return 0 }

// asked are directories that are asked who has what. Who asks hears their answers by himself.
type asked registrar.Lookups

func (a *asked) Step(e *flow.Env, ref kernel.Ref, ev effects.Event) {
	(*registrar.Lookups)(a).Step(&e.Env, ref, ev)
}

func (a *asked) Due(e *flow.Env, ref kernel.Ref)           { (*registrar.Lookups)(a).Due(&e.Env, ref) }
func (a *asked) Signal(*flow.Env, kernel.Ref, flow.Signal) { kernel.Foreign("who asks directories") }
func (a *asked) Abort(*flow.Env, kernel.Ref) bool          { return false }
func (a *asked) Left(*flow.Env) int                        { return 0 }
func (a *asked) Tables(table.Visit)                        {}
func (a *asked) State(*flow.Rooms, kernel.Ref) uint16      { return 0 }
