package ledger

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// If receivers read the chunks of a sender (pull), the sender's puts wait until the pages fit below the sender's
// high-water mark. Puts for the same receiver are offered in order, and no put waits longer than necessary (L3).

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkOfferOpen  = oracle.NewCheck("S19", "offers of open puts")
	checkOfferOnce  = oracle.NewCheck("S23", "offers, one per put")
	checkOfferOrder = oracle.NewCheck("L3", "offers in order")
	checkOfferWait  = oracle.NewCheck("L3", "puts that wait to be offered")
)

// offerQueueOracle judges puts that wait to be offered.
type offerQueueOracle struct {
	oracleBase
	perIncarnation[offerQueueState]
}

func (*offerQueueOracle) subscribe(l *oracle.Subscriptions[offerQueueOracle]) {
	oracle.On(l, func(o *offerQueueOracle, _ *oracle.Call, e pd.CommandGiven) {
		if e.Command.Kind == plan.CommandPut && e.Node.OffersChunks {
			o.recordPut(e.Node, e.Ticket)
		}
	})
	oracle.On(l, func(o *offerQueueOracle, _ *oracle.Call, e stepCounted) {
		if e.node.OffersChunks {
			o.recordTurns(e.node)
			o.verifyNoNeedlessWait(e.node, e.stats)
		}
	})
}

// offerQueueState records the puts of an incarnation of a sender that wait to be offered.
type offerQueueState struct {
	puts  []effects.Ticket // issued; may include a few that are over
	turns []receiverTurn   `snap:"skip"`
}

func (s *offerQueueState) clearForReuse() { *s = offerQueueState{puts: s.puts[:0], turns: s.turns[:0]} }

// recordPut records a put that is to be offered.
func (or *offerQueueOracle) recordPut(n *world.Node, t effects.Ticket) {
	or.stateOf(n).puts = append(or.stateOf(n).puts, t)
}

// verifyOffer checks a read lease against the waiting puts: the lease must be for an open put without a lease, and no
// put for the same receiver may have waited longer.
func (or *offerQueueOracle) verifyOffer(n *world.Node, g *world.Grant) {
	put := g.Lease.PutTicket
	or.countJudged(checkOfferOpen, checkOfferOnce, checkOfferOrder)
	if put == 0 || or.w.Commands[put-1].Finished {
		or.fail(checkOfferOpen, "node %d leases pages under grant %d of ticket %d, which is not an open put",
			n.AsSubject(), n.GrantSubject(g.ID), oracle.Ticket(put))
		return
	}
	c := &or.w.Commands[put-1]
	if c.OfferGrant != 0 {
		or.fail(checkOfferOnce, "node %d offers pages of ticket %d under grant %d and under grant %d",
			n.AsSubject(), oracle.Ticket(put), n.GrantSubject(c.OfferGrant), n.GrantSubject(g.ID))
		return
	}
	to := or.w.Jobs[c.Job].ReaderNode()
	for _, t := range or.waitingPuts(n) {
		if t == put {
			break
		}
		if or.w.Jobs[or.w.Commands[t-1].Job].ReaderNode() == to {
			or.fail(checkOfferOrder, "node %d offers pages of ticket %d while ticket %d waits longer for the same receiver",
				n.AsSubject(), oracle.Ticket(put), oracle.Ticket(t))
			return
		}
	}
	c.OfferGrant = g.ID
	or.verifyTurn(n, put)
}

// waitingPuts returns the puts that were neither offered nor ended.
func (or *offerQueueOracle) waitingPuts(n *world.Node) []effects.Ticket {
	state := or.stateOf(n)
	state.puts = slices.DeleteFunc(state.puts, func(t effects.Ticket) bool {
		c := &or.w.Commands[t-1]
		return c.Finished || c.OfferGrant != 0
	})
	return state.puts
}

// verifyNoNeedlessWait checks, after a step, that no put waits without need. A put that can never fit has ended. If
// each waiting put fits by itself and the machine has no more work, no put with a free connection may wait.
func (or *offerQueueOracle) verifyNoNeedlessWait(n *world.Node, s *rank.Stats) {
	limit, state := or.w.LeasedPagesMax(n), or.stateOf(n)
	for _, t := range state.puts {
		c := &or.w.Commands[t-1]
		switch {
		case c.DueAt == 0:
			continue // Still in the mailbox.
		case len(c.Pages) > limit:
			or.fail(checkOfferWait, "node %d lets ticket %d wait, which can never fit", n.AsSubject(), oracle.Ticket(t))
			return
		case s.PagesLeased+len(c.Pages) > limit:
			or.countJudged(checkOfferWait)
			return
		case s.Grants >= int(pd.InfoOf(n).Cfg.GrantsMax):
			or.countVoid(checkOfferWait)
			return
		}
		or.countJudged(checkOfferWait)
	}
	if len(state.turns) > 0 && !n.Busy {
		or.fail(checkOfferWait, "node %d lets ticket %d wait although %d of %d pages may still be leased",
			n.AsSubject(), oracle.Ticket(state.puts[0]), limit-s.PagesLeased, limit)
	}
}

// isLaneFree reports whether a connection on which n offers chunks to a receiver is open and has room, as far as the
// machine knows. With a circuit breaker the connection may have room for a single trial.
func (or *offerQueueOracle) isLaneFree(n *world.Node, receiver int32) bool {
	for _, c := range or.w.Active.Conns.Items {
		if c.Client == n.ID && c.Incarnation == n.Incarnation && c.Server == receiver && c.CarriesOffers && !c.Closed &&
			(c.OpenRequests == 0 || c.OpenRequests < c.Window && pd.InfoOf(n).Cfg.BreakerTTL <= 0) {
			return true
		}
	}
	return false
}
