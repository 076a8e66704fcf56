package ledger

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// A receiver assembles a chunk that arrives layer by layer in a bundle. The oracle follows each bundle from the grant that
// opens it to its end: the last layer lands, or the machine reports that the chunk is lost. A bundle without progress ends
// after BundleTTL, and each bundle ends after BundleMaxTTL.

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkBundleOverdue = oracle.NewCheck("S17", "incomplete chunks whose time is over")
	checkBundleEarly   = oracle.NewCheck("S18", "incomplete chunks that end by time alone")
	checkBundleLost    = oracle.NewCheck("L2", "incomplete chunks of which a layer is lost")
	checkBundleOlder   = oracle.NewCheck("S23", "incomplete chunks that an older message ends")
	checkBundleShare   = oracle.NewCheck("S18", "shares of incomplete chunks")
	checkWholeAtOnce   = oracle.NewCheck("S22", "layers granted to a receiver of whole chunks")
)

// bundleOracle judges how many incomplete chunks a receiver keeps, and for how long.
type bundleOracle struct {
	oracleBase
	perIncarnation[bundleState]
}

func (*bundleOracle) subscribe(l *oracle.Subscriptions[bundleOracle]) {
	oracle.On(l, func(o *bundleOracle, _ *oracle.Call, e world.SteppingMachine) {
		_, isTick := e.Event.(*effects.Tick)
		o.stateOf(e.Node).byTime = isTick && !e.Node.Busy
		if x, ok := e.Event.(*effects.Revoked); ok {
			o.recordGrantEnd(e.Node, x.Grant)
		}
	})
	oracle.On(l, func(o *bundleOracle, _ *oracle.Call, e messageReceived) { o.recordOpener(e.node, e.body) })
	oracle.On(l, func(o *bundleOracle, _ *oracle.Call, e world.FactObserved) {
		switch e.Effect.Fact { //nolint:exhaustive // Other facts are not about incomplete chunks.
		case effects.FactReady:
			o.endBundle(e.Node, e.Effect, false)
		case effects.FactFillLost:
			o.endBundle(e.Node, e.Effect, true)
		}
	})
	oracle.On(l, func(o *bundleOracle, _ *oracle.Call, e stepCounted) {
		o.verifyCount(e.node, e.stats)
		o.stateOf(e.node).opener = opening{}
	})
}

// bundleState records the bundles of an incarnation of a node.
type bundleState struct {
	bundles []openBundle `snap:"skip"` // in the order in which they were opened
	byTime  bool         `snap:"skip"` // this step handles deadlines, and continues no work of an earlier step
	unknown bool         `snap:"skip"` // a bundle of a chunk was opened that no job has
	// ambiguous says that a peer had two bundles of a chunk, for two requests or epochs, so that the end of one of them may
	// have been taken for the other's end. It is cleared when the node has no bundles.
	ambiguous bool    `snap:"skip"`
	opener    opening `snap:"skip"` // the message of this step, if it opens chunks
}

// opening identifies a message that opens chunks. The zero value is none.
type opening struct {
	peer      effects.Incarnation
	request   uint64
	epoch     uint32
	operation uint64
}

func (s *bundleState) clearForReuse() { *s = bundleState{bundles: s.bundles[:0]} }

// openBundle is a bundle that is not known to have ended.
type openBundle struct {
	peer       effects.Incarnation
	request    uint64
	chunk      uint32 // the key of the first layer
	openedAt   effects.Time
	progressAt effects.Time      // of the last grant, or the last layer that has landed
	frozen     int64             // how long the node had been frozen at the last progress
	landed     map[uint32]bool   // the layers that have landed
	grants     []effects.GrantID // under which the layers are written
	opener     opening           // the message that opened the bundle
	isLost     bool              // a layer did not land under a grant that has ended: the chunk can never become whole
	uncertain  bool              // there may be a further end, or progress that the oracle does not see
}

// deadline returns when the bundle ends, by the clock of the node.
func (b *openBundle) deadline(cfg *rank.Config) effects.Time {
	return min(b.progressAt.Add(cfg.BundleTTL), b.openedAt.Add(cfg.BundleMaxTTL))
}

