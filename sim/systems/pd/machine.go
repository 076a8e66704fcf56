package pd

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/fsm/rank/memory"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/sim/world"
)

// All that is asked of a machine beside its steps and its deadline is asked here: of ranks, and by who judges them.

func rankOf(n *world.Node) *rank.Rank { return n.Machine.(*rank.Rank) }

// ReadyAt is the page that n's machine has for a key, if it is there.
func ReadyAt(n *world.Node, key []byte) (effects.Page, bool) { return rankOf(n).Ready(key) }

// Hopes says whether n's machine thinks that a key may still come.
func Hopes(n *world.Node, key []byte) bool { return rankOf(n).Hope(key) }

// Fetching says whether n's machine has begun a fetch: it knew then where each of its chunks is.
func Fetching(n *world.Node, t effects.Ticket) bool { return rankOf(n).Fetching(t) }

// ClaimsOf is for how many requests n's machine keeps a chunk.
func ClaimsOf(n *world.Node, key []byte) int { return rankOf(n).ClaimsOn(key) }

// KeyHashOf is what this life of n calls a key in facts.
func KeyHashOf(n *world.Node, key []byte) uint64 { return rankOf(n).KeyHash(key) }

// StatsOf is what n's machine counts.
func StatsOf(n *world.Node) rank.Stats { return rankOf(n).Stats() }

// SharesOf is what n's machine counts of each share that peers have, and what there is.
func SharesOf(n *world.Node) (counted, there [rank.Shared]int) { return rankOf(n).Shares() }

// PageStateOf is what n's machine says of a page.
func PageStateOf(n *world.Node, i uint32) memory.State {
	return rankOf(n).Page(0, i)
}

// situationOf is that of which an event tells n's machine.
func situationOf(n *world.Node, now effects.Time, ev effects.Event) rank.Situation {
	return rankOf(n).SituationOf(now, ev)
}

// BufferOf is how n's machine calls its memory to peers.
func BufferOf(n *world.Node) effects.BufferID { return rankOf(n).Buffer() }

// TablesOf shows what is in the tables of n's machine, and what may be there at rest.
func TablesOf(n *world.Node, visit table.Visit) { rankOf(n).Tables(visit) }

// LimitsOf is what n's machine says that it may have outstanding.
func LimitsOf(n *world.Node) effects.Limits { return rankOf(n).Limits() }

// CountsOf is how many connections and links n's machine knows of.
func CountsOf(n *world.Node) (conns, links int) { return rankOf(n).Conns(), rankOf(n).Linked() }
