package ledger

import (
	"cmp"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// Each promise to keep a chunk for a request is followed individually, from the landing or the reply that makes the
// promise to the read, the message or the instant that ends the promise. If something about a promise is uncertain
// (rule M7: the table was nearly full, the request was abandoned once, a fetch may have begun), only that promise
// becomes uncertain.

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkPromisesKept   = oracle.NewCheck("S9", "chunks kept for promised requests")
	checkClaimsNeeded   = oracle.NewCheck("L2", "claims beyond the promises")
	checkLapseCount     = oracle.NewCheck("S20", "numbers of lapsed promises")
	checkLayerConfirmed = oracle.NewCheck("S9", "confirmations of layers")
)

// promiseOracle judges for how many requests, and for how long, a machine keeps each chunk.
type promiseOracle struct {
	oracleBase
	perIncarnation[promiseState]
}

func (*promiseOracle) subscribe(l *oracle.Subscriptions[promiseOracle]) {
	oracle.On(l, func(o *promiseOracle, c *oracle.Call, e *effects.Landed) { o.stateOf(o.nodeOf(c)).landing = e })
	oracle.On(l, func(o *promiseOracle, c *oracle.Call, e *effects.Verify) { o.recordVerify(o.nodeOf(c), e) })
	oracle.On(l, func(o *promiseOracle, c *oracle.Call, e *effects.Verified) { o.handleVerified(o.nodeOf(c), e) })
	oracle.On(l, func(o *promiseOracle, c *oracle.Call, e *effects.Confirm) { o.handleConfirm(o.nodeOf(c), e.Code) })
	oracle.On(l, func(o *promiseOracle, _ *oracle.Call, e pd.CommandReceived) {
		switch e.Command.Kind {
		case plan.CommandFetch:
			o.recordFetch(e.Node, e.Command.Job)
		case plan.CommandAbandon:
			o.recordAbandon(e.Node, e.Command.Job)
		}
	})
	oracle.On(l, func(o *promiseOracle, _ *oracle.Call, e pd.CommandOutcome) {
		if e.Command.Kind == pd.WantGiveUp && e.Effect.Code == effects.OK {
			o.endGivenUpPromises(e.Node, e.Command)
		}
	})
	oracle.On(l, func(o *promiseOracle, _ *oracle.Call, e pd.GetOutcome) {
		o.endReadPromises(e.Node, e.Command, len(e.Effect.Pages))
		o.verifyMissed(e.Node, e.Effect, e.Command)
	})
	oracle.On(l, func(o *promiseOracle, _ *oracle.Call, e world.FactObserved) { o.handleFact(e.Node, e.Effect) })
	oracle.On(l, func(o *promiseOracle, _ *oracle.Call, e stepCounted) { o.afterStep(e.node, e.stats.Claims) })
}

// promiseState records the promises of an incarnation of a node.
type promiseState struct {
	promises        []chunkPromise                   `snap:"skip"` // in the order in which machines make promises
	grantRequests   map[effects.GrantID]uint64       `snap:"skip"` // by grant: the request that the grant is for
	grantChunks     map[effects.GrantID][]uint32     `snap:"skip"` // by grant: the chunks, in the order of the grant's pages
	layerGrants     map[effects.GrantID]bool         `snap:"skip"` // grants for layers of chunks
	pageChunks      map[effects.GrantID][]uint32     `snap:"skip"` // by grant for layers: the chunk of each page
	expired         []expiredPromise                 `snap:"skip"` // promises that expired
	fetchedRequests []uint64                         `snap:"skip"` // requests with a fetch, whose claims may end at any time
	claimCount      int                              `snap:"skip"` // the machine's count of claims after the last step
	unknownGrant    bool                             `snap:"skip"` // a grant was made for unknown chunks
	touched         []uint32                         `snap:"scratch"`
	landing         *effects.Landed                  `snap:"scratch"` // the event of the last landing
	lastCommit      effects.GrantID                  `snap:"scratch"` // the grant that a sender committed last
	verifies        map[effects.Corr]effects.GrantID `snap:"skip"`    // by comparison of pages: the grant that was committed
	verified        []effects.Page                   `snap:"scratch"` // pages of the last comparison that have their checksums
}