// recordGrant records a reply to a request for layers, with a grant. The request and the reply are decoded.
func (or *bundleOracle) recordGrant(n *world.Node, w *pendingRequest, id effects.GrantID) {
	state, m, reply, cfg := or.stateOf(n), &or.facts().request.message, &or.facts().reply.message, &pd.InfoOf(n).Cfg
	if !or.facts().hasRequest || !or.facts().hasReply {
		state.unknown = true
		return
	}
	request, now := requestHash(m.Ext.Request), or.w.ReadClock(n)
	layers := map[uint32]uint32{} // by chunk, the number of layers that the message names
	opened := 0
	for i, key := range m.Keys {
		k, known := or.w.Keys.NumberOf(key)
		first, layerCount := or.w.Setup.ChunkOf(k)
		if !known || layerCount == 0 {
			state.unknown = true
			continue
		}
		if slices.Contains(reply.AlreadySent, int64(i)) {
			continue
		}
		layers[first]++
		at := state.findBundle(w.peer, request, first, effects.GrantID(m.Ext.Opened))
		if at >= 0 && m.Ext.Opened == 0 && !slices.Contains(state.bundles[at].grants, id) {
			state.bundles[at].uncertain, state.ambiguous = true, true // Superseded by a later epoch, or by a later operation; its end is reported.
			at = -1
			for i := range state.bundles {
				if b := &state.bundles[i]; b.peer == w.peer && b.request == request && b.chunk == first && slices.Contains(b.grants, id) {
					at = i
				}
			}
		}
		if at < 0 {
			at = len(state.bundles)
			state.bundles = append(state.bundles, openBundle{peer: w.peer, request: request, chunk: first, openedAt: now,
				opener: opening{w.peer, request, m.Ext.Epoch, m.Ext.Operation}})
			opened++
		}
		b := &state.bundles[at]
		if b.progressAt, b.frozen = now, n.FrozenTime; !slices.Contains(b.grants, id) {
			b.grants = append(b.grants, id)
		}
	}
	if cfg.WholeChunks {
		or.countJudged(checkWholeAtOnce)
		for _, count := range layers {
			if count < cfg.Layers {
				or.fail(checkWholeAtOnce, "node %d accepts %d of %d layers of a chunk, and accepts only whole chunks",
					n.AsSubject(), count, cfg.Layers)
				return
			}
		}
	}
	if opened > 0 {
		or.verifyShare(n, w.peer)
	}
}

// findBundle returns the index of a peer's bundle of a chunk for a request, or -1. Of several such bundles, the bundle that
// a request continues has the grant under which the first layers were written. Example: a message of a request ended both
// the request's bundle and, as far as the oracle sees, possibly that of another request. The request opened the chunk
// again, and continues the new bundle.
func (s *bundleState) findBundle(peer effects.Incarnation, request uint64, chunk uint32, opened effects.GrantID) int {
	found := -1
	for i := range s.bundles {
		b := &s.bundles[i]
		if b.peer != peer || b.request != request || b.chunk != chunk {
			continue
		}
		if slices.Contains(b.grants, opened) {
			return i
		}
		if found < 0 {
			found = i
		}
	}
	return found
}

// verifyShare checks, when bundles were opened, that the peer has no more bundles than the peer leaves free.
func (or *bundleOracle) verifyShare(n *world.Node, peer effects.Incarnation) {
	state, ofPeer, total := or.stateOf(n), 0, 0
	for i := range state.bundles {
		if b := &state.bundles[i]; !b.uncertain && or.w.ReadClock(n) < b.deadline(&pd.InfoOf(n).Cfg) {
			if total++; b.peer == peer {
				ofPeer++
			}
		}
	}
	limit := int(pd.InfoOf(n).Cfg.BundlesMax)
	if limit == 0 || total > pd.StatsOf(n).Bundles {
		or.countVoid(checkBundleShare) // The shares of pages apply, or one of these chunks has ended without a report.
		return
	}
	// The last bundle was opened when the peer had no more than it left free.
	if or.countJudged(checkBundleShare); ofPeer+total > limit+1 {
		or.fail(checkBundleShare, "node %d has %d incomplete chunks of a peer, and %d in all, in a table of %d",
			n.AsSubject(), ofPeer, total, limit)
	}
}

