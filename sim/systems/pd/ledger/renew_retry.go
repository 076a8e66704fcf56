package ledger

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// A renewal that gets no reply is repeated after a pause. The pause grows with the failures since the last reply, and
// the repeated request names what the lost one had named.

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkRenewPause  = oracle.NewCheck("L7", "pauses after renewals without a reply")
	checkRenewRepeat = oracle.NewCheck("S9", "renewals without a reply, repeated")
)

// renewRetryOracle judges how a reader repeats renewals.
type renewRetryOracle struct {
	oracleBase
	perIncarnation[renewRetryState]
	request protocol.RenewRequest  `snap:"scratch"`
	reply   protocol.RenewResponse `snap:"scratch"`
}

// renewRetryState records the renewals of an incarnation of a node, by owner.
type renewRetryState struct {
	owners []renewedOwner `snap:"skip"`
}

func (s *renewRetryState) clearForReuse() { s.owners = s.owners[:0] }

// renewedOwner records the last request for renewals to an owner.
type renewedOwner struct {
	server         int32
	to             protocol.UUID  // the incarnation to which the last request was sent
	corr, openCorr effects.Corr   // of the request, or of the attempt to connect, in progress
	named, lost    []*world.Grant // what the last request named, and what the last request named if it got no reply
	sentAt         int64
	failures       uint32       // failed attempts since the last reply
	failedAt       effects.Time // when the last attempt failed, by the node's clock; zero: an attempt is in progress
	frozen         int64
}

func (*renewRetryOracle) subscribe(l *oracle.Subscriptions[renewRetryOracle]) {
	oracle.On(l, func(o *renewRetryOracle, _ *oracle.Call, e world.SendingRequest) {
		if e.Node.KeepsOffers && e.Conn.Channel == effects.ChannelInit {
			o.recordRequest(e.Node, e.Conn, e.Corr, e.Body)
		}
	})
	oracle.On(l, func(o *renewRetryOracle, c *oracle.Call, e *effects.Open) {
		n, server := o.nodeOf(c), world.NodeOfHost(e.Addr.Host)
		if server >= 0 && !n.Custom && n.KeepsOffers && e.Channel == effects.ChannelInit {
			x := o.ownerAt(n, server)
			x.openCorr, x.failedAt = e.Corr, 0
		}
	})
	oracle.On(l, func(o *renewRetryOracle, c *oracle.Call, e *effects.Opened) {
		if x := o.ownerOf(o.nodeOf(c), func(x *renewedOwner) bool { return x.openCorr == e.Corr }); x != nil {
			if x.openCorr = 0; e.Code != effects.OK {
				o.recordFailure(o.nodeOf(c), x)
			}
		}
	})
	oracle.On(l, func(o *renewRetryOracle, c *oracle.Call, e *effects.Unanswered) {
		o.recordUnanswered(o.nodeOf(c), e.Corr)
	})
	oracle.On(l, func(o *renewRetryOracle, _ *oracle.Call, e world.ReplyReceived) {
		x := o.ownerOf(e.Node, func(x *renewedOwner) bool { return x.corr == e.Corr })
		switch {
		case x == nil:
		case o.reply.Decode(e.Body, &pd.WireLimits) != nil:
			o.recordUnanswered(e.Node, e.Corr)
		default:
			x.corr, x.failures, x.named, x.lost = 0, 0, x.named[:0], x.lost[:0]
		}
	})
	oracle.On(l, func(o *renewRetryOracle, _ *oracle.Call, e stepCounted) {
		if len(o.stateOf(e.node).owners) > 0 {
			o.verifyPauses(e.node)
		}
	})
}

// ownerOf returns the first owner for which matches returns true, or nil.
func (or *renewRetryOracle) ownerOf(n *world.Node, matches func(x *renewedOwner) bool) *renewedOwner {
	if n.Custom || !n.KeepsOffers {
		return nil
	}
	s := or.stateOf(n)
	if i := slices.IndexFunc(s.owners, func(x renewedOwner) bool { return matches(&x) }); i >= 0 {
		return &s.owners[i]
	}
	return nil
}

// ownerAt returns the record of the owner on a node.
func (or *renewRetryOracle) ownerAt(n *world.Node, server int32) *renewedOwner {
	if x := or.ownerOf(n, func(x *renewedOwner) bool { return x.server == server }); x != nil {
		return x
	}
	s := or.stateOf(n)
	s.owners = append(s.owners, renewedOwner{server: server})
	return &s.owners[len(s.owners)-1]
}

