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
	// NewRun creates the scope's world, in which the jobs and items are about to start.
	NewRun(s *Scope) (Run, error)
}

// A Run is a world together with its engines and oracles. The explorer clones and hashes the whole tree. The explorer
// knows nodes, networks and planes; this interface gives access to the engines.
type Run interface {
	// BaseWorld returns the world.
	BaseWorld() *world.World
	// DetachClone makes a copy of a run independent of the original.
	DetachClone()
	// SystemTypes returns the types of the system that the world does not show.
	SystemTypes() SystemTypes

	// NodeName returns the name of a node in scopes.
	NodeName(n *world.Node) string
	// SteppedNode returns the node at which a delivery steps the machine, or [plan.NoNode].
	SteppedNode(d *world.Delivery) int32
	// FetchNow makes an engine fetch now what the delivery announces, with a long timeout.
	FetchNow(d *world.Delivery)
	// CommandCount returns the number of commands. Tickets count from 1.
	CommandCount() int
	// AbortableAt returns the node at which the engine may abort a command, or [plan.NoNode].
	AbortableAt(t effects.Ticket) int32
	// AbortCommand makes the engine of a node abort a command.
	AbortCommand(*world.Node, effects.Ticket)
	// SystemFaults returns the further faults of a kind that may strike now ([Scope.SystemFault]).
	SystemFaults(how string) []world.Delivery
	// StartDrain asks a node to drain.
	StartDrain(n *world.Node, patience effects.Duration, twice bool)
	// CommandKindName returns the kind of a command as a word.
	CommandKindName(t effects.Ticket) string
	// TicketName returns a name of a command that is the same in every history.
	TicketName(t effects.Ticket) uint64

	// HashOutstanding hashes what a running machine uses a Corr for. The Corr itself may differ in another history.
	HashOutstanding(h *snapshot.Hasher, n *world.Node, c effects.Corr)
}

// SystemTypes lists the types of a run that only its system knows, in addition to the types of the machines and of the
// oracles' memory.
type SystemTypes struct {
	// Implementations lists, for each interface type of the system, the pointer types that a value of the interface can
	// have.
	Implementations map[reflect.Type][]reflect.Type
	// Bags hashes lists in which the order does not matter, and in which not all elements matter.
	Bags map[reflect.Type]func(w *world.World, h *snapshot.Hasher, p unsafe.Pointer)
}

// HashBag hashes elements in any order. Elements for which hashOne returns false are left out.
func HashBag[T any](h *snapshot.Hasher, all []T, hashOne func(i int, hash *snapshot.Hasher) bool) {
	total := uint64(0)
	for i := range all {
		if hash := h.Fork(); hashOne(i, &hash) {
			total += hash.Sum()
		}
	}
	h.Word(total)
}
