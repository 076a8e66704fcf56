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

var checkPassedOnce = oracle.NewCheck("L3", "puts that wait for room, passed by other receivers'")

// turn is the first put for a receiver, if the put waits only for room because the connection is free.
type turn struct {
	put      effects.Ticket
	passedBy []int32 // receivers whose puts were offered since
}

// turns records, after a step, which puts wait only for room. A put that waited for the connection meanwhile begins
// anew. A put that the machine has not reached yet, because the machine has more work than fits into a step, has no
// turn so far.
func (or *pressureOracle) turns(n *world.Node) {
	my := or.at(n)
	was := len(my.turns)
	var seen [8]int32
	receivers := seen[:0]
	for _, t := range or.waitingPuts(n) {
		c := &or.w.Commands[t-1]
		to := or.w.Jobs[c.Job].Reader()
		if c.Due == 0 || slices.Contains(receivers, to) {
			continue
		}
		if receivers = append(receivers, to); !or.laneFree(n, to) {
			continue
		}
		next := turn{put: t}
		i := slices.IndexFunc(my.turns[:was], func(x turn) bool { return x.put == t })
		if i >= 0 {
			next = my.turns[i]
		}
		if i >= 0 || !n.Busy {
			my.turns = append(my.turns, next)
		}
	}
	my.turns = slices.Delete(my.turns, 0, was)
}

// passing checks the offer of a put against the puts for different receivers that wait for room (L3).
func (or *pressureOracle) passing(n *world.Node, put effects.Ticket) {
	to := or.w.Jobs[or.w.Commands[put-1].Job].Reader()
	my := or.at(n)
	for i := range my.turns {
		x := &my.turns[i]
		c := &or.w.Commands[x.put-1]
		other := or.w.Jobs[c.Job].Reader()
		if c.Over || c.Lent != 0 || other == to || !or.laneFree(n, other) {
			continue
		}
		if or.judged(checkPassedOnce); slices.Contains(x.passedBy, to) {
			or.fail(checkPassedOnce,
				"node %d offers ticket %d, the second for the same receiver, while ticket %d waits for room for another one",
				n.It(), oracle.Ticket(put), oracle.Ticket(x.put))
			return
		}
		x.passedBy = append(x.passedBy, to)
	}
}
