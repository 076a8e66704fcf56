package ledger

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// A reader that keeps an offer requests a renewal of the lease when half of the lease's time is over, unless no chunk
// of the offer is left.

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkRenewBegun  = oracle.NewCheck("S9", "renewals of deferred offers, requested in time")
	checkRenewWanted = oracle.NewCheck("L2", "renewals of offers with chunks left")
)

// renewState records the senders that one incarnation of a node tried to ask for renewals.
type renewState struct {
	tries []renewTry `snap:"skip"`
}

func (s *renewState) clearForReuse() { s.tries = s.tries[:0] }

type renewTry struct {
	server       int32
	lastAt       int64    // the last time
	openingConns []uint64 // connections whose opening was not reported to the machine yet
}

// leaseTerm is the time that a reader has for an offer: since when the reader knows the time, and how much time was
// left at that moment.
type leaseTerm struct {
	since, frozen int64
	remaining     effects.Duration
}

// beginTerm records that a reader has a new term.
func (or *renewOracle) beginTerm(n *world.Node, k *deferredOffer) {
	if !k.altered {
		k.term = leaseTerm{or.w.Now, n.FrozenTime, k.leaseEnd.Sub(or.w.ReadClock(k.owner.Node))}
	}
}

// recordTry records that a node connects to a sender for a renewal, or sends a renewal request. The sender may have
// moved since the connection was made.
func (or *renewOracle) recordTry(n *world.Node, c *world.Conn) {
	server := world.NodeOfHost(c.Host)
	if !n.KeepsOffers || c.Channel != effects.ChannelInit || server < 0 {
		return
	}
	state := or.stateOf(n)
	i := slices.IndexFunc(state.tries, func(x renewTry) bool { return x.server == server })
	if i < 0 {
		i = len(state.tries)
		state.tries = append(state.tries, renewTry{server: server})
	}
	x := &state.tries[i]
	if x.lastAt = or.w.Now; c.OpenReportedAt == 0 {
		x.openingConns = append(x.openingConns, c.ID)
	}
}

// wasTriedSince reports whether the node tried to reach a sender at the given instant or later, or is still trying. A
// machine that waits for a connection cannot send a request, and waits before the next attempt if the connection fails.
func (x *renewTry) wasTriedSince(w *world.World, instant int64) bool {
	x.openingConns = slices.DeleteFunc(x.openingConns, func(conn uint64) bool {
		openedAt := w.ConnOf(conn).OpenReportedAt
		x.lastAt = max(x.lastAt, openedAt)
		return openedAt != 0
	})
	return len(x.openingConns) > 0 || x.lastAt >= instant
}

// verifyDue checks that the node has requested a renewal of each deferred offer once half of the offer's term is over.
// An earlier request may have gone without a reply for long, or have failed just before.
func (or *renewOracle) verifyDue(n *world.Node) {
	if n.Busy || n.Draining || draw.IsFixed(or.w.Seed) {
		return
	}
	cfg := &pd.InfoOf(n).Cfg
	for i := range or.oracles().deferredOffers.stateOf(n).offers {
		k := &or.oracles().deferredOffers.stateOf(n).offers[i]
		if k.requested || k.altered || or.w.Now < k.term.since+int64(n.LongestSpan(max(cfg.LeadMin, k.term.remaining/2))+pd.Grace)+
			n.FrozenTime-k.term.frozen || !or.oracles().deferredOffers.isRenewable(n, k) ||
			slices.Contains(or.w.SourcePlan.Topology.Unrenewed, plan.Node(k.owner.Node.ID)) {
			continue
		}
		before := k.term.since - int64(n.LongestSpan(cfg.ReplyTimeout+cfg.BackoffMax))
		or.countJudged(checkRenewBegun)
		i := slices.IndexFunc(or.stateOf(n).tries, func(x renewTry) bool { return x.server == k.owner.Node.ID })
		if i < 0 || !or.stateOf(n).tries[i].wasTriedSince(&or.w.World, before) {
			or.fail(checkRenewBegun, "node %d has not requested a renewal of grant %d, and half of its time is over",
				n.AsSubject(), k.owner.Node.GrantSubject(k.lease.ID))
			return
		}
	}
}

// verifyWanted checks that some chunk is left of an offer that a renewal names (L2).
func (or *renewOracle) verifyWanted(n *world.Node, k *deferredOffer) {
	if !k.named || k.altered {
		return
	}
	or.countJudged(checkRenewWanted)
	if !slices.ContainsFunc(k.chunks, func(c offeredChunk) bool { return !c.consumed }) {
		or.fail(checkRenewWanted, "node %d requests a renewal of grant %d, and no chunk of the offer is left",
			n.AsSubject(), k.owner.Node.GrantSubject(k.lease.ID))
	}
}
