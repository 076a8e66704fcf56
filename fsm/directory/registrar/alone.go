package registrar

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/fsm/table"
)

// Alone runs a Registrar and its Lookups outside a rank: it contains the timers, requests and connections that both
// need, and passes each completion to its owner.
type Alone struct {
	Registrar Registrar
	Lookups   Lookups

	begun  bool
	timers kernel.Timers
	corrs  kernel.Corrs
	conns  kernel.Conns
}

// Owners of completions and deadlines in Alone. The owners in the configuration are ignored.
const (
	ownRegistrar kernel.Owner = 1 + iota
	ownLookups
)

// Emptied returns an Alone that is not registered anywhere, and reuses the memory of a. The old a must not be used
// any more. The configuration must pass its Check.
func (a *Alone) Emptied(c Config) Alone {
	c.Owner, c.Asker = ownRegistrar, ownLookups
	need := c.Need().And(c.Asks())
	return Alone{
		Registrar: a.Registrar.Emptied(c), Lookups: a.Lookups.Emptied(c),
		timers: a.timers.Emptied(need.Deadlines), corrs: a.corrs.Emptied(need.Outstanding()),
		conns: a.conns.Emptied(c.Conns()),
	}
}

// Env returns the environment of a step.
func (a *Alone) Env(now effects.Time, out *effects.Effects) env.Env {
	return env.Env{Now: now, Out: out, Timers: &a.timers, Corrs: &a.corrs, Conns: &a.conns}
}

// Deadline returns the instant of the next Tick. Before the first step a Tick is due at once.
func (a *Alone) Deadline() (effects.Time, bool) {
	if !a.begun {
		return 0, true
	}
	return a.timers.Next()
}

// Step handles an event and the deadlines that are due, and reports the changes of the store.
func (a *Alone) Step(v *env.Env, s *store.Store, ev effects.Event) {
	if !a.begun {
		a.begun = true
		a.Registrar.Begin(v, s)
	}
	switch x := ev.(type) {
	case *effects.Opened:
		a.complete(v, s, x.Corr, ev)
	case *effects.Replied:
		a.complete(v, s, x.Corr, ev)
	case *effects.Unanswered:
		a.complete(v, s, x.Corr, ev)
	case *effects.SendDone:
		a.complete(v, s, x.Corr, ev)
	case *effects.ConnLost:
		if ref := a.conns.Find(x.Conn); ref.Owner != kernel.OwnerNone {
			a.hears(v, s, ref, ev)
		}
	default: // Ticks, and commands of the owner.
	}
	// Deadlines that become due meanwhile wait for the next step. A step handles at most a deadline of each directory
	// and of each lookup: 64, plus [Config.Questions].
	for range a.timers.Len() {
		ref, ok := a.timers.Pop(v.Now)
		if !ok {
			break
		}
		if ref.Owner == ownLookups {
			a.Lookups.Due(v, ref)
		} else {
			a.Registrar.Due(v, s, ref)
		}
	}
	a.Registrar.Pump(v, s)
}

func (a *Alone) complete(v *env.Env, s *store.Store, c effects.Corr, ev effects.Event) {
	ref, ok := a.corrs.Close(c)
	if !ok {
		panic("BUG: a completion of nothing that is outstanding")
	}
	a.hears(v, s, ref, ev)
}

func (a *Alone) hears(v *env.Env, s *store.Store, ref kernel.Ref, ev effects.Event) {
	if ref.Owner == ownLookups {
		a.Lookups.Step(v, ref, ev)
	} else {
		a.Registrar.Step(v, s, ref, ev)
	}
}

// Tables reports the sizes of the tables.
func (a *Alone) Tables(visit table.Visit) {
	a.Lookups.Tables(visit)
	visit("outstanding", a.corrs.Len(), table.Empty)
	visit("connections", a.conns.Len(), table.Bounded)
	visit("deadlines", a.timers.Len(), table.Timed)
}
