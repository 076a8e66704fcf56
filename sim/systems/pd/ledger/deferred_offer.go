package ledger

import (
	"bytes"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkDeferredLease     = oracle.NewCheck("S9", "offers as they are deferred")
	checkContains          = oracle.NewCheck("S9", "outcomes of contains")
	checkLocationsPromised = oracle.NewCheck("S9", "remote locations that were promised")
	checkLocationsReadable = oracle.NewCheck("L2", "remote locations that can be read")
	checkDoneEarly         = oracle.NewCheck("S9", "done messages of deferred offers")
	checkDoneOnce          = oracle.NewCheck("S8", "done messages, one per offer")
)

// deferredOfferOracle judges deferred offers: offers that a receiver keeps in order to read the chunks later. It checks
// how long the receiver keeps an offer (S9), what the receiver reports about the offer, and that the sender is notified
// of the offer's end once (S8).
type deferredOfferOracle struct {
	oracleBase
	perIncarnation[deferredOfferState]
	lookup      protocol.AscendBatchedLookupAndGetMsg    `snap:"scratch"`
	lookupReply protocol.AscendBatchedLookupAndGetRetMsg `snap:"scratch"`
}

func (*deferredOfferOracle) subscribe(l *oracle.Subscriptions[deferredOfferOracle]) {
	oracle.On(l, func(o *deferredOfferOracle, c *oracle.Call, e *effects.Drop) { o.recordDrop(o.nodeOf(c), e) })
	oracle.On(l, func(o *deferredOfferOracle, _ *oracle.Call, e messageReceived) {
		if e.channel == effects.ChannelInit {
			o.removeAnchors(e.node)
		}
		o.recordOffer(e.node, e.request, e.body)
	})
	oracle.On(l, func(o *deferredOfferOracle, _ *oracle.Call, e world.ReplyReceived) {
		o.recordLease(e.Node, e.Conn, e.Corr, e.Body)
	})
	oracle.On(l, func(o *deferredOfferOracle, _ *oracle.Call, e world.SendingRequest) {
		o.recordLookup(e.Node, e.Conn, e.Corr, e.Body)
	})
	oracle.On(l, func(o *deferredOfferOracle, _ *oracle.Call, e world.LinkLost) {
		o.recordUnreachable(e.Node, e.Peer, effects.PeerLost)
	})
	oracle.On(l, func(o *deferredOfferOracle, _ *oracle.Call, e pd.CommandReceived) {
		switch e.Command.Kind {
		case pd.WantGiveUp:
			o.recordGiveUp(e.Node, e.Command)
		case plan.CommandContains:
			o.recordReadyChunks(e.Node, e.Command)
		case plan.CommandAbandon:
			o.recordAbandon(e.Node, e.Command.Job)
		}
	})
	oracle.On(l, func(o *deferredOfferOracle, _ *oracle.Call, e pd.CommandOutcome) {
		if e.Command.Kind == pd.WantGiveUp && e.Effect.Code == effects.OK {
			o.recordConsumed(e.Node, e.Command)
		}
	})
	oracle.On(l, func(o *deferredOfferOracle, _ *oracle.Call, e pd.ContainsOutcome) {
		o.verifyContains(e.Node, e.Effect, e.Command)
	})
	oracle.On(l, func(o *deferredOfferOracle, _ *oracle.Call, e pd.KeepOutcome) {
		o.verifyKept(e.Node, e.Effect, e.Command)
	})
	oracle.On(l, func(o *deferredOfferOracle, _ *oracle.Call, e pd.DoneSent) {
		o.verifyDone(e.Node, e.Message, e.Accepted)
	})
}

// deferredOfferState records the deferred offers of an incarnation of a node.
type deferredOfferState struct {
	offers      []deferredOffer       // the deferred offers; may include a few that have ended
	readyChunks []bool                `snap:"scratch"` // by chunk of the current Contains: whether the chunk was ready before the step
	arrived     arrivedOffer          `snap:"scratch"` // the offer message of this step
	unreachable []effects.Incarnation // senders from which the node could not read at some time
	lookups     []leaseLookup
	anchors     []clockAnchor `snap:"skip"`
}