func (s *promiseState) clearForReuse() {
	*s = promiseState{promises: s.promises[:0], grantRequests: world.RecycleMap(s.grantRequests),
		grantChunks: world.RecycleMap(s.grantChunks),
		layerGrants: world.RecycleMap(s.layerGrants), pageChunks: world.RecycleMap(s.pageChunks), expired: s.expired[:0],
		fetchedRequests: s.fetchedRequests[:0], touched: s.touched[:0], verifies: world.RecycleMap(s.verifies), verified: s.verified[:0]}
}

// handleFact takes a fact about chunks that a machine observes.
func (or *promiseOracle) handleFact(n *world.Node, e *effects.Observe) {
	//exhaustive:ignore
	switch e.Fact { // Other facts are not about promises.
	case effects.FactReady:
		k, ok := or.facts().keyOfHash(n, e.ID)
		if _, layers := or.w.Setup.ChunkOf(k); ok && layers > 0 {
			or.recordWholeChunk(n, k)
		}
	case effects.FactLapsed:
		or.verifyLapse(n, e)
	}
}

// chunkPromise is a promise to keep a chunk for a request.
type chunkPromise struct {
	chunk       uint32
	request     uint64 // a hash of the id of the request; 0: the request has no id
	until       effects.Time
	latestUntil effects.Time // the latest value that until may have
	uncertain   bool         // the promise may have ended, or may never have been made
	mustEnd     bool         // the promise must end before the machine has no more work
}

// requestHash returns a hash of a request's id, and 0 for an empty id.
func requestHash(id []byte) uint64 {
	if len(id) == 0 {
		return 0
	}
	return contentHash('r', nil, id, 0)
}

// seesAllPromises reports whether the oracle sees each promise of n. Where chunks are read instead of pushed, the
// oracle does not see all promises.
func (or *promiseOracle) seesAllPromises(n *world.Node) bool {
	return len(or.w.SourcePlan.Topology.Pull) == 0 && !or.w.Flows.AnyRequestsChunks() && !or.stateOf(n).unknownGrant
}

// recordPromise records that n keeps a chunk for a request from now on. If certain is false, the promise may not have
// been made.
func (or *promiseOracle) recordPromise(n *world.Node, chunk uint32, request uint64, certain bool) {
	state := or.stateOf(n)
	state.touched = append(state.touched, chunk)
	until := or.w.ReadClock(n).Add(pd.InfoOf(n).Cfg.ClaimTTL)
	if n.KeepsOffers && (request == 0 || slices.Contains(state.fetchedRequests, request)) {
		certain = false
	}
	state.removeExpired(chunk, request, certain)
	if request != 0 {
		for i := range state.promises {
			r := &state.promises[i]
			if r.chunk != chunk || r.request != request {
				continue
			}
			r.latestUntil = until
			if r.uncertain = !certain; certain { // The promise's time begins anew.
				r.until = until
			}
			r.mustEnd = false
			return
		}
	}
	state.promises = append(state.promises, chunkPromise{chunk, request, until, until, !certain, false})
}

// claimFits reports whether a further claim on a chunk certainly fits into the table: the first claim on a chunk always
// fits, and any claim fits into a table that is less than half full.
func (or *promiseOracle) claimFits(n *world.Node, chunk uint32) bool {
	state := or.stateOf(n)
	if or.seesAllPromises(n) && !or.hasPromise(n, chunk) {
		return true
	}
	limit := cmp.Or(int(pd.InfoOf(n).Cfg.ClaimsMax), 8*int(pd.InfoOf(n).Cfg.Pages))
	return 2*(state.claimCount+len(state.touched))+1 <= limit
}

// hasPromise reports whether n has promised a chunk to any request, and the promise may be in force.
func (or *promiseOracle) hasPromise(n *world.Node, chunk uint32) bool {
	return slices.ContainsFunc(or.stateOf(n).promises, func(r chunkPromise) bool { return r.chunk == chunk })
}

