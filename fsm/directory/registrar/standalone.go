package registrar

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/fsm/table"
)

// Standalone runs a Registrar and its Lookups outside a rank: it contains the timers, requests and connections that
// both need, and passes each completion to its owner.
type Standalone struct {
	Registrar Registrar
	Lookups   Lookups

	started bool
	timers  kernel.Timers
	corrs   kernel.Corrs
	conns   kernel.Conns
}

// Owners of completions and deadlines in Standalone. The owners in the configuration are ignored.
const (
	ownerRegistrar kernel.Owner = 1 + iota
	ownerLookups
)

// Recycle returns a Standalone that is not registered anywhere, and reuses the memory of a. The old a must not be used
// any more. The configuration must pass its Check.
func (a *Standalone) Recycle(c Config) Standalone {
	c.Owner, c.LookupOwner = ownerRegistrar, ownerLookups
	need := c.RegistrarNeed().Add(c.LookupNeed())
	return Standalone{
		Registrar: a.Registrar.Recycle(c), Lookups: a.Lookups.Recycle(c),
		timers: a.timers.Recycle(need.Deadlines), corrs: a.corrs.Recycle(need.MaxOutstanding()),
		conns: a.conns.Recycle(c.MaxConns()),
	}
}

// Env returns the environment of a step.
func (a *Standalone) Env(now effects.Time, out *effects.Effects) env.Env {
	return env.Env{Now: now, Out: out, Timers: &a.timers, Corrs: &a.corrs, Conns: &a.conns}
}

// Deadline returns the instant of the next Tick. Before the first step a Tick is due at once.
func (a *Standalone) Deadline() (effects.Time, bool) {
	if !a.started {
		return 0, true
	}
	return a.timers.NextDeadline()
}

// Step handles an event and the deadlines that are due, and reports the changes of the store.
func (a *Standalone) Step(v *env.Env, s *store.Store, ev effects.Event) {
	if !a.started {
		a.started = true
		a.Registrar.Begin(v, s)
	}
	switch x := ev.(type) {
	case *effects.Opened:
		a.completeRequest(v, s, x.Corr, ev)
	case *effects.Replied:
		a.completeRequest(v, s, x.Corr, ev)
	case *effects.Unanswered:
		a.completeRequest(v, s, x.Corr, ev)
	case *effects.SendDone:
		a.completeRequest(v, s, x.Corr, ev)
	case *effects.ConnLost:
		if ref := a.conns.Find(x.Conn); ref.Owner != kernel.OwnerNone {
			a.dispatchEvent(v, s, ref, ev)
		}
	default: // Ticks, and commands of the owner.
	}
	// Deadlines that become due meanwhile wait for the next step. A step handles at most a deadline of each directory
	// and of each lookup: 64, plus [Config.LookupsMax].
	for range a.timers.Len() {
		ref, ok := a.timers.Pop(v.Now)
		if !ok {
			break
		}
		if ref.Owner == ownerLookups {
			a.Lookups.OnTimer(v, ref)
		} else {
			a.Registrar.OnTimer(v, s, ref)
		}
	}
	a.Registrar.Pump(v, s)
}

func (a *Standalone) completeRequest(v *env.Env, s *store.Store, c effects.Corr, ev effects.Event) {
	ref, ok := a.corrs.Close(c)
	if !ok {
		panic("BUG: a completion of nothing that is outstanding")
	}
	a.dispatchEvent(v, s, ref, ev)
}

func (a *Standalone) dispatchEvent(v *env.Env, s *store.Store, ref kernel.Ref, ev effects.Event) {
	if ref.Owner == ownerLookups {
		a.Lookups.Step(v, ref, ev)
	} else {
		a.Registrar.Step(v, s, ref, ev)
	}
}

// VisitTables reports the sizes of the tables.
func (a *Standalone) VisitTables(visit table.VisitFunc) {
	a.Lookups.VisitTables(visit)
	visit("outstanding", a.corrs.Len(), table.Empty)
	visit("connections", a.conns.Len(), table.Bounded)
	visit("deadlines", a.timers.Len(), table.Timed)
}
