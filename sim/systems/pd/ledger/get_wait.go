package ledger

import (
	"bytes"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// A Get waits for the next missing chunk until the deadline, or until the last source of that chunk is lost (L8). A
// source is a fill, a deferred offer, or a request or an offer that waits for memory. When the last source is lost, the
// Get ends in the same step.

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkGetEndsEarly = oracle.NewCheck("L8", "gets that end early")
	checkLostSource   = oracle.NewCheck("L8", "gets without a source")
	checkLostOffer    = oracle.NewCheck("L8", "gets that lost a deferred offer")
	checkWokenDrain   = oracle.NewCheck("L6", "gets in a drain")
	checkWoken        = oracle.NewCheck("L8", "gets whose chunks are ready")
)

// getWaitOracle judges whether Gets wait only while the missing chunks may still arrive, and why Gets end (L8).
type getWaitOracle struct {
	oracleBase
	perIncarnation[getWaitState]
}

func (*getWaitOracle) subscribe(l *oracle.Subscriptions[getWaitOracle]) {
	oracle.On(l, func(o *getWaitOracle, _ *oracle.Call, e pd.CommandReceived) {
		if e.Command.Kind == plan.CommandGet || e.Command.Kind == plan.CommandLookup {
			o.recordGet(e.Node, e.Ticket)
		}
	})
	oracle.On(l, func(o *getWaitOracle, _ *oracle.Call, e pd.GetOutcome) { o.verifyEarlyEnd(e.Node, e.Effect, e.Command) })
	oracle.On(l, func(o *getWaitOracle, _ *oracle.Call, e world.FactObserved) {
		switch e.Effect.Fact {
		case effects.FactFillLost:
			o.recordLost(e.Node, e.Effect.ID)
		case effects.FactAllocRefused:
			o.recordRefusal(e.Node, e.Effect.Code)
		}
	})
	oracle.On(l, func(o *getWaitOracle, _ *oracle.Call, e stepCounted) {
		o.afterStep(e.node)
		if e.node.KeepsOffers {
			o.verifyLostOffers(e.node)
		}
	})
}

// getWaitState records the pending Gets of an incarnation of a node, and the sources that the current step lost.
type getWaitState struct {
	gets        []effects.Ticket // given to the machine, and not yet delivered
	chunkReady  bool             // a chunk became readable in this step
	lostKeys    []uint32         // keys of which a source was lost in this step
	sourceLost  bool             // a source of any key was lost
	unserved    []unservedGet
	refusalCode effects.Code // the code in a report that a request is about to be refused
}

func (s *getWaitState) clearForReuse() { *s = getWaitState{gets: s.gets[:0], lostKeys: s.lostKeys[:0]} }

// recordGet records a Get when its machine receives the command.
func (or *getWaitOracle) recordGet(n *world.Node, t effects.Ticket) {
	or.stateOf(n).gets = append(or.stateOf(n).gets, t)
}

// afterStep checks that no Get goes on waiting in vain.
func (or *getWaitOracle) afterStep(n *world.Node) {
	or.verifyLostSources(n)
	or.verifyWoken(n)
	or.stateOf(n).sourceLost, or.stateOf(n).refusalCode = or.stateOf(n).sourceLost && n.Busy, effects.OK
}

// recordLost records that a fill of a chunk will not complete.
func (or *getWaitOracle) recordLost(n *world.Node, hash uint64) {
	state := or.stateOf(n)
	state.sourceLost = true
	if k, ok := or.facts().keyOfHash(n, hash); ok {
		state.lostKeys = append(state.lostKeys, k)
	}
}

// recordRefusal records that the machine is about to refuse a request or an offer. No source is lost if the code makes
// the sender repeat the message.
func (or *getWaitOracle) recordRefusal(n *world.Node, code effects.Code) {
	if code != effects.Stale && code != effects.Expired {
		or.stateOf(n).refusalCode, or.stateOf(n).sourceLost = code, true
	}
}

// recordRefused records, when the reply to a waiting request or offer is sent, that the request failed, so that a
// source of the chunks is lost. The fact of the refusal precedes the reply. A request that is refused at once was never
// a source of chunks.
func (or *getWaitOracle) recordRefused(n *world.Node, w *pendingRequest) {
	state := or.stateOf(n)
	wasReported := state.refusalCode == effects.OK
	state.refusalCode = effects.OK
	if wasReported || w.isNew || len(w.body) == 0 || len(state.gets) == 0 {
		return
	}
	for _, key := range or.keysOf(w) {
		or.recordLost(n, pd.KeyHashOf(n, key))
	}
}