// recordReply takes a reply to an allocation request, and the grant that was made with the reply.
func (or *promiseOracle) recordReply(n *world.Node, w *pendingRequest, grant effects.GrantID, stored bool) {
	if or.oracles().domains.isForeignRequest(w.request) {
		return // It is about other chunks with the same keys.
	}
	t := or.facts()
	state, m, reply := or.stateOf(n), &t.request.message, &t.reply.message
	if w.keyCount == 0 || w.offerGrant != 0 || !t.hasRequest || !t.hasReply {
		state.unknownGrant = state.unknownGrant || grant != 0
		return
	}
	if reply.AllocFailed || reply.HasExt && reply.Ext.Code != 0 || grant == 0 && len(reply.RemoteIndexes) > 0 {
		return // Nothing was promised, or the reply repeats an earlier one.
	}
	request := requestHash(m.RequestID)
	if m.HasExt {
		request = requestHash(m.Ext.Request)
	}
	if m.HasExt && m.Ext.Layers > 0 {
		or.recordLayerReply(n, request, grant)
		return
	}
	var newChunks []uint32
	for i, key := range m.Keys {
		if slices.ContainsFunc(m.Keys[:i], func(o []byte) bool { return string(o) == string(key) }) {
			continue
		}
		chunk, _ := or.w.Keys.NumberOf(key)
		if slices.Contains(reply.AlreadySent, int64(i)) {
			or.recordPromise(n, chunk, request, true)
		} else {
			newChunks = append(newChunks, chunk)
		}
	}
	if stored && !n.Draining {
		for _, chunk := range newChunks {
			or.recordPromise(n, chunk, request, !or.wasAbandoned(n, request) && or.claimFits(n, chunk))
		}
	}
	if grant == 0 {
		return
	}
	if state.grantChunks == nil {
		state.grantChunks, state.grantRequests = map[effects.GrantID][]uint32{}, map[effects.GrantID]uint64{}
	}
	state.grantChunks[grant], state.grantRequests[grant] = newChunks, request
	if or.w.Conditions.Leased && or.w.Setup.Rank.TrustUncommitted && w.peer == (effects.Incarnation{}) {
		g := n.Grants[grant]
		for i, chunk := range newChunks { // If the chunk is present already, the sender's pages are not used.
			p, ready := pd.ReadyAt(n, or.w.Keys[chunk])
			isUsed := ready && g != nil && len(g.Pages) == len(newChunks) && p.Index == g.Pages[i].Index && p.Generation == g.Pages[i].Generation
			or.recordPromise(n, chunk, request, isUsed && or.claimFits(n, chunk) && !or.wasAbandoned(n, request))
		}
	}
}

// recordLanded records that pages of a grant are whole. If pages is nil, all pages of the grant are.
func (or *promiseOracle) recordLanded(n *world.Node, id effects.GrantID, pages []effects.Page, certain bool) {
	state, g := or.stateOf(n), n.Grants[id]
	chunks, layers := state.grantChunks[id], state.layerGrants[id]
	if layers { // recordWholeChunk records the promises of whole chunks. A chunk that was ready before may be promised anew.
		for _, chunk := range chunks {
			if _, ready := pd.ReadyAt(n, or.w.Keys[chunk]); ready && g != nil && !n.Draining {
				or.recordPromise(n, chunk, state.grantRequests[id], false) // The promise may also be made anew.
			}
		}
		or.oracles().bundles.recordLanded(n, id, pages, certain)
		return
	}
	if g == nil || n.Draining {
		return
	}
	if len(chunks) != len(g.Pages) {
		state.unknownGrant = true
		return
	}
	request := state.grantRequests[id]
	for at, p := range g.Pages {
		if pages != nil && !slices.ContainsFunc(pages, func(o effects.Page) bool { return o.Index == p.Index }) {
			continue
		}
		or.recordPromise(n, chunks[at], request, certain && !or.wasAbandoned(n, request) && or.claimFits(n, chunks[at]))
	}
}

// recordVerify records for which grant pages are compared with checksums: for the one whose commit has just arrived.
func (or *promiseOracle) recordVerify(n *world.Node, e *effects.Verify) {
	state := or.stateOf(n)
	if state.verifies == nil {
		state.verifies = map[effects.Corr]effects.GrantID{}
	}
	state.verifies[e.Corr] = state.lastCommit
}

