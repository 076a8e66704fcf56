package sim

import (
	"unsafe"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/kernel"
	"github.com/kvferry/kvferry/fsm/memory"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/sim/world"
)

// All that is asked of a machine beside its steps and its deadline is asked here: of ranks, and by who judges them.

func rankOf(n *world.Node) *rank.Rank { return n.Machine.(*rank.Rank) }

// readyAt is the page that n's machine has for a key, if it is there.
func readyAt(n *world.Node, key []byte) (effects.Page, bool) { return rankOf(n).Ready(key) }

// hopes says whether n's machine thinks that a key may still come.
func hopes(n *world.Node, key []byte) bool { return rankOf(n).Hope(key) }

// claimsOf is for how many requests n's machine keeps a chunk.
func claimsOf(n *world.Node, key []byte) int { return rankOf(n).ClaimsOn(key) }

// keyHashOf is what this life of n calls a key in facts.
func keyHashOf(n *world.Node, key []byte) uint64 { return rankOf(n).KeyHash(key) }

// statsOf is what n's machine counts.
func statsOf(n *world.Node) rank.Stats { return rankOf(n).Stats() }

// sharesOf is what n's machine counts of each share that peers have, and what there is.
func sharesOf(n *world.Node) (counted, there [rank.Shared]int) { return rankOf(n).Shares() }

// pageStateOf is what n's machine says of a page.
func pageStateOf(n *world.Node, pool effects.PoolID, i uint32) memory.State {
	return rankOf(n).Page(pool, i)
}

// situationOf is that of which an event tells n's machine.
func situationOf(n *world.Node, now effects.Time, ev effects.Event) rank.Situation {
	return rankOf(n).SituationOf(now, ev)
}

// bufferOf is how n's machine calls its memory to peers.
func bufferOf(n *world.Node) effects.BufferID { return rankOf(n).Buffer() }

// corrsOf is what n's machine has outstanding, which it shows to nobody: at is where that lies in a rank.
func corrsOf(n *world.Node, at uintptr) *kernel.Corrs {
	return (*kernel.Corrs)(unsafe.Add(unsafe.Pointer(rankOf(n)), at))
}

// tablesOf shows what is in the tables of n's machine, and what may be there at rest.
func tablesOf(n *world.Node, visit table.Visit) { rankOf(n).Tables(visit) }

// countsOf is how many connections and links n's machine knows of.
func countsOf(n *world.Node) (conns, links int) { return rankOf(n).Conns(), rankOf(n).Linked() }
