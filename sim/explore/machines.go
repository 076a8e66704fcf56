package explore

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/world"
	"github.com/kvferry/kvferry/snapshot"
)

// Machines clones and hashes machines by themselves: two that hash alike at one instant go on alike. It is for one
// goroutine.
type Machines struct{ s shape }

// NewMachines returns one, which has seen no machine yet.
func NewMachines() *Machines {
	m := &Machines{s: shape{w: &world.World{}}}
	m.s.walker = snapshot.New(m.s.machineRules()...)
	return m
}

// CloneMachine is a machine that goes on apart.
func CloneMachine[T any](m *Machines, of *T) *T { return snapshot.Clone(m.s.walker, of) }

// HashMachine is the hash of what of a machine can still matter, by its own clock.
func HashMachine[T any](m *Machines, of *T, now effects.Time) uint64 {
	m.s.w.Now = int64(now)
	return snapshot.Hash(m.s.walker, of)
}