// handleVerified takes the end of a comparison, before the machine lands the pages under the grant.
func (or *promiseOracle) handleVerified(n *world.Node, e *effects.Verified) {
	state := or.stateOf(n)
	state.lastCommit = state.verifies[e.Corr]
	delete(state.verifies, e.Corr)
	state.verified = append(state.verified[:0], e.Pages...)
}

// recordVerified records that a commit has failed because pages have other bytes: the other pages of the grant have
// landed.
func (or *promiseOracle) recordVerified(n *world.Node, id effects.GrantID) {
	if state := or.stateOf(n); len(state.verified) > 0 {
		or.recordLanded(n, id, state.verified, true)
	}
}

// recordLayerReply takes a reply to an allocation request for layers. A layer that is there already is promised with
// all layers of its chunk.
func (or *promiseOracle) recordLayerReply(n *world.Node, request uint64, grant effects.GrantID) {
	state, m, reply := or.stateOf(n), &or.facts().request.message, &or.facts().reply.message
	for _, i := range reply.AlreadySent {
		if i < 0 || i >= int64(len(m.Keys)) {
			continue
		}
		if k, ok := or.w.Keys.NumberOf(m.Keys[i]); ok {
			first, _ := or.w.Setup.ChunkOf(k)
			or.recordPromise(n, first, request, true)
		}
	}
	if grant == 0 {
		return
	}
	if state.layerGrants == nil {
		state.layerGrants = map[effects.GrantID]bool{}
	}
	if state.grantRequests == nil {
		state.grantChunks, state.grantRequests = map[effects.GrantID][]uint32{}, map[effects.GrantID]uint64{}
	}
	state.layerGrants[grant], state.grantRequests[grant] = true, request
	var chunks, pageChunks []uint32
	for i, key := range m.Keys {
		if k, ok := or.w.Keys.NumberOf(key); ok {
			first, _ := or.w.Setup.ChunkOf(k)
			if !slices.Contains(chunks, first) {
				chunks = append(chunks, first)
			}
			if !slices.Contains(reply.AlreadySent, int64(i)) {
				pageChunks = append(pageChunks, first)
			}
		}
	}
	if state.pageChunks == nil {
		state.pageChunks = map[effects.GrantID][]uint32{}
	}
	state.grantChunks[grant], state.pageChunks[grant] = chunks, pageChunks
}

// recordWholeChunk records that all layers of a chunk are here. The chunk is kept for the request of the grant under
// which the last layer has landed.
func (or *promiseOracle) recordWholeChunk(n *world.Node, chunk uint32) {
	state := or.stateOf(n)
	grant := state.lastCommit
	if state.landing != nil {
		grant = state.landing.Grant
	}
	if request, ok := state.grantRequests[grant]; ok && !n.Draining {
		or.recordPromise(n, chunk, request, !or.wasAbandoned(n, request) && or.claimFits(n, chunk))
	}
}

// wasAbandoned reports whether a request was abandoned in this incarnation of n.
func (or *promiseOracle) wasAbandoned(n *world.Node, request uint64) bool {
	if request != 0 {
		for i := range or.w.Jobs {
			if j := &or.w.Jobs[i]; j.AbandonedAt != 0 && j.AbandonedIn == n.Incarnation && requestHash(j.Name) == request {
				return true
			}
		}
	}
	return false
}

// handleConfirm takes the machine's confirmation of a push that has landed.
func (or *promiseOracle) handleConfirm(n *world.Node, code effects.Code) {
	if ev := or.stateOf(n).landing; ev != nil && len(ev.Pages) > 0 {
		if code == effects.OK {
			or.verifyLayers(n, ev)
		}
		or.recordLanded(n, ev.Grant, ev.Pages, code != effects.Withdrawn)
	}
}