// recordRequest records a request for renewals, and checks that it names what a request without a reply had named.
func (or *renewRetryOracle) recordRequest(n *world.Node, c *world.Conn, corr effects.Corr, body []byte) {
	m, server := &or.request, world.NodeOfHost(c.Host)
	if server < 0 || !protocol.MayHaveTag(body, protocol.TagRenewRequest, &pd.WireLimits) || m.Decode(body, &pd.WireLimits) != nil {
		return
	}
	x := or.ownerAt(n, server)
	or.verifyRepeated(n, x, m)
	x.named, x.lost = x.named[:0], x.lost[:0]
	kept := or.oracles().deferredOffers.stateOf(n).offers
	for i := range kept {
		if g := kept[i].lease; g != nil && kept[i].peer == effects.Incarnation(m.To) && slices.Contains(m.Grants, uint64(g.ID)) {
			x.named = append(x.named, g)
		}
	}
	x.corr, x.to, x.sentAt, x.failedAt = corr, m.To, or.w.Now, 0
}

// verifyRepeated checks a request that follows a request without a reply. A sender that has moved is asked from the
// first offer on.
func (or *renewRetryOracle) verifyRepeated(n *world.Node, x *renewedOwner, m *protocol.RenewRequest) {
	if len(x.lost) == 0 || m.To != x.to {
		return
	}
	kept := or.oracles().deferredOffers.stateOf(n).offers
	isNewer := func(k deferredOffer) bool {
		return k.lease != nil && k.keptAt >= x.sentAt && slices.Contains(m.Grants, uint64(k.lease.ID))
	}
	if slices.Contains(or.w.SourcePlan.Topology.Moves, plan.Node(x.server)) ||
		len(m.Grants) == leasesPerRenewal(n) && slices.ContainsFunc(kept, isNewer) { // It may have taken the place of one that ended.
		or.countVoid(checkRenewRepeat)
		return
	}
	or.countJudged(checkRenewRepeat)
	for i := range kept {
		k := &kept[i]
		if k.peer == effects.Incarnation(m.To) && slices.Contains(x.lost, k.lease) && !slices.Contains(m.Grants, uint64(k.lease.ID)) &&
			or.oracles().deferredOffers.isRenewable(n, k) {
			or.fail(checkRenewRepeat, "node %d repeats a renewal that got no reply, and leaves out grant %d, which that renewal named",
				n.AsSubject(), k.owner.Node.GrantSubject(k.lease.ID))
			return
		}
	}
}

// recordUnanswered records that a request gets no reply, or one that is no renewal.
func (or *renewRetryOracle) recordUnanswered(n *world.Node, corr effects.Corr) {
	if x := or.ownerOf(n, func(x *renewedOwner) bool { return x.corr == corr }); x != nil {
		x.corr, x.lost = 0, append(x.lost[:0], x.named...)
		or.recordFailure(n, x)
	}
}

// recordFailure records that an attempt has failed.
func (or *renewRetryOracle) recordFailure(n *world.Node, x *renewedOwner) {
	x.failures, x.failedAt, x.frozen = x.failures+1, or.w.ReadClock(n), n.FrozenTime
}

// verifyPauses checks that the node has begun another attempt at each renewal that got no reply, after the pause.
func (or *renewRetryOracle) verifyPauses(n *world.Node) {
	cfg, now := &pd.InfoOf(n).Cfg, or.w.ReadClock(n)
	for i := range or.stateOf(n).owners {
		x := &or.stateOf(n).owners[i]
		if x.failedAt == 0 || len(x.lost) == 0 {
			continue
		}
		if n.Busy || n.Draining || cfg.PeersMax < uint32(len(or.w.Nodes)) { // A peer's row may have been given to another peer.
			or.countVoid(checkRenewPause)
			continue
		}
		pause := min(cfg.BackoffMin<<min(x.failures-1, 20), cfg.BackoffMax)
		or.countJudged(checkRenewPause)
		if now.Sub(x.failedAt) > pause+pd.Grace+n.FrozenSince(x.frozen) && or.isAnyWanted(n, x) {
			or.fail(checkRenewPause, "node %d does not ask node %d for renewals again %d ns after attempt %d in a row failed; the pause is %d ns",
				n.AsSubject(), oracle.Node(x.server), now.Sub(x.failedAt), x.failures, pause)
			return
		}
	}
}

// isAnyWanted reports whether any of the leases that the lost request named must still be renewed.
func (or *renewRetryOracle) isAnyWanted(n *world.Node, x *renewedOwner) bool {
	return slices.ContainsFunc(or.oracles().deferredOffers.stateOf(n).offers, func(k deferredOffer) bool {
		return k.peer == effects.Incarnation(x.to) && slices.Contains(x.lost, k.lease) && or.oracles().deferredOffers.isRenewable(n, &k)
	})
}
