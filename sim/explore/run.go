package explore

import (
	"reflect"
	"unsafe"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/world"
	"github.com/kvferry/kvferry/snapshot"
)

// A System is what runs in a scope.
type System interface {
	// Play creates the scope's world, in which the jobs and items are about to start.
	Play(s *Scope) (Run, error)
}

// A Run is a world together with its engines and oracles. The explorer clones and hashes the whole tree. The explorer
// knows nodes, networks and planes; this interface gives access to the engines.
type Run interface {
	// Whole returns the world.
	Whole() *world.World
	// Cloned makes a copy of a run independent of the original.
	Cloned()
	// Kinds returns the types of the system that the world does not show.
	Kinds() Kinds

	// Called returns the name of a node in scopes.
	Called(n *world.Node) string
	// Stepper returns the node at which a delivery steps the machine, or [plan.Nobody].
	Stepper(d *world.Delivery) int32
	// Fetches makes an engine fetch now what the delivery announces, with a long timeout.
	Fetches(d *world.Delivery)
	// Given returns the number of commands. Tickets count from 1.
	Given() int
	// Abortable returns the node at which the engine may abort a command, or [plan.Nobody].
	Abortable(t effects.Ticket) int32
	// GiveAbort makes the engine of a node abort a command.
	GiveAbort(*world.Node, effects.Ticket)
	// Harms returns the further faults of a kind that may strike now ([Scope.Harm]).
	Harms(how string) []world.Delivery
	// Leave asks a node to drain.
	Leave(n *world.Node, patience effects.Duration, twice bool)
	// Wanted returns the kind of a command as a word.
	Wanted(t effects.Ticket) string
	// Ticket returns a name of a command that is the same in every history.
	Ticket(t effects.Ticket) uint64

	// Outstanding hashes what a running machine uses a Corr for. The Corr itself may differ in another history.
	Outstanding(h *snapshot.Hasher, n *world.Node, c effects.Corr)
}

// SystemTypes lists the types of a run that only its system knows, in addition to the types of the machines and of the
// oracles' memory.
type Kinds struct {
	// Implementations lists, for each interface type of the system, the pointer types that a value of the interface can
	// have.
	Others map[reflect.Type][]reflect.Type
	// Bags hashes lists in which the order does not matter, and in which not all elements matter.
	Bags map[reflect.Type]func(w *world.World, h *snapshot.Hasher, p unsafe.Pointer)
}

// Bag hashes elements in any order. Elements for which matters returns false are left out.
func Bag[T any](h *snapshot.Hasher, all []T, matters func(i int, one *snapshot.Hasher) bool) {
	total := uint64(0)
	for i := range all {
		if one := h.Fork(); matters(i, &one) {
			total += one.Sum()
		}
	}
	h.Word(total)
}