// verifyLayers checks that a layer which is confirmed with OK belongs to a chunk that the node is assembling, because
// the sender relies on that. A layer of a chunk that is gone is confirmed as withdrawn.
func (or *promiseOracle) verifyLayers(n *world.Node, ev *effects.Landed) {
	state, g := or.stateOf(n), n.Grants[ev.Grant]
	pageChunks := state.pageChunks[ev.Grant]
	if g == nil || len(pageChunks) == 0 {
		return
	}
	if len(pageChunks) != len(g.Pages) || n.Draining || or.wasAbandoned(n, state.grantRequests[ev.Grant]) {
		or.countVoid(checkLayerConfirmed)
		return
	}
	for at, p := range g.Pages {
		chunk := pageChunks[at]
		if or.facts().wholeKeys[n.ID][chunk] ||
			!slices.ContainsFunc(ev.Pages, func(o effects.Page) bool { return o.Index == p.Index }) {
			continue // The chunk may have been whole, and be gone since.
		}
		mayArrive := pd.MayArrive(n, or.w.Keys[chunk])
		if !mayArrive && n.ResumesAt(or.w.Now) { // The time of the incomplete chunk may have ended after this event was queued.
			or.countVoid(checkLayerConfirmed)
			continue
		}
		if or.countJudged(checkLayerConfirmed); !mayArrive {
			or.fail(checkLayerConfirmed, "node %d confirms a layer of chunk %d under grant %d, and has no layers of that chunk",
				n.AsSubject(), oracle.Key(chunk), n.GrantSubject(ev.Grant))
			return
		}
	}
}

// endReadPromises handles chunks that a reader received, in order. The promises of these chunks to the reader's request
// end. If the request had no promise of a chunk, the oldest promise to a request without an id ends.
func (or *promiseOracle) endReadPromises(n *world.Node, c *pd.Command, pages int) {
	state, j := or.stateOf(n), &or.w.Jobs[c.Job]
	if c.Kind != plan.CommandGet {
		return
	}
	for _, chunk := range j.KeyNumbers[:min(pages, len(j.KeyNumbers))] {
		if first, _ := or.w.Setup.ChunkOf(chunk); first != chunk {
			continue // All layers of a chunk are promised at once.
		}
		state.touched = append(state.touched, chunk)
		ownIndex, unnamedIndex := -1, -1
		uncertain := j.CommandCounts[plan.CommandAbandon] > 0 // A promise of the request may still have been in force.
		for i := range state.promises {
			r := &state.promises[i]
			switch {
			case r.chunk != chunk:
			case r.request == requestHash(j.Name):
				ownIndex, uncertain = i, uncertain || r.uncertain
			case r.request == 0:
				if unnamedIndex < 0 {
					unnamedIndex = i
				}
				uncertain = uncertain || r.uncertain
			}
		}
		switch at := max(ownIndex, -1); {
		case uncertain && (ownIndex < 0 || state.promises[ownIndex].uncertain):
			for i := range state.promises {
				if r := &state.promises[i]; r.chunk == chunk && (r.request == 0 || i == ownIndex) {
					r.uncertain = true
				}
			}
		case at >= 0:
			state.promises = slices.Delete(state.promises, at, at+1)
		case unnamedIndex >= 0:
			state.promises = slices.Delete(state.promises, unnamedIndex, unnamedIndex+1)
		}
	}
}

// endGivenUpPromises ends the promises to a request that gave up chunks which are ready at n. If the request may have
// had no promise, the oldest promise to a request without an id may have ended.
func (or *promiseOracle) endGivenUpPromises(n *world.Node, c *pd.Command) {
	state, j := or.stateOf(n), &or.w.Jobs[c.Job]
	for i, chunk := range j.KeyNumbers {
		if i < c.From || !or.oracles().deferredOffers.stateOf(n).readyChunks[i] {
			continue
		}
		state.touched = append(state.touched, chunk)
		isOwn := func(r chunkPromise) bool { return r.chunk == chunk && r.request == requestHash(j.Name) }
		certain := slices.ContainsFunc(state.promises, func(r chunkPromise) bool { return isOwn(r) && !r.uncertain })
		state.promises = slices.DeleteFunc(state.promises, isOwn)
		for k := range state.promises {
			if r := &state.promises[k]; r.chunk == chunk && r.request == 0 && !certain {
				r.uncertain = true
			}
		}
	}
}

// recordFetch records a fetch of a request. The claims of the request end when the fetch begins.
func (or *promiseOracle) recordFetch(n *world.Node, job int) {
	state, request := or.stateOf(n), requestHash(or.w.Jobs[job].Name)
	state.fetchedRequests = append(state.fetchedRequests, request)
	for i := range state.promises {
		if r := &state.promises[i]; r.request == 0 || r.request == request {
			r.uncertain = true
		}
	}
}

