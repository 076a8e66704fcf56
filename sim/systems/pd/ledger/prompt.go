package ledger

import (
	"cmp"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// A machine may learn that a grant, a lease or a page is no longer wanted. If the machine can give the grant, lease or
// page back at once, the machine must do so before it has no more work for that instant, and not only when the time of
// the grant or lease is over. Until then the machine must give nothing new for the same peer or request.

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkWriterLost     = oracle.NewCheck("L2", "grants of lost writers")
	checkPartialPush    = oracle.NewCheck("L2", "grants of incomplete pushes")
	checkAbandonedGrant = oracle.NewCheck("L2", "grants for abandoned requests")
	checkFailedPutLease = oracle.NewCheck("L2", "read leases of failed puts")
	checkAbandonRefusal = oracle.NewCheck("L2", "requests refused as abandoned")
	checkAbandonServed  = oracle.NewCheck("L2", "requests served although they were abandoned")
	checkReaderLost     = oracle.NewCheck("L2", "leases of lost readers")
	checkStagingIdle    = oracle.NewCheck("L2", "staging pages of fetches that need them")
)

// promptOracle judges whether machines give back at once the grants, leases and pages that are no longer wanted (L2).
type promptOracle struct {
	oracleBase
	perIncarnation[promptState]
}

func (*promptOracle) subscribe(l *oracle.Subscriptions[promptOracle]) {
	oracle.On(l, func(o *promptOracle, _ *oracle.Call, e messageReceived) {
		o.recordHandshake(e.node, e.channel, e.request, e.conn)
	})
	oracle.On(l, func(o *promptOracle, _ *oracle.Call, e world.LinkLost) { o.recordPeerLost(e.Node, e.Peer, e.OfPeer) })
	oracle.On(l, func(o *promptOracle, _ *oracle.Call, e world.LandingReported) {
		o.recordPartialPush(e.Node, e.Transfer, e.Complete)
	})
	oracle.On(l, func(o *promptOracle, _ *oracle.Call, e world.StartingTransfer) {
		o.verifyRead(e.Node, e.Transfer, e.Effect)
	})
	oracle.On(l, func(o *promptOracle, _ *oracle.Call, e pd.CommandReceived) {
		if e.Command.Kind == plan.CommandAbandon {
			o.recordAbandon(e.Node, e.Command.Job)
		}
	})
	oracle.On(l, func(o *promptOracle, _ *oracle.Call, e pd.CommandOutcome) {
		switch {
		case e.Command.Kind != plan.CommandAbandon:
		case e.Effect.Code == effects.OK:
			o.verifyAbandoned(e.Node, e.Command.Job)
		default:
			o.removeAbandoned(e.Node, e.Command.Job)
			o.stateOf(e.Node).abandonRefused = true
		}
	})
	oracle.On(l, func(o *promptOracle, _ *oracle.Call, e pd.FetchOutcome) { o.recordFetchEnd(e.Node) })
	oracle.On(l, func(o *promptOracle, _ *oracle.Call, e pd.PutOutcome) { o.recordFailedPut(e.Node, e.Effect) })
	oracle.On(l, func(o *promptOracle, _ *oracle.Call, e stepCounted) { o.afterStep(e.node, e.stats) })
}

// promptState records the notifications that a machine receives in the current step, and the consequences while the
// machine is busy.
type promptState struct {
	lostWriters      []effects.Incarnation `snap:"scratch"` // peers that can no longer write
	lostPeers        []effects.Incarnation // lost peers that have not shaken hands again
	lostReaders      []effects.Incarnation `snap:"scratch"` // peers that can no longer read
	partialGrants    []effects.GrantID     `snap:"scratch"` // grants under which a push has ended without some pages
	abandonedJobs    []int                 `snap:"scratch"` // jobs of abandoned requests, counted from 1
	dueGrants        []dueGrant            // grants to give back, while the machine is busy
	abandoningJobs   []int                 // jobs that the machine is abandoning, while the machine is busy
	readsUnwanted    bool                  // reads for such jobs are in progress
	readerlessLeases []effects.GrantID     // read leases of lost readers, while the machine is busy
	reportedJobs     []int                 `snap:"scratch"` // jobs that the machine reports as abandoned
	failedPuts       []effects.Ticket      `snap:"scratch"` // puts that failed
	abandonRefused   bool                  `snap:"skip"`    // an Abandon was refused, so its request goes on
	readsStopping    bool                  `snap:"skip"`    // reads of an ended fetch go on, and their batch keeps its pages
}