// mayExceed reports whether the bundles of a request for layers may be more than the peer's share of the table: a peer may
// have no more bundles than the peer leaves free.
func (or *bundleOracle) mayExceed(n *world.Node, s *rank.Stats, w *pendingRequest) bool {
	limit, layers, ofPeer := int(pd.InfoOf(n).Cfg.BundlesMax), int(pd.InfoOf(n).Cfg.Layers), 0
	for i := range or.stateOf(n).bundles {
		if or.stateOf(n).bundles[i].peer == w.peer {
			ofPeer++
		}
	}
	return limit > 0 && layers > 0 && ofPeer+s.Bundles+2*(w.pageCount/layers) > limit+1
}

// recordLanded records that pages under a grant for layers have landed; nil: all pages of the grant.
func (or *bundleOracle) recordLanded(n *world.Node, id effects.GrantID, pages []effects.Page, taken bool) {
	state, g := or.stateOf(n), n.Grants[id]
	if g == nil {
		return
	}
	chunks := or.oracles().promises.stateOf(n).pageChunks[id]
	if len(chunks) != len(g.Pages) {
		state.unknown = true
		return
	}
	for i := range state.bundles {
		b := &state.bundles[i]
		if !slices.Contains(b.grants, id) {
			continue
		}
		for at, p := range g.Pages {
			if chunks[at] != b.chunk || pages != nil && !slices.ContainsFunc(pages, func(o effects.Page) bool { return o.Index == p.Index }) {
				continue
			}
			if b.landed == nil {
				b.landed = map[uint32]bool{}
			}
			b.landed[p.Index] = true
			b.progressAt, b.frozen = or.w.ReadClock(n), n.FrozenTime
			b.uncertain = b.uncertain || !taken
		}
	}
	state.bundles = slices.DeleteFunc(state.bundles, func(b openBundle) bool { // Another copy of the chunk may have come first.
		return taken && len(b.landed) == int(pd.InfoOf(n).Cfg.Layers)
	})
}

// endBundle records the report that a chunk is ready or lost.
func (or *bundleOracle) endBundle(n *world.Node, e *effects.Observe, lost bool) {
	state := or.stateOf(n)
	k, known := or.facts().keyOfHash(n, e.ID)
	if !known || len(state.bundles) == 0 {
		return
	}
	at, same := -1, 0
	for i := range state.bundles {
		if b := &state.bundles[i]; b.peer == e.Peer && b.chunk == k {
			same++
			if at < 0 || b.deadline(&pd.InfoOf(n).Cfg) < state.bundles[at].deadline(&pd.InfoOf(n).Cfg) {
				at = i
			}
		}
	}
	if at < 0 {
		return
	}
	b := state.bundles[at]
	b.uncertain, state.ambiguous = b.uncertain || same > 1, state.ambiguous || same > 1
	for i := range state.bundles {
		if o := &state.bundles[i]; same > 1 && o.peer == e.Peer && o.chunk == k {
			o.uncertain, o.openedAt = true, max(o.openedAt, b.openedAt)
		}
	}
	if !lost && same > 1 {
		return // The landing of the last layer shows which of the bundles is whole.
	}
	state.bundles = slices.Delete(state.bundles, at, at+1)
	if lost {
		or.verifyOlder(n, &b)
		or.verifyEnd(n, &b)
	}
}

// recordOpener records that the message of this step opens chunks.
func (or *bundleOracle) recordOpener(n *world.Node, body []byte) {
	m, ok := or.facts().asRequest(body)
	if !ok || !m.HasExt || m.Ext.Layers == 0 || m.Ext.Opened != 0 || len(m.Ext.Abort) > 0 || n.Busy {
		return
	}
	or.stateOf(n).opener = opening{effects.Incarnation(m.Ext.Incarnation), requestHash(m.Ext.Request), m.Ext.Epoch, m.Ext.Operation}
}

