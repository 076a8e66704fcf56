package p2p

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

var checkLentBack = oracle.NewCheck("L2", "pages that are lent although the engine wants them back")

// openWithdraws records the withdraw commands that machines have received and not ended.
type openWithdraws struct{ all []openWithdraw }

type openWithdraw struct {
	node   int32
	ticket effects.Ticket
}

// withdrawOracle checks that no reader begins with a page after the engine has asked to have the page back (M8).
// Readers would otherwise follow each other, and the engine could never use the page. A push whose pages were found
// before the withdrawal may still begin, so that transfers are not judged.
var withdrawOracle = oracle.New("withdrawals", "pages that an engine wants back are lent to no further reader", func(
	l *oracle.Subscriptions[openWithdraws]) {
	oracle.On(l, func(s *openWithdraws, _ *oracle.Call, e pd.CommandReceived) {
		if e.Command.Kind == wantWithdraw {
			s.all = append(s.all, openWithdraw{e.Node.ID, e.Ticket})
		}
	})
	oracle.On(l, func(s *openWithdraws, call *oracle.Call, e *effects.Deliver) {
		s.all = slices.DeleteFunc(s.all, func(x openWithdraw) bool { return x.node == int32(call.Node()) && x.ticket == e.Ticket })
	})
	oracle.On(l, func(s *openWithdraws, call *oracle.Call, _ oracle.IncarnationEnded) {
		s.all = slices.DeleteFunc(s.all, func(x openWithdraw) bool { return x.node == int32(call.Node()) })
	})
	oracle.On(l, func(s *openWithdraws, call *oracle.Call, e world.LeasingPages) {
		if e.Grant.Lease.OnRequest && e.Node.ArenaPages == 0 {
			for _, p := range e.Grant.Pages {
				s.verifyLent(call, e.Node, p)
			}
		}
	})
	oracle.On(l, func(s *openWithdraws, call *oracle.Call, e world.StartingCopy) {
		if e.Node.ArenaPages > 0 {
			for _, p := range e.Copy.Pairs {
				s.verifyLent(call, e.Node, p.From)
			}
		}
	})
})

// verifyLent checks that an engine does not wait for the return of a page that a node begins to lend. A second Withdraw
// of a share is refused in the step in which it arrives.
func (s *openWithdraws) verifyLent(call *oracle.Call, n *world.Node, page effects.Page) {
	w := pd.ClusterOf(call)
	for _, x := range s.all {
		if x.node != n.ID {
			continue
		}
		call.CountJudged(checkLentBack)
		isPage := func(p effects.Page) bool { return p.Index == page.Index && p.Generation == page.Generation }
		if slices.ContainsFunc(w.Commands[x.ticket-1].Pages, isPage) && w.Failure == nil {
			call.FailCheck(checkLentBack, "node %d begins to lend page %d, which its engine wants back by ticket %d",
				n.AsSubject(), n.PageSubject(page.Index), oracle.Ticket(x.ticket))
			return
		}
	}
}