func (s *promptState) clearForReuse() {
	*s = promptState{lostWriters: s.lostWriters[:0], lostReaders: s.lostReaders[:0], lostPeers: s.lostPeers[:0],
		partialGrants: s.partialGrants[:0],
		abandonedJobs: s.abandonedJobs[:0],
		dueGrants:     s.dueGrants[:0], abandoningJobs: s.abandoningJobs[:0],
		readerlessLeases: s.readerlessLeases[:0], reportedJobs: s.reportedJobs[:0],
		failedPuts: s.failedPuts[:0]}
}

// recordPeerLost records that the machine of n is notified of a peer's end. If theirs is set, the lost link is the
// peer's link to n.
func (or *promptOracle) recordPeerLost(n *world.Node, peer effects.Incarnation, theirs bool) {
	if or.w.Conditions.Leased || peer == (effects.Incarnation{}) {
		return
	}
	state := or.stateOf(n)
	state.lostWriters = append(state.lostWriters, peer)
	if theirs {
		state.lostReaders = append(state.lostReaders, peer)
	}
	if theirs && !slices.Contains(state.lostPeers, peer) {
		state.lostPeers = append(state.lostPeers, peer)
	}
}

// recordHandshake records that a peer shakes hands. A lost peer must do that before the peer gets anything.
func (or *promptOracle) recordHandshake(n *world.Node, channel effects.Channel, request, conn uint64) {
	state := or.stateOf(n)
	if len(state.lostPeers) == 0 || channel != effects.ChannelInit {
		return
	}
	if or.w.Requests[request-1].IsNoise { // A machine cannot distinguish a stranger that uses a publicly known name from the peer.
		state.lostPeers = state.lostPeers[:0]
		return
	}
	c := or.w.ConnOf(world.ClientConnID(conn))
	for _, l := range or.w.Links {
		if c != nil && l.From == c.Client && l.FromIncarnation == c.Incarnation && l.Target == n.Pool {
			state.lostPeers = slices.DeleteFunc(state.lostPeers, func(peer effects.Incarnation) bool { return peer == l.ImporterName })
		}
	}
}

// verifyGrant checks that pages are granted only to a peer that is not lost.
func (or *promptOracle) verifyGrant(n *world.Node, e *world.Grant) {
	state := or.stateOf(n)
	if len(state.lostPeers) == 0 {
		return
	}
	or.countJudged(checkWriterLost)
	if slices.Contains(state.lostPeers, e.Peer) {
		or.fail(checkWriterLost, "node %d gives grant %d to a writer although the node was notified that the writer is lost",
			n.AsSubject(), n.GrantSubject(e.ID))
	}
}

// verifyRead checks that an offer which is read on arrival comes from a peer that is not lost. A deferred offer may
// be read while the lease is in force, and chunks that were requested (recalled, or shared) are read over a link of n.
func (or *promptOracle) verifyRead(n *world.Node, t *world.Transfer, e *effects.Transfer) {
	asked := t.Lease != nil && t.Lease.Lease.OnRequest
	if state := or.stateOf(n); e.Read && !n.KeepsOffers && !asked && slices.Contains(state.lostPeers, e.Peer) {
		or.fail(checkWriterLost, "node %d reads from a peer with transfer %d although the node was notified that the peer is lost",
			n.AsSubject(), oracle.Transfer(t.ID))
	}
}

// verifyLease checks that a read lease on request is given only to a peer that is not lost.
func (or *promptOracle) verifyLease(n *world.Node, peer effects.Incarnation, id effects.GrantID) {
	if slices.Contains(or.stateOf(n).lostPeers, peer) {
		or.fail(checkWriterLost, "node %d leases pages under grant %d to a peer although the node was notified that the peer is lost",
			n.AsSubject(), n.GrantSubject(id))
	}
}

// recordPartialPush records that the machine is notified of a push that has ended without some pages.
func (or *promptOracle) recordPartialPush(n *world.Node, t *world.Transfer, complete bool) {
	if g := n.Grants[t.Grant]; !or.w.Conditions.Leased && !complete && g != nil && g.Peer == t.Initiator {
		or.stateOf(n).partialGrants = append(or.stateOf(n).partialGrants, t.Grant)
	}
}

// recordAbandon records that the machine is told to abandon the request of a job.
func (or *promptOracle) recordAbandon(n *world.Node, job int) {
	or.stateOf(n).abandonedJobs = append(or.stateOf(n).abandonedJobs, job+1)
	j := &or.w.Jobs[job]
	j.AbandonedAt, j.AbandonedIn = or.w.ReadClock(n), n.Incarnation
}

