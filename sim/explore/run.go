package explore

import (
	"reflect"
	"unsafe"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/world"
	"github.com/kvferry/kvferry/snapshot"
)

// A System is what plays in a scope.
type System interface {
	// Play makes the scope's world, with what is wanted in it about to start.
	Play(s *Scope) (Run, error)
}

// A Run is a world with all who play and judge in it: one tree, which is cloned and hashed as a whole. The explorer
// knows nodes, networks and planes; of those who give commands it knows what is here.
type Run interface {
	Whole() *world.World
	Cloned() // says to a copy that it is one by itself
	Kinds() Kinds

	Called(n *world.Node) string      // as scopes name it
	Stepper(d *world.Delivery) int32  // the node whose machine a delivery steps; [plan.Nobody]
	Fetches(d *world.Delivery)        // an engine wants now what it is told of, and is patient
	Given() int                       // commands; tickets count from 1
	Abortable(t effects.Ticket) int32 // the node whose engine may abort it; [plan.Nobody]
	GiveAbort(*world.Node, effects.Ticket)
	Harms(how string) []world.Delivery                          // what else may go wrong so ([Scope.Harm])
	Leave(n *world.Node, patience effects.Duration, twice bool) // it is told to drain
	Wanted(t effects.Ticket) string                             // what a command is, in a word
	Ticket(t effects.Ticket) uint64                             // what it is called in every history

	// Outstanding says what a machine that lives means by a Corr: in another history it may have another number.
	Outstanding(h *snapshot.Hasher, n *world.Node, c effects.Corr)
}

// Kinds are types of what a run consists of that only its system knows.
type Kinds struct {
	Run      reflect.Type   // the run itself
	Machines []reflect.Type // all that there are, as pointers
	States   []reflect.Type // of what users' oracles remember
	// Others are what interfaces of its own can hold, as pointers.
	Others map[reflect.Type][]reflect.Type
	// Bags hash fields that are lists whose order does not count, and of which not all counts.
	Bags map[reflect.Type]func(w *world.World, h *snapshot.Hasher, p unsafe.Pointer)
}

// Bag adds parts whose order does not count.
func Bag[T any](h *snapshot.Hasher, all []T, matters func(i int, one *snapshot.Hasher) bool) {
	total := uint64(0)
	for i := range all {
		if one := h.Apart(); matters(i, &one) {
			total += one.Sum()
		}
	}
	h.Word(total)
}
