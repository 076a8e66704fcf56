package ledger

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/p2p"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// A node may keep chunks that a peer leases on request, in the same way as a deferred offer. The node may keep the
// chunks from the reply on, and must keep the chunks once the node has reported that to the engine.

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkLeaseKept     = oracle.NewCheck("S9", "outcomes that report kept chunks")
	checkLeaseReturned = oracle.NewCheck("S9", "leases of chunks that were reported as kept")
)

// leaseLookup is a lookup for chunks without a reply, sent by a node that keeps chunks which peers lease.
type leaseLookup struct {
	conn  uint64
	corr  effects.Corr `snap:"skip"`
	owner effects.Incarnation
	job   int
}

// recordLookup records a lookup when the lookup is sent.
func (or *deferredOfferOracle) recordLookup(n *world.Node, c *world.Conn, corr effects.Corr, body []byte) {
	m := &or.lookup
	if !n.KeepsOffers || c.Channel != effects.ChannelLookup || m.Decode(body, &pd.WireLimits) != nil || !m.HasExt ||
		!m.PullMode {
		return
	}
	state := or.stateOf(n)
	state.lookups = append(state.lookups, leaseLookup{c.ID, corr, effects.Incarnation(m.Ext.To), int(or.w.JobIndex(m.LookupID))})
}

// recordLease handles the reply when the reply reaches the node that sent the lookup: the node may keep the chunks in
// the reply, for no longer than the owner's lease.
func (or *deferredOfferOracle) recordLease(n *world.Node, c *world.Conn, corr effects.Corr, body []byte) {
	state := or.stateOf(n)
	i := slices.IndexFunc(state.lookups, func(a leaseLookup) bool { return a.conn == c.ID && a.corr == corr })
	if i < 0 {
		return
	}
	lookup := state.lookups[i]
	state.lookups = slices.Delete(state.lookups, i, i+1)
	m := &or.lookupReply
	if m.Decode(body, &pd.WireLimits) != nil || !m.HasExt || m.Ext.Grant == 0 || len(m.RemoteUUIDs) == 0 {
		return
	}
	owner := or.w.Buffers[effects.BufferID(m.RemoteUUIDs[0])] // Of the incarnation that lent, which may be over by now.
	if owner == nil || owner.Node.ID != c.Server {
		return
	}
	g := owner.FindReadLease(effects.GrantID(m.Ext.Grant))
	if g == nil || !pd.IsNameOf(n, g.Peer) || !or.isAwaited(n, lookup.job) {
		return // A node does not keep chunks for which no engine waits.
	}
	k := deferredOffer{lease: g, owner: owner, peer: lookup.owner, job: lookup.job, keptAt: or.w.Now, uncertain: true, requested: true}
	for at, stamp := range g.Lease.FirstStamps {
		if !slices.ContainsFunc(k.chunks, func(c offeredChunk) bool { return c.id == stamp.Key() }) {
			k.chunks = append(k.chunks, offeredChunk{id: stamp.Key(), index: int64(at)})
		}
	}
	k.until = or.w.ReadClock(n).Add(pd.InfoOf(n).Cfg.LeadMin)
	state.offers = append(state.offers, k)
}

// isAwaited reports whether an engine waits for the outcome of a Bring that keeps chunks of a job.
func (or *deferredOfferOracle) isAwaited(n *world.Node, job int) bool {
	return slices.ContainsFunc(or.w.OpenCommands.Items, func(t effects.Ticket) bool {
		c := &or.w.Commands[t-1]
		b, ok := c.Body.(*p2p.Bring)
		return ok && b.Mode == p2p.Delayed && c.Node == n.ID && c.Incarnation == n.Incarnation && c.Job == job && !c.Finished
	})
}