func (s *deferredOfferState) clearForReuse() {
	*s = deferredOfferState{offers: s.offers[:0], unreachable: s.unreachable[:0], lookups: s.lookups[:0], anchors: s.anchors[:0]}
}

// deferredOffer is a deferred offer, recorded when the receiver replies that it defers the offer. From then on the
// receiver must be able to read the chunks for the promised time, unless the sender fails. After the end of the offer
// the receiver must not read the chunks.
type deferredOffer struct {
	lease     *world.Grant
	owner     *world.Pool
	peer      effects.Incarnation
	pullID    protocol.PullID
	job       int // the job that the offer is for; -1 if the offer names none
	chunks    []offeredChunk
	keptAt    int64        `snap:"instant"`
	until     effects.Time // the offer must be kept until then, by the receiver's clock
	requested bool         // the reader requested the lease
	altered   bool         // the message was changed on the way, so that the content of the offer is unknown
	uncertain bool         // the offer may have ended, because of an earlier event
	ending    bool         // the offer is being given up; fetches of different requests may read the chunks until that is done
	ended     bool         // the offer has ended

	leaseEnd        effects.Time `snap:"skip"` // the lease's end by the owner's clock, as far as the reader knows
	rightUntil      effects.Time `snap:"skip"` // end of the time in which the reader may certainly read, by the reader's clock
	named           bool         `snap:"skip"` // the last renewal request named the offer
	unnamedRenewals int          `snap:"skip"` // number of renewals with a reply since a renewal last named the offer
	maxOffers       int          `snap:"skip"` // the largest number of offers kept of the sender in that time
	term            leaseTerm    `snap:"skip"` // the time of the lease as far as the reader knows
}

// offeredChunk is a chunk of a deferred offer.
type offeredChunk struct {
	id        uint32
	index     int64 // the place in the offer
	uncertain bool  // a fetch may have consumed the chunk
	consumed  bool  // a fetch has consumed the chunk
}

// arrivedOffer is the offer message that a receiver gets in this step.
type arrivedOffer struct {
	request   uint64
	offer     deferredOffer
	withdrawn []protocol.PullID
}

// recordOffer records an offer message when the message reaches the receiver's machine.
func (or *deferredOfferOracle) recordOffer(n *world.Node, request uint64, body []byte) {
	state := or.stateOf(n)
	state.arrived = arrivedOffer{}
	if !n.IsReceiver() {
		return
	}
	m, ok := or.facts().asOffer(body)
	if !ok || !m.HasExt {
		return
	}
	owner := (*world.Pool)(nil)
	if len(m.Keys) > 0 && len(m.SenderUUIDs) > 0 {
		owner = or.w.Buffers[effects.BufferID(m.SenderUUIDs[0])]
	}
	var g *world.Grant
	if owner != nil {
		g = owner.FindReadLease(effects.GrantID(m.Ext.Grant))
	}
	if g != nil {
		g.Lease.OfferCount++
		or.countCoincidences(n, owner.Node, g)
	}
	if !n.KeepsOffers {
		return
	}
	x := &state.arrived
	x.request, x.offer.peer, x.offer.pullID, x.offer.job = request, effects.Incarnation(m.Ext.Incarnation), m.PullID, -1
	if len(m.Ext.Request) > 0 {
		x.offer.job = int(or.w.JobIndex(m.Ext.Request))
	}
	for _, pull := range m.Ext.Withdraw {
		x.withdrawn = append(x.withdrawn, pull)
		for i := range state.offers {
			k := &state.offers[i]
			if k.pullID == pull && k.peer == x.offer.peer && pd.IsGenuine(n, k.peer, effects.Incarnation(m.Ext.To)) {
				k.uncertain = true
				or.oracles().fetches.allowCode(n, effects.Withdrawn, k.chunkNumbers()...)
			}
		}
	}
	if owner == nil {
		return
	}
	or.recordClocks(n, owner.Node, m)
	x.offer.rightUntil = or.readRightOf(n, m)
	x.offer.lease, x.offer.owner = g, owner
	x.offer.altered = g == nil || !pd.IsNameOf(n, g.Peer) || g.Lease.OfferID != m.PullID || len(g.Pages) != len(m.Keys)
	for i, key := range m.Keys {
		id := uint32(0)
		if x.offer.altered = x.offer.altered || uint64(g.Pages[i].Index) != uint64(m.SenderIndexes[i]); !x.offer.altered {
			id = g.Lease.FirstStamps[i].Key()
			x.offer.altered = !bytes.Equal(or.w.Keys[id], key)
		}
		if !slices.ContainsFunc(m.Keys[:i], func(k []byte) bool { return bytes.Equal(k, key) }) {
			x.offer.chunks = append(x.offer.chunks, offeredChunk{id: id, index: int64(i)})
		}
	}
}