// verifyOlder checks that a bundle does not end because of a message that is older than the message that opened the
// bundle. Example: the network delays an attempt at opening a chunk until the sender has opened the chunk in its next
// operation.
func (or *bundleOracle) verifyOlder(n *world.Node, b *openBundle) {
	x := or.stateOf(n).opener
	if x.operation == 0 || x.peer != b.peer || x.request != b.request {
		return
	}
	now := or.w.ReadClock(n)
	if b.uncertain || b.isLost || now >= b.deadline(&pd.InfoOf(n).Cfg) || slices.ContainsFunc(b.grants, func(id effects.GrantID) bool {
		g := n.Grants[id]
		return g == nil || g.Revoking || now >= g.ExpiresAt
	}) {
		or.countVoid(checkBundleOlder)
		return
	}
	if or.countJudged(checkBundleOlder); x.operation < b.opener.operation && x.epoch <= b.opener.epoch {
		or.fail(checkBundleOlder, "node %d gives up chunk %d because of operation %d, and the newer operation %d has opened it",
			n.AsSubject(), oracle.Key(b.chunk), x.operation, b.opener.operation)
	}
}

// recordGrantEnd records that nothing can be stored under a grant any more. A chunk of which a layer did not land under
// the grant can never become whole.
func (or *bundleOracle) recordGrantEnd(n *world.Node, id effects.GrantID) {
	state, g := or.stateOf(n), n.Grants[id]
	chunks := or.oracles().promises.stateOf(n).pageChunks[id]
	if g == nil || len(chunks) != len(g.Pages) {
		return
	}
	for i := range state.bundles {
		b := &state.bundles[i]
		if b.uncertain || !slices.Contains(b.grants, id) {
			continue
		}
		for at, p := range g.Pages {
			b.isLost = b.isLost || chunks[at] == b.chunk && !b.landed[p.Index]
		}
		if b.isLost {
			or.countJudged(checkBundleLost)
		}
	}
}

// removeLost removes the bundles that can never become whole, and returns their number.
func (s *bundleState) removeLost() int {
	before := len(s.bundles)
	s.bundles = slices.DeleteFunc(s.bundles, func(b openBundle) bool { return b.isLost && !b.uncertain })
	return before - len(s.bundles)
}

// verifyEnd checks a bundle that ends in a step that handles deadlines: its time is over, or that of a grant.
func (or *bundleOracle) verifyEnd(n *world.Node, b *openBundle) {
	state, now := or.stateOf(n), or.w.ReadClock(n)
	if !state.byTime {
		return
	}
	if b.uncertain || n.Draining {
		or.countVoid(checkBundleEarly)
		return
	}
	or.countJudged(checkBundleEarly)
	if now >= b.deadline(&pd.InfoOf(n).Cfg) || slices.ContainsFunc(b.grants, func(id effects.GrantID) bool {
		g := n.Grants[id]
		return now >= g.ExpiresAt && (g.Revoking || isWritable(n.Pool, g)) // Otherwise its layers have landed.
	}) {
		return
	}
	or.fail(checkBundleEarly, "node %d gives up chunk %d %d ns after the last layer, and %d ns after the first: before its time",
		n.AsSubject(), oracle.Key(b.chunk), now.Sub(b.progressAt), now.Sub(b.openedAt))
}

// verifyCount checks, after a step, that the machine has no more bundles than may be in time.
func (or *bundleOracle) verifyCount(n *world.Node, s *rank.Stats) {
	state := or.stateOf(n)
	if n.Busy {
		return
	}
	if s.Bundles == 0 {
		state.bundles, state.ambiguous = state.bundles[:0], false
		return
	}
	if state.unknown || state.ambiguous {
		or.countVoid(checkBundleOverdue)
		return
	}
	if lost := state.removeLost(); lost > 0 {
		if s.Bundles > len(state.bundles) {
			or.fail(checkBundleLost, "node %d has %d incomplete chunks, and a layer of %d of them is lost", n.AsSubject(), s.Bundles, lost)
			return
		}
	}
	now, cfg := or.w.ReadClock(n), &pd.InfoOf(n).Cfg
	state.bundles = slices.DeleteFunc(state.bundles, func(b openBundle) bool {
		end := b.deadline(cfg)
		if b.uncertain {
			end = b.openedAt.Add(cfg.BundleMaxTTL)
		}
		return end.Add(pd.Grace+n.FrozenSince(b.frozen)) < now
	})
	if or.countJudged(checkBundleOverdue); s.Bundles > len(state.bundles) {
		or.fail(checkBundleOverdue, "node %d has %d incomplete chunks, and the time of only %d is not over", n.AsSubject(), s.Bundles,
			len(state.bundles))
	}
}
