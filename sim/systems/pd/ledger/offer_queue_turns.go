package ledger

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/world"
)

// Room below the high-water mark is given to receivers in turn. While the first put for a receiver waits only for room,
// a sender offers at most one put to each of the remaining receivers, however small these puts are, and however late
// the waiting put was issued.

var checkPassedOnce = oracle.NewCheck("L3", "puts that wait for room, overtaken by puts for other receivers")

// receiverTurn is the first put for a receiver, if the put waits only for room because the connection is free.
type receiverTurn struct {
	put      effects.Ticket
	passedBy []int32 // receivers whose puts were offered since
}

// recordTurns records, after a step, which puts wait only for room. A put that waited for the connection meanwhile
// begins anew. A put that the machine has not reached yet, because the machine has more work than fits into a step, has
// no turn so far.
func (or *offerQueueOracle) recordTurns(n *world.Node) {
	state := or.stateOf(n)
	oldCount := len(state.turns)
	var buffer [8]int32
	receivers := buffer[:0]
	for _, t := range or.waitingPuts(n) {
		c := &or.w.Commands[t-1]
		to := or.w.Jobs[c.Job].ReaderNode()
		if c.DueAt == 0 || slices.Contains(receivers, to) {
			continue
		}
		if receivers = append(receivers, to); !or.isLaneFree(n, to) {
			continue
		}
		next := receiverTurn{put: t}
		i := slices.IndexFunc(state.turns[:oldCount], func(x receiverTurn) bool { return x.put == t })
		if i >= 0 {
			next = state.turns[i]
		}
		if i >= 0 || !n.Busy {
			state.turns = append(state.turns, next)
		}
	}
	state.turns = slices.Delete(state.turns, 0, oldCount)
}

// verifyTurn checks the offer of a put against the puts for different receivers that wait for room (L3).
func (or *offerQueueOracle) verifyTurn(n *world.Node, put effects.Ticket) {
	to := or.w.Jobs[or.w.Commands[put-1].Job].ReaderNode()
	state := or.stateOf(n)
	for i := range state.turns {
		x := &state.turns[i]
		c := &or.w.Commands[x.put-1]
		other := or.w.Jobs[c.Job].ReaderNode()
		if c.Finished || c.OfferGrant != 0 || other == to || !or.isLaneFree(n, other) {
			continue
		}
		if or.countJudged(checkPassedOnce); slices.Contains(x.passedBy, to) {
			or.fail(checkPassedOnce,
				"node %d offers ticket %d, the second put for the same receiver, while ticket %d for another receiver waits for room",
				n.AsSubject(), oracle.Ticket(put), oracle.Ticket(x.put))
			return
		}
		x.passedBy = append(x.passedBy, to)
	}
}