// recordOfferReply records the receiver's reply to an offer message.
func (or *deferredOfferOracle) recordOfferReply(n *world.Node, request uint64, body []byte) {
	state := or.stateOf(n)
	x := &state.arrived
	if x.request != request || request == 0 {
		return
	}
	m, ok := or.facts().asAck(body)
	if !ok || !m.HasExt {
		return
	}
	if m.Ext.Code == 0 && !m.AllocFailed {
		for i := range state.offers {
			if k := &state.offers[i]; k.peer == x.offer.peer && slices.Contains(x.withdrawn, k.pullID) {
				k.ended = true
			}
		}
	}
	k := x.offer
	// A refusal may say that a read is still in flight, but a refused offer is not kept.
	if !m.Ext.Delayed || m.Ext.Code != 0 || m.AllocFailed ||
		slices.ContainsFunc(state.offers, func(o deferredOffer) bool { return o.lease == k.lease && o.pullID == k.pullID && !o.ended }) {
		return
	}
	if !k.altered && k.lease.Lease.OfferKept && or.mayBeRead(n, &k) {
		return // The reply to a retry repeats the result of the first attempt while a read of the first attempt is in progress.
	}
	k.chunks = slices.DeleteFunc(k.chunks, func(c offeredChunk) bool { return slices.Contains(m.AlreadySent, c.index) })
	k.keptAt, k.until = or.w.Now, or.w.ReadClock(n).Add(pd.InfoOf(n).Cfg.LeadMin)
	isRetry := k.lease == nil || k.lease.Lease.OfferKept
	if !k.altered {
		k.leaseEnd = k.lease.ExpiresAt
		or.countJudged(checkDeferredLease)
		if shortfall := or.w.ReadClock(k.owner.Node).Sub(k.lease.ExpiresAt) + pd.InfoOf(n).Cfg.LeadMin; shortfall > 0 {
			or.fail(checkDeferredLease,
				"node %d defers the offer of grant %d although the lease is %d ns shorter than the minimum",
				n.AsSubject(), k.owner.Node.GrantSubject(k.lease.ID), shortfall)
		}
		k.lease.Lease.OfferKept = true
		for _, c := range k.chunks {
			or.facts().wholeKeys[n.ID][c.id] = true
		}
	}
	k.uncertain = slices.Contains(state.unreachable, k.peer)
	or.oracles().renewals.beginTerm(n, &k)
	state.offers = append(state.offers, k)
	if or.oracles().tableShares.verifyOfferShare(n, &k); or.w.Failure == nil {
		or.oracles().tableShares.verifyOfferRoom(n, &k, isRetry)
	}
}

// mayBeRead reports whether a fetch that consumed all chunks of an offer may still read the chunks: either a fetch in
// progress, or a fetch that ended while reads were in flight.
func (or *deferredOfferOracle) mayBeRead(n *world.Node, k *deferredOffer) bool {
	return slices.ContainsFunc(or.w.OpenCommands.Items, func(ticket effects.Ticket) bool {
		c := &or.w.Commands[ticket-1]
		return c.Kind == plan.CommandFetch && c.Node == n.ID && c.Incarnation == n.Incarnation && !c.Finished
	}) || slices.ContainsFunc(or.w.Active.Transfers.Items, func(t *world.Transfer) bool {
		return t.Read && t.LocalInUse && t.Local == n.Pool && t.Remote == k.owner && t.Grant == k.lease.ID
	})
}

