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
	checkRenewBegun  = oracle.NewCheck("S9", "renewals of what is kept, begun in time")
	checkRenewWanted = oracle.NewCheck("L2", "renewals of what is left of an offer")
)

// renewLife records the senders that one incarnation of a node tried to ask for renewals.
type renewLife struct {
	tried []tried `snap:"skip"`
}

func (s *renewLife) startReply() { s.tried = s.tried[:0] }

type tried struct {
	server  int32
	at      int64    // the last time
	opening []uint64 // connections whose opening was not reported to the machine yet
}

// term is the time that a reader has for an offer: since when the reader knows the time, and how much time was left at
// that moment.
type term struct {
	since, frozen int64
	left          effects.Duration
}

// begins records that a reader has a new term.
func (or *renewOracle) begins(n *world.Node, k *keptOffer) {
	if !k.lies {
		k.term = term{or.w.Now, n.Frozen, k.ends.Sub(or.w.Clock(k.owner.Node))}
	}
}

// tries records that a node connects to a sender for a renewal, or sends a renewal request. The sender may have moved
// since the connection was made.
func (or *renewOracle) tries(n *world.Node, c *world.Conn) {
	server := world.Meant(c.Host)
	if !n.Delays || c.Channel != effects.ChannelInit || server < 0 {
		return
	}
	my := or.at(n)
	i := slices.IndexFunc(my.tried, func(x tried) bool { return x.server == server })
	if i < 0 {
		i = len(my.tried)
		my.tried = append(my.tried, tried{server: server})
	}
	x := &my.tried[i]
	if x.at = or.w.Now; c.Told == 0 {
		x.opening = append(x.opening, c.ID)
	}
}

// triedSince reports whether the node tried to reach a sender at the given instant or later, or is still trying. A
// machine that waits for a connection cannot send a request, and waits before the next attempt if the connection fails.
func (x *tried) triedSince(w *world.World, instant int64) bool {
	x.opening = slices.DeleteFunc(x.opening, func(conn uint64) bool {
		told := w.ConnOf(conn).Told
		x.at = max(x.at, told)
		return told != 0
	})
	return len(x.opening) > 0 || x.at >= instant
}

// due checks that the node has requested a renewal of each deferred offer once half of the offer's term is over. An
// earlier request may have gone without a reply for long, or have failed just before.
func (or *renewOracle) due(n *world.Node) {
	if n.Busy || n.Draining || or.w.Seed >= draw.RestlessSeed {
		return
	}
	cfg := &pd.Its(n).Cfg
	for i := range or.all().kept.at(n).kept {
		k := &or.all().kept.at(n).kept[i]
		if k.lent || k.lies || or.w.Now < k.term.since+int64(n.Slowest(max(cfg.LeadMin, k.term.left/2))+pd.Grace)+
			n.Frozen-k.term.frozen || !or.all().kept.renewable(n, k) ||
			slices.Contains(or.w.Source.Topology.Unrenewed, plan.Node(k.owner.Node.ID)) {
			continue
		}
		before := k.term.since - int64(n.Slowest(cfg.ReplyTimeout+cfg.BackoffMax))
		or.judged(checkRenewBegun)
		i := slices.IndexFunc(or.at(n).tried, func(x tried) bool { return x.server == k.owner.Node.ID })
		if i < 0 || !or.at(n).tried[i].triedSince(&or.w.World, before) {
			or.fail(checkRenewBegun, "node %d has not asked for more time under grant %d, of which half is over",
				n.It(), k.owner.Node.ItsGrant(k.loan.ID))
			return
		}
	}
}

// wanted checks that some chunk is left of an offer that a renewal names (L2).
func (or *renewOracle) wanted(n *world.Node, k *keptOffer) {
	if !k.spokenOf || k.lies {
		return
	}
	or.judged(checkRenewWanted)
	if !slices.ContainsFunc(k.chunks, func(c keptChunk) bool { return !c.left }) {
		or.fail(checkRenewWanted, "node %d asks for more time under grant %d, of which nothing is left",
			n.It(), k.owner.Node.ItsGrant(k.loan.ID))
	}
}
