package pd

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/fsm/rank/flows/p2p"
	"github.com/kvferry/kvferry/fsm/rank/memory"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/sim/world"
)

// The oracles, checks and faults of the simulation access a rank's machine only through the functions of this file.

// rankOf returns the machine of a node that is a rank.
func rankOf(n *world.Node) *rank.Rank { return n.Machine.(*rank.Rank) }

// ReadyAt returns the page in which n's machine has the chunk with the given key, and whether the chunk is ready.
func ReadyAt(n *world.Node, key []byte) (effects.Page, bool) { return rankOf(n).ReadyPage(key) }

// MayArrive reports whether the chunk of a key is readable at n, or may become readable according to n's machine.
func MayArrive(n *world.Node, key []byte) bool { return rankOf(n).MayArrive(key) }

// IsFetching reports whether n's machine has begun a fetch. At the beginning of a fetch the machine knows the location
// of each chunk.
func IsFetching(n *world.Node, t effects.Ticket) bool { return rankOf(n).IsFetching(t) }

// ClaimsOf returns the number of requests for which n's machine keeps a chunk.
func ClaimsOf(n *world.Node, key []byte) int { return rankOf(n).CountClaimsOn(key) }

// KeyHashOf returns the hash by which n's present incarnation names a key in facts.
func KeyHashOf(n *world.Node, key []byte) uint64 { return rankOf(n).KeyHash(key) }

// KeyHashIn returns the hash by which n's present incarnation names a key of a trust domain in facts.
func KeyHashIn(n *world.Node, realm effects.Realm, key []byte) uint64 {
	return rankOf(n).KeyHashIn(realm, key)
}

// ReadyIn returns the page of a trust domain's chunk if it is readable at n.
func ReadyIn(n *world.Node, realm effects.Realm, key []byte) (effects.Page, bool) {
	return rankOf(n).ReadyPageIn(realm, key)
}

// StatsOf returns the counters of n's machine.
func StatsOf(n *world.Node) rank.Stats { return rankOf(n).Stats() }

// EarliestDeadlineOf returns the earliest of all pending deadlines of n's machine.
func EarliestDeadlineOf(n *world.Node) (effects.Time, bool) { return rankOf(n).EarliestDeadline() }

// GrantSlotOf returns the slot of a grant in its machine's table. A machine has a single grant in a slot at a time.
func GrantSlotOf(id effects.GrantID) int32 { return memory.SlotOf(id) }

// RecountShares counts again what each peer of n's machine has of every table that the peers share.
func RecountShares(n *world.Node, r *table.Recount) { rankOf(n).RecountShares(r) }

// OffersOf returns the deferred offers that n's machine counts for a peer, and all that it has.
func OffersOf(n *world.Node, peer effects.Incarnation) (ofPeer, all rank.OfferCounts) {
	return rankOf(n).OffersOfPeer(peer)
}

// CountBringFits returns how many of the chunks, from the first on, one Bring of a request can name, according to n's
// machine.
func CountBringFits(n *world.Node, request []byte, keys [][]byte, mode p2p.Mode) int {
	return rankOf(n).BringFits(request, keys, mode)
}

// PageStateOf returns the state of page i in n's machine.
func PageStateOf(n *world.Node, i uint32) memory.State {
	return rankOf(n).PageState(0, i)
}

// situationOf returns the situation of n's machine in which ev arrives.
func situationOf(n *world.Node, now effects.Time, ev effects.Event) rank.Situation {
	return rankOf(n).SituationOf(now, ev)
}

// BufferOf returns the id under which n's machine announces its memory to peers.
func BufferOf(n *world.Node) effects.BufferID { return rankOf(n).Buffer() }

// TablesOf visits the tables of n's machine, with the number of rows and what may remain in the table at rest.
func TablesOf(n *world.Node, visit table.VisitFunc) { rankOf(n).VisitTables(visit) }

// LimitsOf returns the limits that n's machine declares for its outstanding work.
func LimitsOf(n *world.Node) effects.Limits { return rankOf(n).Limits() }

// ConnCountsOf returns the number of connections and links that n's machine knows.
func ConnCountsOf(n *world.Node) (conns, links int) {
	return rankOf(n).CountConns(), rankOf(n).CountLinks()
}
