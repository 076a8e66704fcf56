// Package env is what the rooms of a rank share for the time of one step: the instant, the effects, and the tables that
// belong to all of them. The rank owns it and hands it to them by argument. A room may rely on Now being the same all
// through a step, and must keep nothing of it beyond.
package env

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory"
)

// Env is the step's instant, its effects, and the shared tables.
type Env struct {
	Now     effects.Time
	Out     *effects.Effects
	Pools   *memory.Pools
	Pool    *memory.Pool // whose pages peers store into and read; also the engine's if Engine is nil
	Engine  *memory.Pool // that the engine fills, for who copies to the arena, which is Pool then: see OfArena
	Arena   *memory.Pool // to which what is ready is copied for peers that read it, if there is one
	Landing *memory.Pool // into which what peers share comes; nil: Pool
	Staging *memory.Pool // into which fetches read; nil: Pool
	Timers  *kernel.Timers
	Corrs   *kernel.Corrs
	Conns   *kernel.Conns
	Tickets *kernel.Tickets // of commands that are open
	Names   Names           // may be nil
	Work    *kernel.Work    // what this step may still do of what can wait; nil: all
}

// Names knows what peers call themselves, for people, and which links lead anywhere.
type Names interface {
	// Name is that of the guest of a class; empty if it has none.
	Name(class int) string
	// Leads says whether a link stands.
	Leads(link effects.Link) bool
}

// Leads says whether a link stands, as far as is known: one that was dropped is not read over.
func (v *Env) Leads(link effects.Link) bool { return v.Names == nil || v.Names.Leads(link) }

// Name is what the guest of a class calls itself; empty if it is not known.
func (v *Env) Name(class int) string {
	if v.Names == nil {
		return ""
	}
	return v.Names.Name(class)
}

// OfArena is v as who copies to the arena sees it, and who lends from there.
func (v *Env) OfArena() Env {
	a := *v
	a.Pool, a.Engine = v.Arena, v.Pool
	return a
}

// LandsIn is the pool into which what peers share comes.
func (v *Env) LandsIn() *memory.Pool {
	if v.Landing != nil {
		return v.Landing
	}
	return v.Pool
}

// StagedIn is the pool into which fetches read.
func (v *Env) StagedIn() *memory.Pool {
	if v.Staging != nil {
		return v.Staging
	}
	return v.Pool
}

// Filled is the pool whose pages the engine reserves and puts.
func (v *Env) Filled() *memory.Pool {
	if v.Engine != nil {
		return v.Engine
	}
	return v.Pool
}