// keysOf returns the keys that a request or an offer named, and none for one of a peer of another trust domain: what it
// sends is no source of a chunk that an engine gets.
func (or *getWaitOracle) keysOf(w *pendingRequest) [][]byte {
	m, o := &or.facts().pendingAlloc, &or.facts().pendingOffer
	switch {
	case len(w.body) == 0 || or.oracles().domains.isForeignRequest(w.request):
		return nil
	case m.Decode(w.body, &pd.WireLimits) == nil:
		return m.Keys
	case o.Decode(w.body, &pd.WireLimits) == nil:
		return o.Keys
	}
	return nil
}

// verifyEarlyEnd checks a Get that ends short before its deadline: a source was lost in this step, and at least one
// missing chunk has no source left.
func (or *getWaitOracle) verifyEarlyEnd(n *world.Node, e *effects.Deliver, c *pd.Command) {
	wait := min(c.Timeout, pd.InfoOf(n).Cfg.GetWaitMax)
	if e.Code != effects.NotFound && e.Code != effects.Lapsed || wait == 0 || n.Draining {
		return
	}
	receivedAt := c.DueAt - int64(n.LongestSpan(c.Timeout)+pd.Grace)
	remaining := wait - n.ReadingAt(or.w.Now).Sub(n.ReadingAt(receivedAt))
	if remaining <= 0 {
		return
	}
	if e.Code == effects.Lapsed && or.oracles().requestEnds.hasEnded(n, c.Job) {
		// The sender has reported that no more chunks will be sent.
		or.countVoid(checkGetEndsEarly)
		return
	}
	or.countJudged(checkGetEndsEarly)
	if !n.KeepsOffers && !or.stateOf(n).sourceLost {
		or.fail(checkGetEndsEarly, "node %d ends ticket %d (%s) %d ns before its deadline although no source of a missing chunk was lost",
			n.AsSubject(), oracle.Ticket(e.Ticket), c.Kind, remaining)
		return
	}
	j := &or.w.Jobs[c.Job]
	for i := j.KeysIn(e.Hits); i < len(j.Keys); i++ {
		if _, ready := pd.ReadyAt(n, j.Keys[i]); !ready && !or.mayStillCome(n, j.Keys[i], j.KeyNumbers[i]) {
			return
		}
	}
	or.fail(checkGetEndsEarly, "node %d ends ticket %d (%s) %d ns before its deadline although chunk %d may still arrive",
		n.AsSubject(), oracle.Ticket(e.Ticket), c.Kind, remaining, j.KeyNumbers[j.KeysIn(e.Hits)])
}

// mayStillCome reports whether a chunk certainly may still arrive: the sender keeps the chunk for this node, or a
// request or offer that names the chunk waits for pages.
func (or *getWaitOracle) mayStillCome(n *world.Node, key []byte, id uint32) bool {
	queue := or.oracles().queue.stateOf(n)
	names := func(w *pendingRequest) bool {
		return slices.ContainsFunc(or.keysOf(w), func(k []byte) bool { return bytes.Equal(k, key) })
	}
	if n.KeepsOffers && or.oracles().deferredOffers.isPromised(n, id) {
		return true
	}
	for i := range queue.pending {
		if w := &queue.pending[i]; w.keyCount > 0 && !w.reading && w.conn != 0 && names(w) {
			return true
		}
	}
	return false
}

// verifyLostSources checks each Get whose next chunk lost a source in this step: if no source is left, the Get must not
// go on waiting.
func (or *getWaitOracle) verifyLostSources(n *world.Node) {
	state := or.stateOf(n)
	if !n.Busy {
		for _, x := range state.unserved {
			or.failIfUnserved(n, x.ticket, x.id)
		}
		state.unserved = state.unserved[:0]
	}
	if len(state.lostKeys) == 0 {
		return
	}
	for _, t := range state.gets {
		i := or.firstMissing(n, t)
		if i < 0 {
			continue
		}
		// A chunk that was ready before may be gone since. Then the Get is past this chunk, and waits for a later
		// chunk.
		j := &or.w.Jobs[or.w.Commands[t-1].Job]
		switch id := j.KeyNumbers[i]; {
		case !slices.Contains(state.lostKeys, id) || or.facts().wholeKeys[n.ID][id]:
		case n.Busy: // The machine goes on in its next step. A source that is left now may end without a report.
			if !pd.MayArrive(n, j.Keys[i]) {
				state.unserved = append(state.unserved, unservedGet{t, id})
			}
		default:
			or.failIfUnserved(n, t, id)
		}
	}
	state.lostKeys = state.lostKeys[:0]
}

