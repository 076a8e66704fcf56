package recording

import (
	"sync"

	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/snapshot"
)

// newStateWalker returns a walker for the states of ranks: what a checkpoint has follows from their tags alone. A walker
// belongs to one goroutine.
func newStateWalker() *snapshot.Walker { return snapshot.New() }

// stateLayout identifies the layout of the state of a rank in this build.
var stateLayout = sync.OnceValue(func() uint64 { return snapshot.LayoutHash[rank.Rank](newStateWalker()) })

// stateMemoryMax bounds the memory of the state that a checkpoint of so many bytes can have. Tables are written whole, so
// that a state is not much larger than its bytes; the rest is for fields that are not written, and for small states.
func stateMemoryMax(bytes int) uint64 { return 16*uint64(bytes) + 1<<20 }
