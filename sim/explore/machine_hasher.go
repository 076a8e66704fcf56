package explore

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/world"
	"github.com/kvferry/kvferry/snapshot"
)

// A MachineHasher clones and hashes machines without a world. Two machines with the same hash at an instant continue
// alike. Only one goroutine at a time may use a MachineHasher.
type MachineHasher struct{ hasher stateHasher }

// NewMachineHasher returns a hasher without any machine.
func NewMachineHasher() *MachineHasher {
	m := &MachineHasher{hasher: stateHasher{w: &world.World{}}}
	m.hasher.walker = snapshot.New(m.hasher.machineRules()...)
	return m
}

// CloneMachine returns an independent copy of a machine, in the memory of old: an earlier copy that is not used any
// more, or nil.
func CloneMachine[T any](m *MachineHasher, old, original *T) *T {
	return snapshot.CloneInto(m.hasher.walker, old, original)
}

// SameMachine reports whether two machines continue alike from the given instant of their clock.
func SameMachine[T any](m *MachineHasher, a, b *T, now effects.Time) bool {
	if snapshot.Same(m.hasher.walker, a, b) {
		return true
	}
	m.hasher.w.Now = int64(now)
	return snapshot.Hash(m.hasher.walker, a) == snapshot.Hash(m.hasher.walker, b)
}

// EncodeMachine appends the state of a machine to b, as bytes from which DecodeMachine makes an equal machine.
func EncodeMachine[T any](m *MachineHasher, b []byte, machine *T) []byte {
	return snapshot.Encode(m.hasher.walker, b, machine)
}

// DecodeMachine gives a machine, which was made with the same configuration as the encoded one, the encoded state. The
// memory of the state is limited to memoryMax bytes.
func DecodeMachine[T any](m *MachineHasher, into *T, b []byte, memoryMax uint64) error {
	return snapshot.Decode(m.hasher.walker, into, b, memoryMax)
}