// unservedGet is a Get that waits for a chunk of which a source was lost while the machine had more work.
type unservedGet struct {
	ticket effects.Ticket
	id     uint32
}

// failIfUnserved fails the run if a Get still waits for a chunk that lost a source and has no source left.
func (or *getWaitOracle) failIfUnserved(n *world.Node, t effects.Ticket, id uint32) {
	i := or.firstMissing(n, t)
	if i < 0 {
		return
	}
	j := &or.w.Jobs[or.w.Commands[t-1].Job]
	if j.KeyNumbers[i] != id {
		return
	}
	or.countJudged(checkLostSource)
	if !pd.MayArrive(n, j.Keys[i]) {
		or.fail(checkLostSource, "node %d lets ticket %d (get) wait for chunk %d although the last source of the chunk is lost",
			n.AsSubject(), oracle.Ticket(t), id)
	}
}

// firstMissing returns the first chunk that a pending Get misses, and -1 if there is none or the Get is over.
func (or *getWaitOracle) firstMissing(n *world.Node, t effects.Ticket) int {
	if or.w.Commands[t-1].Finished {
		return -1
	}
	return slices.IndexFunc(or.w.Jobs[or.w.Commands[t-1].Job].Keys, func(k []byte) bool { return !or.isReady(n, k) })
}

// verifyLostOffers checks that no Get goes on waiting for a chunk if the last source was a deferred offer and the offer
// ended in this step.
func (or *getWaitOracle) verifyLostOffers(n *world.Node) {
	if n.Busy {
		return
	}
	for _, t := range or.stateOf(n).gets {
		c := &or.w.Commands[t-1]
		if c.Finished || c.DueAt == 0 {
			continue
		}
		j, lastFrom := &or.w.Jobs[c.Job], c.From
		for c.From < len(j.Keys) && or.isReady(n, j.Keys[c.From]) {
			c.From++
		}
		if c.From == len(j.Keys) { // A chunk that was here before is gone.
			c.From, c.OfferKept = 0, false
			continue
		}
		if n.LendsChunks && n.IsCache && or.facts().wholeKeys[n.ID][j.KeyNumbers[c.From]] { // The chunk was here, so the Get may be past it.
			or.countVoid(checkLostOffer)
			c.OfferKept = false
			continue
		}
		kept := or.oracles().deferredOffers.isPromised(n, j.KeyNumbers[c.From])
		if c.OfferKept && c.From == lastFrom && !kept {
			or.countJudged(checkLostOffer)
		}
		if c.OfferKept && c.From == lastFrom && !kept && !pd.MayArrive(n, j.Keys[c.From]) {
			or.fail(checkLostOffer,
				"node %d lets ticket %d (%s) wait for chunk %d although the last source of the chunk, a deferred offer, has ended",
				n.AsSubject(), oracle.Ticket(t), c.Kind, j.KeyNumbers[c.From])
			return
		}
		c.OfferKept = kept
	}
}

// isReady reports whether the chunk with the given key is ready at n.
func (or *getWaitOracle) isReady(n *world.Node, key []byte) bool {
	_, ready := pd.ReadyAt(n, key)
	return ready
}

// verifyWoken checks that a Get is delivered in the step that makes the last missing chunk readable, and that a drain
// leaves no Get waiting.
func (or *getWaitOracle) verifyWoken(n *world.Node) {
	state := or.stateOf(n)
	if n.Busy { // There may be many Gets: the machine goes on in its next step.
		return
	}
	if !state.chunkReady && !n.Draining || len(state.gets) == 0 {
		state.chunkReady = false
		return
	}
	state.chunkReady = false
	state.gets = slices.DeleteFunc(state.gets, func(t effects.Ticket) bool { return or.w.Commands[t-1].Finished })
	if n.Draining {
		or.countJudged(checkWokenDrain)
	}
	for _, t := range state.gets {
		if n.Draining {
			or.fail(checkWokenDrain, "node %d drains and lets ticket %d (get) wait", n.AsSubject(), oracle.Ticket(t))
			return
		}
		j := &or.w.Jobs[or.w.Commands[t-1].Job]
		or.countJudged(checkWoken)
		ready := 0
		for _, k := range j.Keys {
			if _, ok := pd.ReadyAt(n, k); ok {
				ready++
			}
		}
		if ready == len(j.Keys) {
			or.fail(checkWoken, "node %d lets ticket %d (get) wait although all of its %d chunks are ready",
				n.AsSubject(), oracle.Ticket(t), ready)
			return
		}
	}
}
