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
	checkOfferOpen   = oracle.NewCheck("S19", "offers of open puts")
	checkOfferOnce   = oracle.NewCheck("S23", "offers, one a put")
	checkOfferInTurn = oracle.NewCheck("L3", "offers in turn")
	checkPressed     = oracle.NewCheck("L3", "puts that wait to be offered")
)

// pressureOracle judges puts that wait to be offered.
type pressureOracle struct {
	judge
	perLife[pressureLife]
}

func (*pressureOracle) listen(l *oracle.Listen[pressureOracle]) {
	oracle.On(l, func(o *pressureOracle, _ *oracle.Call, e pd.Given) {
		if e.Command.Want == plan.WantPut && e.Node.Pulls {
			o.given(e.Node, e.Ticket)
		}
	})
	oracle.On(l, func(o *pressureOracle, _ *oracle.Call, e counted) {
		if e.node.Pulls {
			o.turns(e.node)
			o.pressed(e.node, e.stats)
		}
	})
}

// pressureLife records the puts of an incarnation of a sender that wait to be offered.
type pressureLife struct {
	puts  []effects.Ticket // issued; may include a few that are over
	turns []turn           `snap:"skip"`
}

func (s *pressureLife) startReply() { *s = pressureLife{puts: s.puts[:0], turns: s.turns[:0]} }

// given records a put that is to be offered.
func (or *pressureOracle) given(n *world.Node, t effects.Ticket) {
	or.at(n).puts = append(or.at(n).puts, t)
}

// offeredInTurn checks a read lease against the waiting puts: the lease must be for an open put without a lease, and no
// put for the same receiver may have waited longer.
func (or *pressureOracle) offeredInTurn(n *world.Node, g *world.Grant) {
	put := g.Loan.Put
	or.judged(checkOfferOpen, checkOfferOnce, checkOfferInTurn)
	if put == 0 || or.w.Commands[put-1].Over {
		or.fail(checkOfferOpen, "node %d leases pages under grant %d of ticket %d, which is no open put",
			n.It(), n.ItsGrant(g.ID), oracle.Ticket(put))
		return
	}
	c := &or.w.Commands[put-1]
	if c.Lent != 0 {
		or.fail(checkOfferOnce, "node %d offers pages of ticket %d under grant %d and under grant %d",
			n.It(), oracle.Ticket(put), n.ItsGrant(c.Lent), n.ItsGrant(g.ID))
		return
	}
	to := or.w.Jobs[c.Job].Reader()
	for _, t := range or.waitingPuts(n) {
		if t == put {
			break
		}
		if or.w.Jobs[or.w.Commands[t-1].Job].Reader() == to {
			or.fail(checkOfferInTurn, "node %d offers pages of ticket %d while ticket %d waits longer for the same receiver",
				n.It(), oracle.Ticket(put), oracle.Ticket(t))
			return
		}
	}
	c.Lent = g.ID
	or.passing(n, put)
}

// waitingPuts returns the puts that were neither offered nor ended.
func (or *pressureOracle) waitingPuts(n *world.Node) []effects.Ticket {
	my := or.at(n)
	my.puts = slices.DeleteFunc(my.puts, func(t effects.Ticket) bool {
		c := &or.w.Commands[t-1]
		return c.Over || c.Lent != 0
	})
	return my.puts
}

// pressed checks, after a step, that no put waits without need. A put that can never fit has ended. If each waiting put
// fits by itself and the machine has no more work, no put with a free connection may wait.
func (or *pressureOracle) pressed(n *world.Node, s *rank.Stats) {
	most, my := or.w.LentMax(n), or.at(n)
	for _, t := range my.puts {
		c := &or.w.Commands[t-1]
		switch {
		case c.Due == 0:
			continue // Still in the mailbox.
		case len(c.Pages) > most:
			or.fail(checkPressed, "node %d lets ticket %d wait, which can never fit", n.It(), oracle.Ticket(t))
			return
		case s.PagesLeased+len(c.Pages) > most:
			or.judged(checkPressed)
			return
		case s.Grants >= int(pd.Its(n).Cfg.GrantsMax):
			or.void(checkPressed)
			return
		}
		or.judged(checkPressed)
	}
	if len(my.turns) > 0 && !n.Busy {
		or.fail(checkPressed, "node %d lets ticket %d wait although %d of %d pages may still be leased",
			n.It(), oracle.Ticket(my.puts[0]), most-s.PagesLeased, most)
	}
}

// laneFree reports whether a connection on which n offers chunks to a receiver is open and has room, as far as the
// machine knows. With a circuit breaker the connection may have room for a single trial.
func (or *pressureOracle) laneFree(n *world.Node, receiver int32) bool {
	for _, c := range or.w.Going.Conns.Some {
		if c.Client == n.ID && c.Life == n.Life && c.Server == receiver && c.Lane && !c.Closed &&
			(c.Asking == 0 || c.Asking < c.Window && pd.Its(n).Cfg.BreakerTTL <= 0) {
			return true
		}
	}
	return false
}
