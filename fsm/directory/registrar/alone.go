package registrar

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/fsm/table"
)

// Alone is a registrar and its lookups without a rank: it has the tables that they need, and finds whose a completion
// is.
type Alone struct {
	Registrar Registrar
	Lookups   Lookups

	begun  bool
	timers kernel.Timers
	corrs  kernel.Corrs
	conns  kernel.Conns
}

// Owners of what Alone asks for; the configuration's are of no account.
const (
	ownRegistrar kernel.Owner = 1 + iota
	ownLookups
)

// Emptied is one that is known nowhere, in the memory of a, which is not used any more. The configuration must pass its
// Check.
func (a *Alone) Emptied(c Config) Alone {
	c.Owner, c.Asker = ownRegistrar, ownLookups
	need := c.Need().And(c.Asks())
	return Alone{
		Registrar: a.Registrar.Emptied(c), Lookups: a.Lookups.Emptied(c),
		timers: a.timers.Emptied(need.Deadlines), corrs: a.corrs.Emptied(need.Outstanding()),
		conns: a.conns.Emptied(c.Conns()),
	}
}

// Env is what a step shares.
func (a *Alone) Env(now effects.Time, out *effects.Effects) env.Env {
	return env.Env{Now: now, Out: out, Timers: &a.timers, Corrs: &a.corrs, Conns: &a.conns}
}

// Deadline is when it wants a Tick: at once, to begin.
func (a *Alone) Deadline() (effects.Time, bool) {
	if !a.begun {
		return 0, true
	}
	return a.timers.Next()
}

// Step takes an event, ends what has no time left, and tells what has changed in the store.
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
	default: // A tick, or a command of who owns it.
	}
	// What becomes due meanwhile is for the next step. A step takes a deadline of each directory and lookup at the most:
	// 64, and [Config.Questions].
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

// Tables shows how full its tables are.
func (a *Alone) Tables(visit table.Visit) {
	a.Lookups.Tables(visit)
	visit("outstanding", a.corrs.Len(), table.Empty)
	visit("connections", a.conns.Len(), table.Bounded)
	visit("deadlines", a.timers.Len(), table.Timed)
}
