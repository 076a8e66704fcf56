package sim

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/sim/oracle"
)

// Puts of a sender whose chunks are read wait until their pages fit below its high-water mark: in
// order within a receiver, and no longer than they must (L3).

// What is judged here.
var (
	checkOfferOpen   = newCheck("S19", "offers of open puts")
	checkOfferOnce   = newCheck("S23", "offers, one a put")
	checkOfferInTurn = newCheck("L3", "offers in turn")
	checkPressed     = newCheck("L3", "puts that wait to be offered")
)

// offeredInTurn checks a grant to read against the puts that wait: it is of an open one that had
// none yet, and nobody of the same receiver waits longer.
func (l *ledger) offeredInTurn(n *node, g *grant) {
	put := g.loan.put
	l.judged(checkOfferOpen, checkOfferOnce, checkOfferInTurn)
	if put == 0 || l.w.commands[put-1].over {
		l.fail(checkOfferOpen, "node %d lends pages under grant %d of ticket %d, which is no open put",
			n.it(), n.itsGrant(g.id), oracle.Ticket(put))
		return
	}
	c := &l.w.commands[put-1]
	if c.lent != 0 {
		l.fail(checkOfferOnce, "node %d offers pages of ticket %d under grant %d and under grant %d",
			n.it(), oracle.Ticket(put), n.itsGrant(c.lent), n.itsGrant(g.id))
		return
	}
	to := l.w.jobs[c.job].reader()
	for _, t := range l.waitingPuts(n) {
		if t == put {
			break
		}
		if l.w.jobs[l.w.commands[t-1].job].reader() == to {
			l.fail(checkOfferInTurn, "node %d offers pages of ticket %d while ticket %d waits longer for the same receiver",
				n.it(), oracle.Ticket(put), oracle.Ticket(t))
			return
		}
	}
	c.lent = g.id
}

// waitingPuts are those that were neither offered nor ended.
func (l *ledger) waitingPuts(n *node) []effects.Ticket {
	n.seen.puts = slices.DeleteFunc(n.seen.puts, func(t effects.Ticket) bool {
		c := &l.w.commands[t-1]
		return c.over || c.lent != 0
	})
	return n.seen.puts
}

// pressed checks, after a step, that no put waits without need: one that can never fit has ended, and
// if each that waits fits by itself, none waits whose connection is free.
func (l *ledger) pressed(n *node, s *rank.Stats) {
	most, free := l.w.lentMax(n), false
	for _, t := range l.waitingPuts(n) {
		c := &l.w.commands[t-1]
		switch {
		case c.due == 0:
			continue // Still in the mailbox.
		case len(c.pages) > most:
			l.fail(checkPressed, "node %d lets ticket %d wait, which can never fit", n.it(), oracle.Ticket(t))
			return
		case n.device == nil && s.PagesLent+len(c.pages) > most:
			l.judged(checkPressed)
			return
		case s.Grants >= int(n.cfg.GrantsMax):
			l.void(checkPressed)
			return
		}
		l.judged(checkPressed)
		free = free || l.laneFree(n, l.w.jobs[c.job].reader())
	}
	if free {
		l.fail(checkPressed, "node %d lets ticket %d wait although %d of %d pages may still be lent",
			n.it(), oracle.Ticket(n.seen.puts[0]), most-s.PagesLent, most)
	}
}

// laneFree says whether a connection on which n offers chunks to a receiver is open and idle, as far
// as its machine knows.
func (l *ledger) laneFree(n *node, receiver int32) bool {
	for _, c := range l.w.going.conns.some {
		if c.client == n.id && c.life == n.life && c.server == receiver && c.lane && !c.closed &&
			c.asking < c.window {
			return true
		}
	}
	return false
}

// tooLarge says whether a put of n can never be offered: then it is refused as it comes.
func (l *ledger) tooLarge(n *node, c *command) bool { return n.pulls && len(c.pages) > l.w.lentMax(n) }
