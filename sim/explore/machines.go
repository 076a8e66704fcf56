package explore

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/world"
	"github.com/kvferry/kvferry/snapshot"
)

// A MachineHasher clones and hashes machines without a world. Two machines with the same hash at an instant continue
// alike. Only one goroutine at a time may use a MachineHasher.
type Machines struct{ s shape }

// NewMachineHasher returns a hasher without any machine.
func NewMachines() *Machines {
	m := &Machines{s: shape{w: &world.World{}}}
	m.s.walker = snapshot.New(m.s.machineRules()...)
	return m
}

// CloneMachine returns an independent copy of a machine, in the memory of old: an earlier copy that is not used any
// more, or nil.
func CloneMachine[T any](m *Machines, old, of *T) *T { return snapshot.CloneInto(m.s.walker, old, of) }

// SameMachine reports whether two machines continue alike from the given instant of their clock.
func SameMachine[T any](m *Machines, a, b *T, now effects.Time) bool {
	if snapshot.Same(m.s.walker, a, b) {
		return true
	}
	m.s.w.Now = int64(now)
	return snapshot.Hash(m.s.walker, a) == snapshot.Hash(m.s.walker, b)
}