// recordAbandon ends the promises to a request as soon as the machine has no more work. Until then a promise may still
// expire.
func (or *promiseOracle) recordAbandon(n *world.Node, job int) {
	state, request := or.stateOf(n), requestHash(or.w.Jobs[job].Name)
	for i := range state.promises {
		if r := &state.promises[i]; r.request == request {
			state.touched = append(state.touched, r.chunk)
			r.uncertain, r.mustEnd = true, true
		}
	}
}

// verifyLapse checks that the number of promises that the machine reports as expired is right, and ends the promises.
func (or *promiseOracle) verifyLapse(n *world.Node, e *effects.Observe) {
	state := or.stateOf(n)
	chunk, ok := or.facts().keyOfHash(n, e.ID)
	if !ok { // A chunk of a stranger, whose promises are not followed. Their records take the place of older ones.
		for range e.Count {
			or.recordExpired(n, expiredPromise{chunk: noChunk, expiredAt: or.w.ReadClock(n)})
		}
		return
	}
	if or.endPartially(n, chunk, int(e.Count)) {
		return
	}
	certain, uncertain, now := 0, 0, or.w.ReadClock(n)
	state.promises = slices.DeleteFunc(state.promises, func(r chunkPromise) bool {
		if r.chunk != chunk || r.until > now {
			return false
		}
		or.recordExpired(n, expiredPromise{chunk, r.request, now, r.uncertain || r.latestUntil > now})
		if r.uncertain {
			uncertain++
		} else {
			certain++
		}
		return r.latestUntil <= now
	})
	state.touched = append(state.touched, chunk)
	if !or.seesAllPromises(n) || n.Draining {
		or.countVoid(checkLapseCount)
		return
	}
	if or.countJudged(checkLapseCount); int(e.Count) < certain || int(e.Count) > certain+uncertain {
		or.fail(checkLapseCount,
			"node %d reports that %d promises of chunk %d have lapsed; %d have, and possibly %d more",
			n.AsSubject(), e.Count, oracle.Key(chunk), certain, uncertain)
	}
}

// afterStep compares the promises with the claims that the machine has.
func (or *promiseOracle) afterStep(n *world.Node, claims int) {
	state := or.stateOf(n)
	state.claimCount = claims
	if n.Draining {
		state.promises, state.touched = state.promises[:0], state.touched[:0]
		return
	}
	or.removeOverdue(n)
	for _, chunk := range state.touched {
		or.compareClaims(n, chunk)
	}
	if !n.Busy {
		state.touched = state.touched[:0]
	}
}

// compareClaims checks the number of the machine's claims on a chunk: at least the number of certain promises (S9), and
// at most the number of possible promises (L2).
func (or *promiseOracle) compareClaims(n *world.Node, chunk uint32) {
	if or.w.Failure != nil || or.w.Keys[chunk] == nil {
		return
	}
	certain, uncertain := 0, 0
	for _, r := range or.stateOf(n).promises {
		switch {
		case r.chunk != chunk:
		case r.uncertain:
			uncertain++
		default:
			certain++
		}
	}
	claims := pd.ClaimsOf(n, or.w.Keys[chunk])
	if certain > 0 {
		or.countJudged(checkPromisesKept)
	} else {
		or.countVoid(checkPromisesKept)
	}
	if claims < certain {
		or.fail(checkPromisesKept, "node %d keeps chunk %d for %d requests, and has promised the chunk to %d",
			n.AsSubject(), oracle.Key(chunk), claims, certain)
		return
	}
	if !or.seesAllPromises(n) || n.Busy { // A busy machine may be ending claims.
		or.countVoid(checkClaimsNeeded)
		return
	}
	if or.countJudged(checkClaimsNeeded); claims > certain+uncertain {
		or.fail(checkClaimsNeeded, "node %d keeps chunk %d for %d requests, and only %d still wait for the chunk",
			n.AsSubject(), oracle.Key(chunk), claims, certain+uncertain)
	}
}
