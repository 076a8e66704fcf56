package sim

import (
	"unsafe"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/kernel"
	"github.com/kvferry/kvferry/fsm/memory"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/fsm/receiver"
	"github.com/kvferry/kvferry/fsm/table"
)

// All that is asked of a machine beside its steps and its deadline is asked here: of ranks, and by who judges them.

func (n *node) rank() *rank.Rank { return n.machine.(*rank.Rank) }

// ready is the page that n's machine has for a key, if it is there.
func (n *node) ready(key []byte) (effects.Page, bool) { return n.rank().Ready(key) }

// hope says whether n's machine thinks that a key may still come.
func (n *node) hope(key []byte) bool { return n.rank().Hope(key) }

// keyHash is what this life of n calls a key in facts.
func (n *node) keyHash(key []byte) uint64 { return n.rank().KeyHash(key) }

// stats is what n's machine counts.
func (n *node) stats() rank.Stats { return n.rank().Stats() }

// shares is what n's machine counts of each share that peers have, and what there is.
func (n *node) shares() (counted, there [receiver.Shared]int) { return n.rank().Shares() }

// pageState is what n's machine says of a page.
func (n *node) pageState(pool effects.PoolID, i uint32) memory.State { return n.rank().Page(pool, i) }

// situation is that of which an event tells n's machine.
func (n *node) situation(now effects.Time, ev effects.Event) rank.Situation {
	return n.rank().SituationOf(now, ev)
}

// buffer is how n's machine calls its memory to peers.
func (n *node) buffer() effects.BufferID { return n.rank().Buffer() }

// corrs is what n's machine has outstanding, which it shows to nobody: at is where that lies in a rank.
func (n *node) corrs(at uintptr) *kernel.Corrs {
	return (*kernel.Corrs)(unsafe.Add(unsafe.Pointer(n.rank()), at))
}

// tables shows what is in the tables of n's machine, and what may be there at rest.
func (n *node) tables(visit table.Visit) { n.rank().Tables(visit) }

// counts is how many connections and links n's machine knows of.
func (n *node) counts() (conns, links int) { return n.rank().Conns(), n.rank().Linked() }