// chunkNumbers returns the key numbers of the offered chunks.
func (k *deferredOffer) chunkNumbers() (all []uint32) {
	for i := range k.chunks {
		all = append(all, k.chunks[i].id)
	}
	return all
}

// mayContain reports whether any of the chunks may be in the offer.
func (k *deferredOffer) mayContain(ids []uint32) bool {
	return slices.ContainsFunc(k.chunks, func(c offeredChunk) bool { return k.altered || slices.Contains(ids, c.id) })
}

// mayBeKept reports whether an offer can still be kept: the offer was not ended, and the lease is in force.
func (or *deferredOfferOracle) mayBeKept(k *deferredOffer) bool {
	return !k.ended && (k.altered || or.w.ReadClock(k.owner.Node) <= k.lease.ExpiresAt)
}

// mustBeKept reports whether an offer must still be kept.
func (or *deferredOfferOracle) mustBeKept(n *world.Node, k *deferredOffer) bool {
	return or.mayBeKept(k) && !k.altered && !k.uncertain && or.w.ReadClock(n) <= k.until
}

// isPromised reports whether a chunk must be in a deferred offer.
func (or *deferredOfferOracle) isPromised(n *world.Node, id uint32) bool {
	return slices.ContainsFunc(or.stateOf(n).offers, func(k deferredOffer) bool {
		return or.mustBeKept(n, &k) && slices.ContainsFunc(k.chunks, func(c offeredChunk) bool { return c.id == id && !c.uncertain })
	})
}

// mayBeExpired reports whether any of the chunks was kept for so long that the lease may be over.
func (or *deferredOfferOracle) mayBeExpired(n *world.Node, ids []uint32) bool {
	return slices.ContainsFunc(or.stateOf(n).offers, func(k deferredOffer) bool {
		return (k.altered || or.w.ReadClock(n) > k.until) && k.mayContain(ids)
	})
}

// canReachSenders reports whether the planes of all senders that may have any of the chunks are connected.
func (or *deferredOfferOracle) canReachSenders(n *world.Node, ids []uint32) bool {
	return !slices.ContainsFunc(or.stateOf(n).offers, func(k deferredOffer) bool {
		return or.mayBeKept(&k) && (k.altered || k.mayContain(ids)) &&
			!slices.ContainsFunc(n.Links, func(x *world.Link) bool {
				return x.Peer == k.peer && x.ImportReported && !x.LossReported &&
					!x.Dropped
			})
	})
}

// recordConsumed records which chunks of deferred offers a fetch has consumed: the chunks that were offered for the
// request of the fetch.
func (or *deferredOfferOracle) recordConsumed(n *world.Node, c *pd.Command) {
	for i := range or.stateOf(n).offers {
		k := &or.stateOf(n).offers[i]
		if k.job >= 0 && k.job != c.Job {
			continue
		}
		for m := range k.chunks {
			if x := &k.chunks[m]; slices.Contains(or.oracles().fetches.chunksOf(c), x.id) {
				x.uncertain = true
				x.consumed = x.consumed || k.job == c.Job && k.keptAt < c.Fetch.ReceivedAt
			}
		}
	}
}

// recordGiveUp records that a request is about to give up the chunks that its failed fetch did not bring.
func (or *deferredOfferOracle) recordGiveUp(n *world.Node, c *pd.Command) {
	c.Fetch.ReceivedAt = or.w.Now
	or.recordReadyChunks(n, c)
	for i := range or.stateOf(n).offers {
		k := &or.stateOf(n).offers[i]
		for m := range k.chunks {
			x := &k.chunks[m]
			x.uncertain = x.uncertain || k.job == c.Job && slices.Contains(or.oracles().fetches.chunksOf(c), x.id)
		}
	}
}

