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
	checkEmpty     = oracle.NewCheck("S17", "tables that should be empty")
	checkImpatient = oracle.NewCheck("L6", "drains that expire")
	checkQuietFree = oracle.NewCheck("S5", "free pages when all is quiet")
)

// quietOracle judges the contents of a node's tables when nothing is in flight any more.
type quietOracle struct{ judge }

func (*quietOracle) listen(l *oracle.Listen[quietOracle]) {
	oracle.On(l, func(o *quietOracle, _ *oracle.Call, e world.Rested) { o.quiet(e.Node, e.When) })
	oracle.On(l, func(o *quietOracle, _ *oracle.Call, e pd.Outcome) {
		if e.Command.Want == plan.WantDrain && e.Effect.Code == effects.Expired {
			o.gaveUp(e.Node)
		}
	})
}

// quiet checks that nothing is left in the tables of n except ready chunks, links, and records that are kept on
// purpose.
func (or *quietOracle) quiet(n *world.Node, when string) {
	w := or.w
	or.all().counts.recounted(n)
	or.judged(checkEmpty, checkQuietFree)
	s := pd.StatsOf(n)
	left := func(what string, count int) {
		if count != 0 && w.Failure == nil {
			or.fail(checkEmpty, "node %d has %d %s left %s", n.It(), count, oracle.Left{Node: n.ID, What: what}, when)
		}
	}
	if w.Healed { // A drain does not wait to send a last message to a peer that is out of reach.
		left("puts", s.Puts)
	}
	pd.CountsAtRest(n, left)
	if w.Healed && w.Failure == nil {
		or.all().share.givenBack(n, true)
	}
	left("bundles", s.Bundles)
	if w.Healed && w.Failure == nil {
		or.all().blocks.rests(n, s.Receptions+s.LeasedBatches+s.Registrations)
	}
	ready := pd.ReadyPages(n)
	if used := pd.InUse(&s) - ready; used != 0 && w.Failure == nil {
		or.fail(checkQuietFree, "node %d has %d pages free and %d ready of %d: %d %s %s",
			n.It(), s.PagesFree+s.DeviceFree, ready, s.PagesTotal+s.DeviceTotal, used,
			oracle.Left{Node: n.ID, What: pd.PagesInUse}, when)
	}
	or.all().cache.rests(n, &s)
}

// gaveUp checks a drain of n that ends as expired: nothing may be left that n can end without help. Waiting commands
// and requests have a reply, claims are dropped, and write grants are revoked. A drain does that first, however short
// the deadline is and however many steps that takes.
func (or *quietOracle) gaveUp(n *world.Node) {
	or.judged(checkImpatient)
	s, gets, standing := pd.StatsOf(n), 0, 0
	for _, t := range or.w.Undone.Some {
		c := &or.w.Commands[t-1]
		if (c.Want == plan.WantGet || c.Want == plan.WantReserve) && !c.Over && c.Node == n.ID && c.Life == n.Life &&
			c.Step != 0 {
			gets++
		}
	}
	for _, g := range n.Grants {
		if !g.Read && !g.Revoking && g.Peer != (effects.Incarnation{}) && standsUnder(n.Pool, g) {
			standing++
		}
	}
	if left := gets + standing + s.PendingRequests + s.Claims; left > 0 {
		or.fail(checkImpatient, "node %d ends its drain as expired with %d commands and %d requests that wait, %d claims "+
			"and "+
			"%d grants, all of which it can end by itself", n.It(), gets, s.PendingRequests, s.Claims, standing)
	}
}
