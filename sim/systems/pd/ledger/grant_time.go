package ledger

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// On a fenced plane a grant ends by a revocation. The node asks for the revocation when the time of the grant is over,
// and earlier only if the peer has finished, the peer is gone, or the node needs the grant no more.

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkOfferEarly = oracle.NewCheck("L3", "leases of offers that are revoked before their time")
	checkGrantLate  = oracle.NewCheck("L2", "grants that outlive their time on fenced planes")
	checkWaitEarly  = oracle.NewCheck("L3", "requests refused for lack of pages before their time")
)

// grantTimeOracle judges when nodes revoke grants on fenced planes.
type grantTimeOracle struct {
	oracleBase
	perIncarnation[grantTimeState]
}

func (*grantTimeOracle) subscribe(l *oracle.Subscriptions[grantTimeOracle]) {
	oracle.On(l, func(o *grantTimeOracle, _ *oracle.Call, e world.LinkLost) {
		state := o.stateOf(e.Node)
		state.lostPeers = append(state.lostPeers, e.Peer)
	})
	oracle.On(l, func(o *grantTimeOracle, _ *oracle.Call, e pd.CommandReceived) {
		if e.Command.Kind == plan.CommandAbort {
			state := o.stateOf(e.Node)
			state.aborted = append(state.aborted, e.Command.Target)
		}
	})
	oracle.On(l, func(o *grantTimeOracle, c *oracle.Call, e *effects.Revoke) { o.recordRevoke(o.nodeOf(c), e.Grant) })
	oracle.On(l, func(o *grantTimeOracle, _ *oracle.Call, e stepCounted) { o.afterStep(e.node) })
}

// grantTimeState records the revocations of an incarnation of a node.
type grantTimeState struct {
	early     []effects.GrantID     `snap:"scratch"` // revoked in this step before their time
	lostPeers []effects.Incarnation `snap:"skip"`    // whose links were lost at any time
	aborted   []effects.Ticket      `snap:"skip"`    // aborts of puts, which also take back what a reader keeps
}

func (s *grantTimeState) clearForReuse() {
	*s = grantTimeState{early: s.early[:0], lostPeers: s.lostPeers[:0], aborted: s.aborted[:0]}
}

// recordRevoke records the revocation of an offer's lease. The lease of an offer that the reader is to read later is
// the put's until the reader has finished, whatever becomes of the put.
func (or *grantTimeOracle) recordRevoke(n *world.Node, id effects.GrantID) {
	g := n.Grants[id]
	if or.w.Conditions.Leased || g == nil || !g.Read || g.Lease.PutTicket == 0 {
		return
	}
	or.countJudged(checkOfferEarly)
	if or.w.ReadClock(n) < g.ExpiresAt && !g.Lease.DoneReceived && !g.Lease.RefusedLate {
		state := or.stateOf(n)
		state.early = append(state.early, id)
	}
}

// afterStep checks the revocations of the step, when the outcomes of the step are known.
func (or *grantTimeOracle) afterStep(n *world.Node) {
	state := or.stateOf(n)
	for _, id := range state.early {
		g := n.Grants[id]
		if c := &or.w.Commands[g.Lease.PutTicket-1]; c.Finished && c.Code != effects.OK || slices.Contains(state.lostPeers, g.Peer) ||
			slices.Contains(state.aborted, g.Lease.PutTicket) {
			continue
		}
		or.fail(checkOfferEarly, "node %d revokes grant %d %d ns before the end of its time",
			n.AsSubject(), n.GrantSubject(id), g.ExpiresAt.Sub(or.w.ReadClock(n)))
		return
	}
	if state.early = state.early[:0]; or.w.Conditions.Leased || n.Busy || !or.isRecountStep(n) {
		return
	}
	late, now := effects.GrantID(0), or.w.ReadClock(n)
	for id, g := range n.Grants {
		if g.Revoking || g.Revoked || !g.Read && !isWritable(n.Pool, g) || now < g.ExpiresAt.Add(pd.Grace) || isCompared(n.Pool, g) {
			continue
		}
		if late == 0 || id < late {
			late = id
		}
	}
	or.countJudged(checkGrantLate)
	if late != 0 {
		or.fail(checkGrantLate, "node %d does not revoke grant %d until %d ns after the end of its time",
			n.AsSubject(), n.GrantSubject(late), now.Sub(n.Grants[late].ExpiresAt))
	}
}

// verifyWait checks that a request which waited for pages is refused for lack of pages only when its time is over. The
// sender may state a shorter time than the receiver allows.
func (or *grantTimeOracle) verifyWait(n *world.Node, w *pendingRequest) {
	t := or.facts()
	m, reply := &t.request.message, &t.reply.message
	if w.isNew || w.keyCount == 0 || w.reading || w.offerGrant != 0 || !t.hasRequest || !t.hasReply || !m.HasExt || !reply.HasExt ||
		effects.CodeFromWire(reply.Ext.Code) != effects.NoMemory {
		return
	}
	limit := pd.InfoOf(n).Cfg.AllocTimeout
	if m.Ext.PatienceNS > 0 && m.Ext.PatienceNS < uint64(limit) {
		limit = effects.Duration(m.Ext.PatienceNS)
	}
	// The request may be refused on arrival, after a step that had no time for it. The pages that were promised to the
	// chunks of layers may be gone, so that waiting is in vain.
	if or.w.ReadClock(n) == w.arrivedAt || w.layers {
		or.countVoid(checkWaitEarly)
		return
	}
	or.countJudged(checkWaitEarly)
	if early := limit - or.w.ReadClock(n).Sub(w.arrivedAt); early > 0 {
		or.fail(checkWaitEarly, "node %d refuses request %d for lack of pages %d ns before its time is over",
			n.AsSubject(), oracle.Message(w.request), early)
	}
}