// recordAbandon marks the offers of a request as ending when the machine receives the command to abandon the request.
func (or *deferredOfferOracle) recordAbandon(n *world.Node, job int) {
	for i := range or.stateOf(n).offers {
		if k := &or.stateOf(n).offers[i]; k.job == job {
			k.uncertain, k.ending = true, true
		}
	}
	// The fetches of the request end. Reads of the same offers for different requests go on (S18).
	for _, t := range or.oracles().fetches.stateOf(n).fetches {
		if c := &or.w.Commands[t-1]; c.Job == job {
			c.Fetch.AllowedCodes |= 1 << effects.Cancelled
		}
	}
}

// recordUnreachable records that n cannot read from a sender, and why. The deferred offers of the sender may end, and
// fetches that read these offers may fail.
func (or *deferredOfferOracle) recordUnreachable(n *world.Node, peer effects.Incarnation, code effects.Code) {
	state := or.stateOf(n)
	if !n.KeepsOffers {
		return
	}
	if !slices.Contains(state.unreachable, peer) {
		state.unreachable = append(state.unreachable, peer)
	}
	for i := range state.offers {
		if k := &state.offers[i]; k.peer == peer {
			k.uncertain = true
			or.oracles().fetches.allowCode(n, code, k.chunkNumbers()...)
		}
	}
}

// recordReadyChunks records which chunks are ready when a Contains reaches the machine, because a claim may end in the
// same step.
func (or *deferredOfferOracle) recordReadyChunks(n *world.Node, c *pd.Command) {
	state := or.stateOf(n)
	state.readyChunks = state.readyChunks[:0]
	for _, id := range or.w.Jobs[c.Job].KeyNumbers {
		_, isReady := pd.ReadyAt(n, or.w.Keys[id])
		state.readyChunks = append(state.readyChunks, isReady)
	}
}

// verifyContains checks how many chunks a receiver reports as available.
func (or *deferredOfferOracle) verifyContains(n *world.Node, e *effects.Deliver, c *pd.Command) {
	state := or.stateOf(n)
	ids := or.w.Jobs[c.Job].KeyNumbers
	if e.Code != effects.OK || !n.KeepsOffers {
		return
	}
	or.countJudged(checkContains)
	if int(e.Hits) > len(ids) {
		or.fail(checkContains, "node %d reports %d available chunks for ticket %d (contains), and the job has %d",
			n.AsSubject(), e.Hits, oracle.Ticket(e.Ticket), len(ids))
		return
	}
	for i, id := range ids {
		_, isReady := pd.ReadyAt(n, or.w.Keys[id])
		mayHave, altered := isReady || state.readyChunks[i], false
		for m := range state.offers {
			k := &state.offers[m]
			altered = altered || k.altered && or.mayBeKept(k)
			mayHave = mayHave || or.mayBeKept(k) &&
				slices.ContainsFunc(k.chunks, func(x offeredChunk) bool { return x.id == id && !x.consumed })
		}
		switch {
		case i < int(e.Hits) && !mayHave && !altered:
			or.fail(checkContains,
				"node %d reports chunk %d of ticket %d (contains), key %d, as available, which is neither ready nor in any "+
					"offer in force",
				n.AsSubject(), i, oracle.Ticket(e.Ticket), oracle.Key(id))
		case i == int(e.Hits) && (isReady && state.readyChunks[i] || or.isPromised(n, id)): // The chunk may have become ready later in the step.
			or.fail(checkContains,
				"node %d reports chunk %d of ticket %d (contains), key %d, as missing, which is ready or was promised "+
					"for longer",
				n.AsSubject(), i, oracle.Ticket(e.Ticket), oracle.Key(id))
		}
	}
}

