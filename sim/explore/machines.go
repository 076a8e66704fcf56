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

// CloneMachine is a machine that goes on apart, in the memory of old: the last one, which nobody uses any more; nil is
// none.
func CloneMachine[T any](m *Machines, old, of *T) *T { return snapshot.CloneOver(m.s.walker, old, of) }

// SameMachine says whether two machines go on alike from an instant of their clock on.
func SameMachine[T any](m *Machines, a, b *T, now effects.Time) bool {
	if snapshot.Same(m.s.walker, a, b) {
		return true
	}
	m.s.w.Now = int64(now)
	return snapshot.Hash(m.s.walker, a) == snapshot.Hash(m.s.walker, b)
}
