package p2p

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
)

var (
	checkShared      = oracle.NewCheck("L1", "outcomes of shares and withdrawals")
	checkSharedTwice = oracle.NewCheck("S19", "pages that engines share")
)

// shareOracle checks the outcomes of share and withdraw commands. Nothing else uses the pages, so a share may fail only
// for lack of room.
var shareOracle = oracle.New("shares and withdrawals", "an engine may share pages that it owns, once, and withdraw the share, once", func(
	l *oracle.Subscriptions[struct{}]) {
	oracle.On(l, func(_ *struct{}, call *oracle.Call, e *effects.Deliver) {
		w := pd.ClusterOf(call)
		n := w.Nodes[call.Node()]
		if n.Custom {
			return
		}
		c := w.CommandOf(n, e.Ticket)
		if c == nil || c.Finished || c.Kind != wantShare && c.Kind != wantWithdraw {
			return
		}
		call.CountJudged(checkShared, checkSharedTwice)
		is := func(x *pd.Command) bool { return x.Kind == wantWithdraw && x.Target == c.Target }
		if c.Kind == wantShare {
			is = isShared
		}
		switch other := findOverlap(w, e.Ticket, is); {
		case e.Code == effects.OK && c.Kind == wantShare && other != 0:
			call.FailCheck(checkSharedTwice, "node %d shares pages by ticket %d which it shares by ticket %d",
				n.AsSubject(), oracle.Ticket(e.Ticket), oracle.Ticket(other))
		case e.Code == effects.OK || other != 0 || c.Kind == wantShare && w.Commands[c.Target-1].Released:
		case c.Kind == wantShare && (e.Code == effects.TooMany || e.Code == effects.Draining):
		case c.Kind == wantWithdraw && e.Code == effects.Cancelled:
		case e.Code == effects.Forbidden && pd.LacksOwnTenant(n, c.Body):
		default:
			call.FailCheck(checkShared, "node %d ends ticket %d (%s) as %s, although the engine owns the pages",
				n.AsSubject(), oracle.Ticket(e.Ticket), c.Kind, e.Code)
		}
	})
})