// verifyLocations compares the machine's number of chunks in deferred offers with the smallest and the largest number
// that are possible.
func (or *deferredOfferOracle) verifyLocations(n *world.Node, s *rank.Stats) {
	state := or.stateOf(n)
	mustHave, mayHave := 0, 0
	for i := range state.offers {
		k := &state.offers[i]
		if k.ended = k.ended || k.ending && !n.Busy; !or.mayBeKept(k) {
			continue
		}
		certain := or.mustBeKept(n, k)
		for m := range k.chunks {
			if !k.chunks[m].consumed {
				mayHave++
			}
			if certain && !k.chunks[m].uncertain {
				mustHave++
			}
		}
	}
	switch {
	case n.Draining:
		or.countVoid(checkLocationsPromised)
	case n.Busy: // The machine may be dropping offers.
		or.countVoid(checkLocationsReadable)
	case mayHave > 0:
		or.countJudged(checkLocationsPromised, checkLocationsReadable)
	}
	switch {
	case n.Draining:
	case s.Locations < mustHave:
		or.fail(checkLocationsPromised, "node %d keeps %d chunks of deferred offers, and must still keep %d", n.AsSubject(), s.Locations,
			mustHave)
	case s.Locations > mayHave && !n.Busy:
		or.fail(checkLocationsReadable, "node %d keeps %d chunks of deferred offers, and only %d can still be read", n.AsSubject(), s.Locations,
			mayHave)
	}
	if len(or.oracles().fetches.stateOf(n).fetches) == 0 {
		state.offers = slices.DeleteFunc(state.offers, func(k deferredOffer) bool { return !or.mayBeKept(&k) })
	}
}

// verifyDone checks the message that reports an offer's end to the sender: an offer that was made once is reported as
// ended once.
func (or *deferredOfferOracle) verifyDone(n *world.Node, m *protocol.PullDoneSignal, accepted bool) {
	if !m.HasExt {
		return
	}
	for i := range or.stateOf(n).offers {
		k := &or.stateOf(n).offers[i]
		if k.pullID != m.PullID || protocol.UUID(k.peer) != m.Ext.To {
			continue
		}
		or.countJudged(checkDoneEarly)
		if !n.Draining && or.mustBeKept(n, k) && slices.ContainsFunc(k.chunks, func(c offeredChunk) bool { return !c.uncertain }) {
			or.fail(checkDoneEarly, "node %d reports the end of grant %d although chunks of the offer are still promised",
				n.AsSubject(), k.owner.Node.GrantSubject(k.lease.ID))
		}
		k.ended = true
	}
	for _, o := range or.w.Nodes[:or.w.RankCount] {
		if !pd.IsNameOf(o, effects.Incarnation(m.Ext.To)) {
			continue
		}
		g := o.Pool.FindReadLease(effects.GrantID(m.Ext.Grant))
		if g == nil || !pd.IsNameOf(n, g.Peer) {
			continue
		}
		or.countJudged(checkDoneOnce)
		g.Lease.DoneSent = true
		if accepted {
			g.Lease.DoneCount++
		}
		if g.Lease.DoneCount > g.Lease.OfferCount { // A sender that offers again has not received the end, and is notified again.
			or.fail(checkDoneOnce, "node %d reports the end of grant %d more often than the grant was offered",
				n.AsSubject(), o.GrantSubject(g.ID))
		}
	}
}

// countCoincidences counts notable coincidences, for the coverage of the run, when an offer of grant g reaches the
// receiver. The grant has already counted the offer.
func (or *deferredOfferOracle) countCoincidences(n, owner *world.Node, g *world.Grant) {
	if g.Lease.OfferCount > 1 && !g.Lease.DoneSent && n.Draining {
		pd.CountConjunction(&or.w.Result, pd.OfferRetriedInDrain)
	}
	if g.Lease.OfferCount > 1 && or.w.ReadClock(owner) > g.ExpiresAt {
		pd.CountConjunction(&or.w.Result, pd.OfferRetriedAfterLease)
	}
	for _, t := range or.w.Active.Transfers.Items {
		if t.Read && t.LocalInUse && t.Local == n.Pool && t.Link.Peer != pd.InfoOf(owner).Incarnation && t.Link.To == owner.ID {
			pd.CountConjunction(&or.w.Result, pd.ReadOfFormerIncarnation)
			return
		}
	}
}