// verifyKept checks the outcome that reports to an engine how many chunks are ready or kept. Each of these chunks must
// be ready or kept, and a kept chunk must stay for the promised time.
func (or *deferredOfferOracle) verifyKept(n *world.Node, e *effects.Deliver, c *pd.Command) {
	state, ids := or.stateOf(n), or.w.Jobs[c.Job].KeyNumbers
	for i := range min(int(e.Hits), len(ids)) {
		// A draining node drops its cache, possibly in the same step as this report.
		if _, isReady := pd.ReadyAt(n, or.w.Keys[ids[i]]); isReady || n.Draining {
			continue
		}
		if n.ResumesAt(or.w.Now) { // A chunk that was here may have left since, in the same step.
			or.countVoid(checkLeaseKept)
			continue
		}
		or.countJudged(checkLeaseKept)
		index := slices.IndexFunc(state.offers, func(k deferredOffer) bool {
			return k.requested && k.job == c.Job && or.mayBeKept(&k) &&
				slices.ContainsFunc(k.chunks, func(x offeredChunk) bool { return x.id == ids[i] && !x.consumed })
		})
		if index < 0 {
			or.fail(checkLeaseKept, "node %d reports that it keeps chunk %d of request %q, and no peer leases the chunk for that request",
				n.AsSubject(), i, oracle.Request(or.w.Jobs[c.Job].Name))
			return
		}
		k := &state.offers[index]
		k.uncertain = k.uncertain && k.keptAt != or.w.Now
		if shortfall := or.w.ReadClock(k.owner.Node).Sub(k.lease.ExpiresAt) + pd.InfoOf(n).Cfg.LeadMin; k.keptAt == or.w.Now && shortfall > 0 {
			or.fail(checkLeaseKept, "node %d keeps the chunks of grant %d although the lease is %d ns shorter than the minimum",
				n.AsSubject(), k.owner.Node.GrantSubject(k.lease.ID), shortfall)
			return
		}
	}
	for i := range state.offers {
		k := &state.offers[i]
		for m := range k.chunks { // A chunk that was here already is not kept as well.
			if _, isReady := pd.ReadyAt(n, or.w.Keys[k.chunks[m].id]); isReady && k.requested && k.keptAt == or.w.Now {
				k.chunks[m].uncertain = true
			}
		}
	}
}

// verifyReturned records the done message for a read lease when it is sent.
func (or *deferredOfferOracle) verifyReturned(n *world.Node, m *protocol.AscendBatchedLookupAndGetDoneMsg) {
	for i := range or.stateOf(n).offers {
		k := &or.stateOf(n).offers[i]
		if !k.requested || uint64(k.lease.ID) != m.Ext.Grant || !pd.IsNameOf(k.owner.Node, effects.Incarnation(m.Ext.To)) {
			continue
		}
		or.countJudged(checkLeaseReturned)
		if !n.Draining && or.mustBeKept(n, k) && or.countOpenFetches(n, k.job) == 0 &&
			slices.ContainsFunc(k.chunks, func(c offeredChunk) bool { return !c.uncertain }) {
			or.fail(checkLeaseReturned, "node %d gives grant %d back although the node reported that it keeps chunks of the grant",
				n.AsSubject(), k.owner.Node.GrantSubject(k.lease.ID))
		}
		k.ended = true
	}
}

// countOpenFetches returns how many fetches of a job are pending.
func (or *deferredOfferOracle) countOpenFetches(n *world.Node, job int) (open int) {
	for _, t := range or.w.OpenCommands.Items {
		if c := &or.w.Commands[t-1]; c.Kind == plan.CommandFetch && c.Node == n.ID && c.Incarnation == n.Incarnation && c.Job == job &&
			!c.Finished {
			open++
		}
	}
	return open
}

// recordDrop records that n drops a link. The chunks that n keeps under leases over the link end.
func (or *deferredOfferOracle) recordDrop(n *world.Node, e *effects.Drop) {
	for _, l := range n.Links {
		if !n.LendsChunks || l.ID != uint64(e.Link) {
			continue
		}
		or.recordUnreachable(n, l.Peer, effects.PeerLost)
		for i := range or.stateOf(n).offers {
			k := &or.stateOf(n).offers[i]
			k.ending = k.ending || k.requested && k.peer == l.Peer
		}
	}
}
