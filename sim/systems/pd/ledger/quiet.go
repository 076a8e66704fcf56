package ledger

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkEmpty        = oracle.NewCheck("S17", "tables when nothing is in flight")
	checkDrainExpired = oracle.NewCheck("L6", "drains that expire with work that can be ended")
	checkFreeAtRest   = oracle.NewCheck("S5", "free pages when nothing is in flight")
)

// quietOracle judges the contents of a node's tables when nothing is in flight any more.
type quietOracle struct{ oracleBase }

func (*quietOracle) subscribe(l *oracle.Subscriptions[quietOracle]) {
	oracle.On(l, func(o *quietOracle, _ *oracle.Call, e world.NodeAtRest) { o.verifyEmpty(e.Node, e.When) })
	oracle.On(l, func(o *quietOracle, _ *oracle.Call, e pd.CommandOutcome) {
		if e.Command.Kind == plan.CommandDrain && e.Effect.Code == effects.Expired {
			o.verifyExpiredDrain(e.Node)
		}
	})
}

// verifyEmpty checks that nothing is left in the tables of n except ready chunks, links, and records that are kept on
// purpose.
func (or *quietOracle) verifyEmpty(n *world.Node, when string) {
	w := or.w
	or.oracles().counts.recountPages(n)
	or.countJudged(checkEmpty, checkFreeAtRest)
	s := pd.StatsOf(n)
	verifyZero := func(name string, count int) {
		if count != 0 && w.Failure == nil {
			or.fail(checkEmpty, "node %d has %d %s left %s", n.AsSubject(), count, oracle.Leftover{Node: n.ID, Name: name}, when)
		}
	}
	if w.Healed { // A drain does not wait to send a last message to a peer that is out of reach.
		verifyZero("puts", s.Puts)
	}
	pd.VisitRestCounts(n, verifyZero)
	if w.Healed && w.Failure == nil {
		or.oracles().tableShares.verifyCounts(n, true)
	}
	verifyZero("bundles", s.Bundles)
	if w.Healed && w.Failure == nil {
		or.oracles().registrations.verifyRest(n, s.Receptions+s.LeasedBatches+s.Registrations)
	}
	ready := pd.CountReadyPages(n)
	if used := pd.CountPagesInUse(&s) - ready; used != 0 && w.Failure == nil {
		or.fail(checkFreeAtRest, "node %d has %d pages free and %d ready of %d: %d %s %s",
			n.AsSubject(), s.PagesFree+s.DeviceFree, ready, s.PagesTotal+s.DeviceTotal, used,
			oracle.Leftover{Node: n.ID, Name: pd.PagesInUse}, when)
	}
	or.oracles().cache.verifyRest(n, &s)
}

// verifyExpiredDrain checks a drain of n that ends as expired: nothing may be left that n can end without help. Waiting
// commands and requests have a reply, claims are dropped, and write grants are revoked. A drain does that first,
// however short the deadline is and however many steps that takes. A grant whose pages the driver compares with their
// checksums ends only when the driver reports, because until then the driver reads the pages. Example: a Bring has
// a page pushed to the node; the drain comes between Verify and Verified, and its timeout is 0.
func (or *quietOracle) verifyExpiredDrain(n *world.Node) {
	or.countJudged(checkDrainExpired)
	s, gets, standing := pd.StatsOf(n), 0, 0
	for _, t := range or.w.OpenCommands.Items {
		c := &or.w.Commands[t-1]
		if (c.Kind == plan.CommandGet || c.Kind == plan.CommandReserve) && !c.Finished && c.Node == n.ID && c.Incarnation == n.Incarnation &&
			c.ReceivedStep != 0 {
			gets++
		}
	}
	for _, g := range n.Grants {
		if !g.Read && !g.Revoking && g.Peer != (effects.Incarnation{}) && isWritable(n.Pool, g) && !isCompared(n.Pool, g) {
			standing++
		}
	}
	if remaining := gets + standing + s.PendingRequests + s.Claims; remaining > 0 {
		or.fail(checkDrainExpired, "node %d ends its drain as expired with %d commands and %d requests that wait, %d claims "+
			"and "+
			"%d grants, all of which it can end by itself", n.AsSubject(), gets, s.PendingRequests, s.Claims, standing)
	}
}