// verifyRefusal checks a message that was refused on arrival because the request was abandoned: the engine must have
// abandoned the request, at most AbandonTTL ago.
func (or *promptOracle) verifyRefusal(n *world.Node, w *pendingRequest) {
	t := or.facts()
	m, reply := &t.request.message, &t.reply.message
	if !w.isNew || !t.hasRequest || !t.hasReply || !m.HasExt || !reply.HasExt ||
		effects.CodeFromWire(reply.Ext.Code) != effects.Cancelled {
		return
	}
	i := or.w.JobIndex(m.Ext.Request)
	if i >= uint64(len(or.w.Jobs)) {
		return
	}
	or.countJudged(checkAbandonRefusal)
	ttl := cmp.Or(pd.InfoOf(n).Cfg.AbandonTTL, 10*effects.Second)
	j := &or.w.Jobs[i]
	if j.AbandonedAt == 0 || j.AbandonedIn != n.Incarnation || or.w.ReadClock(n).Sub(j.AbandonedAt) > ttl {
		or.fail(checkAbandonRefusal, "node %d refuses a message for request %q as abandoned, and the request was not abandoned recently",
			n.AsSubject(), oracle.Request(j.Name))
	}
}

// verifyNotAbandoned checks that nothing is granted, stored or read for a request within AbandonTTL of its abandonment.
// The machine may have forgotten an abandonment when more requests than RequestsMax were abandoned.
func (or *promptOracle) verifyNotAbandoned(n *world.Node, job int) {
	if job == 0 {
		return
	}
	cfg, j := &pd.InfoOf(n).Cfg, &or.w.Jobs[job-1]
	if j.AbandonedAt == 0 || j.AbandonedIn != n.Incarnation {
		return
	}
	if or.stateOf(n).abandonRefused || len(or.w.Jobs) > int(cmp.Or(cfg.RequestsMax, 4096)) {
		or.countVoid(checkAbandonServed)
		return
	}
	or.countJudged(checkAbandonServed)
	if ago := or.w.ReadClock(n).Sub(j.AbandonedAt); ago < cmp.Or(cfg.AbandonTTL, 10*effects.Second) {
		or.fail(checkAbandonServed, "node %d gives or reads pages for request %q, which was abandoned %d ns ago",
			n.AsSubject(), oracle.Request(j.Name), ago)
	}
}

// recordFailedPut records that the machine ends a put.
func (or *promptOracle) recordFailedPut(n *world.Node, e *effects.Deliver) {
	if n.OffersChunks && !or.w.Conditions.Leased && e.Code != effects.OK {
		or.stateOf(n).failedPuts = append(or.stateOf(n).failedPuts, e.Ticket)
	}
}

// verifyGrantRequest records the request that a grant is for, and checks that the machine is not abandoning that
// request.
func (or *promptOracle) verifyGrantRequest(n *world.Node, g *world.Grant) {
	m := &or.facts().request.message
	if g != nil && or.facts().hasRequest && m.HasExt && len(m.Ext.Request) > 0 {
		if i := or.w.JobIndex(m.Ext.Request); i < uint64(len(or.w.Jobs)) {
			g.Job = int(i) + 1
		}
	}
	if g != nil {
		or.verifyNotAbandoned(n, g.Job)
	}
	if g == nil || g.Job == 0 || len(or.stateOf(n).abandoningJobs) == 0 {
		return
	}
	or.countJudged(checkAbandonedGrant)
	if or.isAbandoning(n, g.Job-1) {
		or.fail(checkAbandonedGrant, "node %d gives grant %d while the node is abandoning request %q",
			n.AsSubject(), n.GrantSubject(g.ID), oracle.Request(or.w.Jobs[g.Job-1].Name))
	}
}

// afterStep checks that the notifications of the step have had the required effects.
func (or *promptOracle) afterStep(n *world.Node, s *rank.Stats) {
	state := or.stateOf(n)
	if len(state.lostWriters) > 0 || len(state.abandonedJobs) > 0 {
		or.recordUnwanted(n, state)
	}
	if len(state.partialGrants) > 0 {
		or.verifyPartialGrants(n, state)
	}
	for _, t := range state.failedPuts {
		or.verifyPutLease(n, t)
	}
	if n.LendsChunks && len(state.lostReaders) > 0 {
		or.recordReaderless(n, state)
	}
	state.lostReaders = state.lostReaders[:0]
	state.updateAbandoning()
	state.lostWriters, state.partialGrants = state.lostWriters[:0], state.partialGrants[:0]
	state.abandonedJobs, state.failedPuts = state.abandonedJobs[:0], state.failedPuts[:0]
	if n.KeepsOffers && s.Staged > 0 {
		or.verifyStaging(n, s)
	}
	if !n.Busy {
		if len(state.readerlessLeases) > 0 {
			or.verifyReaderless(n, state)
		}
		or.verifyEnded(n, state)
	}
}

// verifyPartialGrants checks that the grant of pages which a push left out ends in the step that reports the push.
func (or *promptOracle) verifyPartialGrants(n *world.Node, state *promptState) {
	or.countJudged(checkPartialPush)
	slices.Sort(state.partialGrants)
	for _, id := range state.partialGrants {
		if g := n.Grants[id]; g != nil && !g.Read && !g.Revoking && isWritable(n.Pool, g) {
			or.fail(checkPartialPush, "node %d does not revoke grant %d although the push has ended without some pages",
				n.AsSubject(), n.GrantSubject(id))
			return
		}
	}
}

// recordReaderless records the read leases of peers with lost links. These leases must be revoked.
func (or *promptOracle) recordReaderless(n *world.Node, state *promptState) {
	or.countJudged(checkReaderLost)
	for _, g := range n.Pool.ReadLeases {
		if isReadable(g) && slices.Contains(state.lostReaders, g.Peer) && !slices.Contains(state.readerlessLeases, g.ID) {
			state.readerlessLeases = append(state.readerlessLeases, g.ID)
		}
	}
	slices.Sort(state.readerlessLeases) // Independent of the order in the pool.
}

// verifyReaderless checks that these leases have ended when the machine has no more work for this instant.
func (or *promptOracle) verifyReaderless(n *world.Node, state *promptState) {
	var found effects.GrantID
	for _, g := range n.Pool.ReadLeases {
		if isReadable(g) && slices.Contains(state.readerlessLeases, g.ID) && (found == 0 || g.ID < found) {
			found = g.ID
		}
	}
	state.readerlessLeases = state.readerlessLeases[:0]
	if found != 0 {
		or.fail(checkReaderLost, "node %d does not revoke grant %d although the node was notified that the reader is lost",
			n.AsSubject(), n.GrantSubject(found))
	}
}

// isReadable reports whether a peer may still read under a lease that the peer requested.
func isReadable(g *world.Grant) bool { return g.Lease.OnRequest && !g.Revoking && !g.Lease.Revoked }

// isWritable reports whether any page may still be written under a grant.
func isWritable(p *world.Pool, g *world.Grant) bool {
	return slices.ContainsFunc(g.Pages, func(x effects.Page) bool { return p.Pages[x.Index].Granted == g.ID })
}

// isCompared reports whether pages of a write grant are being compared with their checksums.
func isCompared(p *world.Pool, g *world.Grant) bool {
	return slices.ContainsFunc(g.Pages, func(x effects.Page) bool {
		return p.Pages[x.Index].Verifies > 0 && p.Pages[x.Index].GrantGeneration == x.Generation
	})
}

// verifyPutLease checks that the read lease of a failed put is revoked, on planes which can revoke a lease at once.
func (or *promptOracle) verifyPutLease(n *world.Node, t effects.Ticket) {
	or.countJudged(checkFailedPutLease)
	var found effects.GrantID
	for id, g := range n.Grants {
		if g.Read && g.Lease.PutTicket == t && !g.Revoking && !g.Lease.Revoked && (found == 0 || id < found) {
			found = id
		}
	}
	if found != 0 {
		or.fail(checkFailedPutLease, "node %d does not revoke grant %d although the put, ticket %d, has failed",
			n.AsSubject(), n.GrantSubject(found), oracle.Ticket(t))
	}
}

// recordFetchEnd records that n ends a fetch. Reads of the fetch may still be in flight.
func (or *promptOracle) recordFetchEnd(n *world.Node) { or.stateOf(n).readsStopping = true }

// verifyStaging checks that fetches have no more staging pages than chunks that their engines do not have yet, except
// for pages that something still touches.
func (or *promptOracle) verifyStaging(n *world.Node, s *rank.Stats) {
	state, needed, reads := or.stateOf(n), 0, 0
	for _, t := range or.w.Active.Transfers.Items {
		if t.Read && t.Local == n.Pool && t.LocalInUse {
			reads += len(t.Pairs)
		}
	}
	if state.readsStopping = state.readsStopping && reads > 0; state.readsStopping {
		or.countVoid(checkStagingIdle)
		return
	}
	or.countJudged(checkStagingIdle)
	for _, t := range or.oracles().fetches.openFetches(n) {
		c := &or.w.Commands[t-1]
		needed += int(c.Count - c.Device.Received)
	}
	for i := range n.Pool.Pages {
		needed += min(n.Pool.Pages[i].Scatters, 1)
	}
	if s.Staged > needed {
		or.fail(checkStagingIdle, "node %d has %d staging pages, and its fetches need %d", n.AsSubject(), s.Staged, needed)
	}
}
