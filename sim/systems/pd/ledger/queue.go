package ledger

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkGrantedOnce    = oracle.NewCheck("S23", "grants, one per operation")
	checkPeerOrder      = oracle.NewCheck("L7", "requests of a peer in order")
	checkOvertaken      = oracle.NewCheck("L7", "requests overtaken by other peers")
	checkCommit         = oracle.NewCheck("S12", "commits of grants")
	checkCommitInTime   = oracle.NewCheck("S24", "commits in time")
	checkRepliedInTime  = oracle.NewCheck("L8", "replies in time")
	checkWithdrawnOffer = oracle.NewCheck("L2", "withdrawn offers")
	checkNeedlessWait   = oracle.NewCheck("L7", "requests that wait for free pages")
)

// queueOracle judges the allocation queue: which requests wait for pages, and in which order they are served (rule M9,
// L7), that each gets a reply in time (L8), and that commits are accepted only for grants in force (S12, S24).
type queueOracle struct {
	oracleBase
	perIncarnation[QueueState]
}

func (*queueOracle) subscribe(l *oracle.Subscriptions[queueOracle]) {
	oracle.On(l, func(o *queueOracle, _ *oracle.Call, e messageReceived) {
		o.recordMessage(e.node, e.request, e.channel, e.conn, e.body)
	})
	oracle.On(l, func(o *queueOracle, _ *oracle.Call, e world.SendingReply) { o.handleReply(e.Node, e.Request, e.Body) })
	oracle.On(l, func(o *queueOracle, _ *oracle.Call, e world.ConnLost) { o.removeConn(e.Node, e.Conn) })
	oracle.On(l, func(o *queueOracle, _ *oracle.Call, e world.TransferDone) {
		if e.Transfer.Read {
			o.recordReadEnd(e.Node, e.Transfer)
		}
	})
	oracle.On(l, func(o *queueOracle, _ *oracle.Call, e world.CancellingTransfer) {
		o.recordCancelled(e.Node, e.Transfer)
	})
	oracle.On(l, func(o *queueOracle, _ *oracle.Call, e stepCounted) { o.verifyQueue(e.node, e.stats) })
}

// QueueState records the allocation queue of an incarnation of a node from the point of view of the oracles.
type QueueState struct {
	pending         []pendingRequest // in the order of arrival
	operationGrants map[operationID]effects.GrantID
	newGrant        effects.GrantID    // made in this step and not yet sent in a reply
	storedPages     []effects.Page     `snap:"scratch"` // pages stored from a message since the last reply
	carried         []carriedOperation `snap:"skip"`    // the last operation of each peer whose chunks came with the message
	recordedOffers  []operationID      `snap:"skip"`    // offers that were refused for lack of room, or read; a retry gets the same reply
	newRequest      uint64             // the request that arrived in this step and may have to wait
}

func (s *QueueState) clearForReuse() {
	*s = QueueState{pending: s.pending[:0], operationGrants: world.RecycleMap(s.operationGrants), storedPages: s.storedPages[:0],
		carried: s.carried[:0], recordedOffers: s.recordedOffers[:0]}
}

// pendingRequest is a request that a receiver got and has not replied to yet.
type pendingRequest struct {
	contentHash     uint64              // a digest of the keys that are requested or offered, in order
	request         uint64              `snap:"request"`
	conn            uint64              `snap:"conn"` // the receiver's id of the connection
	peer            effects.Incarnation // zero: a plain sender, which is identified by its connection
	operation       uint64              // zero: every attempt is an operation of its own
	keyCount        int
	tenant          effects.Tenant  // the tenant of the keys
	pageCount       int             // the largest number of pages that the request can need: distinct keys
	dueAt           int64           `snap:"instant"` // when the reply is due
	frozenAtArrival int64           // how long the node had been frozen when the message arrived
	dueAtOnce       bool            // the reply is due in the same step
	commits         bool            // a commit, whose reply may wait for the comparison of pages with checksums
	layers          bool            // the message is about layers, which need pages for all of their chunks
	continued       bool            // some layers of the chunks arrived before, and their pages are promised
	plainKeys       [][]byte        // the keys of a plain sender, where plain senders are trusted
	body            []byte          // the message, if the request can wait
	isNew           bool            // the message arrived in this step
	turn            uint64          `snap:"skip"` // the turn in which the message arrived
	nameKnown       bool            `snap:"skip"` // the message names this incarnation by the name for the peer
	arrivedAt       effects.Time    `snap:"skip"` // when the message arrived, by the receiver's clock
	linkLost        bool            // the link to the peer was lost after the message arrived
	offerGrant      effects.GrantID // the sender's read lease, if the message offers pages
	pullID          protocol.PullID `snap:"skip"` // the id of the offer
	withdrawn       bool            `snap:"skip"` // the offer was taken back
	reading         bool            // the offer has pages, and the chunks are being read
	mayLackPages    bool            // the offer waited for pages at some time, or may have
	mayLackLink     bool            // the offer waited for the link to its pages at some time, or may have
	cancelled       bool            // the read was cancelled
	job             int             `snap:"skip"` // the job of the request, counted from 1
	unwanted        bool            // the request was abandoned during the read
	overtaken       overtakeCounts  // grants to different classes while the request was the first of a class
	carriedBytes    int             `snap:"skip"` // bytes of chunks in the message, and of their length
	passes          overtakeCounts  `snap:"skip"` // requests and reserves of other classes that may have been served while this one waited
	rivals          overtakeCounts  // the largest number of rivals that had a request waiting at the same time
	servedLast      turnsTaken      `snap:"skip"`
}

// isSameClass reports whether two waiters are of the same fairness class.
func (w *pendingRequest) isSameClass(o *pendingRequest) bool {
	return w.peer == o.peer && (w.peer != effects.Incarnation{} || w.conn == o.conn)
}

// operationID identifies an operation of a peer. A retry has the same operation as the first attempt.
type operationID struct {
	peer   effects.Incarnation
	number uint64
}

// recordMessage records a message when the message reaches the receiver's machine.
func (or *queueOracle) recordMessage(n *world.Node, request uint64, channel effects.Channel, conn uint64, body []byte) {
	w := pendingRequest{request: request, conn: conn, frozenAtArrival: n.FrozenTime, dueAt: or.w.Now, dueAtOnce: true, isNew: true}
	if channel == effects.ChannelAlloc {
		m, ok := or.facts().asRequest(body)
		if !ok {
			or.recordOffer(n, w, body)
			return
		}
		w.turn = or.facts().turn
		or.oracles().writeGrants.handleWriterDone(n)
		if len(m.Ext.Commit) > 0 {
			or.oracles().promises.stateOf(n).lastCommit = effects.GrantID(m.Ext.Commit[0])
			w.commits = m.HasExt && len(m.Keys) == 0
		}
		if m.HasExt {
			w.peer, w.operation = effects.Incarnation(m.Ext.Incarnation), m.Ext.Operation
			or.oracles().pageShares.recordRequest(n, w.peer, effects.Incarnation(m.Ext.To))
			or.oracles().peerRows.recordMessage(n, w.peer, effects.Incarnation(m.Ext.To))
		}
		if w.keyCount, w.tenant = len(m.Keys), tenantOfKeys(m.Keys); w.keyCount > 0 {
			if !m.HasExt {
				or.oracles().plainCounts.recordConn(n, conn)
			}
			if !m.HasExt && or.w.Conditions.Leased && or.w.Setup.Rank.TrustUncommitted {
				for _, k := range m.Keys {
					w.plainKeys = append(w.plainKeys, append([]byte(nil), k...))
				}
			}
			w.dueAtOnce = false
			w.dueAt = or.w.Now + int64(n.LongestSpan(pd.InfoOf(n).Cfg.AllocTimeout)+pd.Grace)
			w.pageCount = countDistinct(m.Keys)
			if m.HasExt && len(m.Ext.Carried) > 0 {
				w.carriedBytes = len(m.Ext.Carried) + 32
			}
			if w.layers = m.HasExt && m.Ext.Layers > 0; w.layers {
				w.continued, w.pageCount = m.Ext.Opened != 0, or.countLayeredChunks(m.Keys)*int(m.Ext.Layers)
			}
			w.body, w.contentHash = or.w.Arenas.Bytes.CopySlice(body), contentHash('a', m.Keys, m.Ext.Request, m.LastChunkTokens)
			or.enqueueRequest(n, w, effects.Incarnation(m.Ext.To))
			return
		}
	}
	or.stateOf(n).pending = append(or.stateOf(n).pending, w)
}

// countLayeredChunks counts the chunks of which layers are named by the keys.
func (or *queueOracle) countLayeredChunks(keys [][]byte) int {
	var chunks []uint32
	for _, key := range keys {
		if k, ok := or.w.Keys.NumberOf(key); ok {
			if first, _ := or.w.Setup.ChunkOf(k); !slices.Contains(chunks, first) {
				chunks = append(chunks, first)
			}
		}
	}
	return len(chunks)
}

// contentHash returns a hash of a message's kind, the keys in order, the request that the keys belong to, and the
// length of the last chunk.
func contentHash(kind byte, keys [][]byte, request []byte, lastTokens uint32) uint64 {
	h := draw.Mix(uint64(kind)<<32|uint64(lastTokens), table.Hash(0, request))
	for _, k := range keys {
		h = table.Hash(h, k)
	}
	return h
}

// enqueueRequest adds a request to the queue. A retry takes the place of the previous attempt, and the reply to the
// previous attempt becomes moot. A message is no retry if the message names different keys or another request, was
// meant for an earlier incarnation of the node, or comes from a stranger that does not know this incarnation's name for
// the peer.
func (or *queueOracle) enqueueRequest(n *world.Node, w pendingRequest, to effects.Incarnation) {
	state := or.stateOf(n)
	w.nameKnown, w.arrivedAt = pd.IsGenuine(n, w.peer, to), or.w.ReadClock(n)
	for i := range state.pending {
		o := &state.pending[i]
		again := w.operation != 0 && o.peer == w.peer && o.operation == w.operation && (o.keyCount > 0 || o.reading)
		if again && pd.IsGenuine(n, w.peer, to) && o.contentHash == w.contentHash {
			or.w.Requests[o.request-1].NeedsNoReply = true
			o.request, o.conn, o.dueAt, o.linkLost = w.request, w.conn, max(o.dueAt, w.dueAt), false
			return
		}
	}
	state.pending = append(state.pending, w)
	state.newRequest = w.request
}

// removeConn drops the requests of a connection after the receiver was notified that the connection is lost.
func (or *queueOracle) removeConn(n *world.Node, conn uint64) {
	state := or.stateOf(n)
	state.pending = slices.DeleteFunc(state.pending, func(o pendingRequest) bool {
		if o.conn == conn {
			or.w.Requests[o.request-1].NeedsNoReply = true
		}
		return o.conn == conn && !o.reading
	})
	for i := range state.pending {
		if o := &state.pending[i]; o.conn == conn { // The read goes on, and the sender may retry.
			o.conn = 0
		}
	}
}

// takeRequestGrant records that the node sends a grant of this step with a request, so that no reply carries the grant.
func (or *queueOracle) takeRequestGrant(n *world.Node, id effects.GrantID) {
	if state := or.stateOf(n); state.newGrant == id {
		state.newGrant = 0
	}
}

// handleReply takes a request out of the queue when the reply is sent, and checks that it was the request's turn.
func (or *queueOracle) handleReply(n *world.Node, request uint64, body []byte) {
	state := or.stateOf(n)
	if or.w.Failure != nil {
		return
	}
	or.oracles().offers.verifyRefusal(n, &or.w.Requests[request-1], body)
	or.oracles().deferredOffers.recordOfferReply(n, request, body)
	or.oracles().renewals.verifyRenewed(n, request, body)
	grant := state.newGrant
	state.newGrant = 0
	stored := state.storedPages
	state.storedPages = state.storedPages[:0]
	if grant != 0 {
		or.w.Requests[request-1].Grant = grant
		or.oracles().leaseTimes.recordBelief(n, &or.w.Requests[request-1], n.Grants[grant])
		or.oracles().prompt.verifyGrant(n, n.Grants[grant])
		or.oracles().tableShares.verifyGrantShare(n, n.Grants[grant])
	}
	i := slices.IndexFunc(state.pending, func(o pendingRequest) bool { return o.request == request })
	if i < 0 {
		return // Example: a request that was refused because a stranger named its operation.
	}
	w := state.pending[i]
	if grant != 0 {
		or.oracles().pageShares.verifyShare(n, n.Grants[grant], w.continued)
		or.oracles().tenantShares.recordGrant(n, &w, n.Grants[grant])
	}
	state.pending = slices.Delete(state.pending, i, i+1)
	or.facts().decodeReply(&w, body)
	or.oracles().grantTimes.verifyWait(n, &w)
	or.verifyWaitReason(n, &w, body)
	or.oracles().getWaits.recordRefused(n, &w)
	or.oracles().tableShares.verifyOfferReply(n, &w, body)
	if or.countPass(n, &w); or.w.Failure != nil {
		return
	}
	if w.keyCount > 0 && (w.continued || grant == 0 && len(stored) == 0) {
		or.blurTurns(n, &w)
	}
	or.oracles().prompt.verifyRefusal(n, &w)
	or.oracles().peerRows.verifyReply(n, &w)
	or.oracles().plainCounts.verifyForm(n, &w, body)
	or.oracles().plainCounts.verifyRefused(n, &w)
	or.oracles().promises.recordReply(n, &w, grant, len(stored) > 0)
	if grant != 0 && w.layers {
		or.oracles().cache.recordPromised(n, w.pageCount)
		if or.oracles().bundles.recordGrant(n, &w, grant); or.w.Failure != nil {
			return
		}
	}
	if len(stored) > 0 {
		or.verifyCarriedOnce(n, &w)
		or.oracles().pageShares.recordTaken(n, stored, w.peer)
		or.oracles().tenantShares.verifyTaken(n, w.tenant, len(stored), 0, "stores")
		or.oracles().cache.recordUsed(n, stored)
		or.oracles().cache.recordDuplicates(n, stored)
		or.oracles().requestEnds.recordGranted(n, &w)
		or.verifyPeerOrder(n, &w, i)
		if or.w.Failure == nil && !w.continued {
			or.verifyTurn(n, &w, len(stored))
			or.verifyOvertaken(n, &w, i)
		}
		return
	}
	if grant == 0 && w.operation != 0 {
		g := n.Grants[state.operationGrants[operationID{w.peer, w.operation}]]
		switch {
		case g != nil:
			or.oracles().leaseTimes.recordBelief(n, &or.w.Requests[request-1], g) // Sent again, with the remaining time.
			if or.facts().hasReply {
				m := &or.facts().reply.message
				if !m.AllocFailed && len(m.RemoteIndexes) > 0 {
					or.oracles().requestEnds.recordGranted(n, &w)
				}
				or.oracles().prompt.verifyRetry(n, g, m)
				or.oracles().tableShares.verifyRetry(n, &w, g)
			}
		case or.facts().hasReply:
			or.oracles().tableShares.verifyNoRoom(n, &w)
		}
	}
	if grant != 0 {
		or.oracles().requestEnds.recordGranted(n, &w)
		or.oracles().plainSenders.recordForeign(n, or.w.Requests[w.request-1].Realm, w.plainKeys)
		or.oracles().prompt.verifyGrantRequest(n, n.Grants[grant])
		if w.peer == (effects.Incarnation{}) {
			or.oracles().plainCounts.verifyCount(n, w.conn, grant)
			or.oracles().pageShares.recordTaken(n, n.Grants[grant].Pages, w.pageOwner())
		}
		or.verifyServed(n, &w, i, grant)
		return
	}
	m := &or.facts().reply.message
	if or.w.Conditions.Leased && w.keyCount == 0 && or.facts().hasReply && m.HasExt {
		or.verifyCommitted(n, m.Ext.Committed)
		if effects.CodeFromWire(m.Ext.Code) == effects.Corrupt && len(m.Ext.Gone) == 1 {
			or.oracles().promises.recordVerified(n, effects.GrantID(m.Ext.Gone[0]))
		}
	}
}

// verifyServed checks the order in which grants are made (rule M9): first come, first served within a peer, and a
// bounded number of overtakes between peers (L7).
func (or *queueOracle) verifyServed(n *world.Node, w *pendingRequest, place int, id effects.GrantID) {
	if w.continued {
		or.countVoid(checkPeerOrder)
	} else if or.verifyPeerOrder(n, w, place); or.w.Failure != nil {
		return
	}
	if w.operation != 0 {
		or.countJudged(checkGrantedOnce)
		op := operationID{w.peer, w.operation}
		if g := n.Grants[or.stateOf(n).operationGrants[op]]; g != nil && n.AllowsStores(g) {
			or.fail(checkGrantedOnce,
				"node %d grants pages under grant %d to an operation whose grant %d is still in force",
				n.AsSubject(), n.GrantSubject(effects.GrantID(id)), n.GrantSubject(g.ID))
			return
		}
		or.stateOf(n).operationGrants[op] = id
	}
	if !w.continued {
		or.verifyTurn(n, w, len(n.Grants[id].Pages))
		or.verifyOvertaken(n, w, place)
	}
}

// verifyPeerOrder checks that no request of the same peer has waited longer than the request that is served (L7).
func (or *queueOracle) verifyPeerOrder(n *world.Node, w *pendingRequest, place int) {
	or.countJudged(checkPeerOrder)
	for i := range or.stateOf(n).pending[:place] {
		if o := &or.stateOf(n).pending[i]; o.isSameClass(w) && o.keyCount > 0 && (o.tenant == w.tenant || !or.heldBack(n, i)) {
			or.fail(checkPeerOrder, "node %d serves request %d before request %d of the same peer, which waits longer",
				n.AsSubject(), oracle.Message(w.request), oracle.Message(o.request))
			return
		}
	}
}

// verifyCommitted checks which commits of a sender the receiver accepted: none that arrived after the grant was over
// (S24). A repeated commit may be accepted again.
func (or *queueOracle) verifyCommitted(n *world.Node, ids []uint64) {
	for _, id := range ids {
		or.countJudged(checkCommit, checkCommitInTime)
		g := n.Grants[effects.GrantID(id)]
		switch {
		case g == nil:
			or.fail(checkCommit, "node %d accepts the commit of grant %d, which the node never gave",
				n.AsSubject(), n.GrantSubject(effects.GrantID(id)))
		case !g.Committed && (g.Revoking || commitTime(or.w.ReadClock(n), g) > g.ExpiresAt):
			or.fail(checkCommitInTime, "node %d accepts the commit of grant %d, which had ended",
				n.AsSubject(), n.GrantSubject(effects.GrantID(id)))
		default:
			if !g.Committed {
				or.oracles().promises.recordLanded(n, g.ID, nil, true)
			}
			g.Committed = true
		}
	}
}

// commitTime returns the instant by which a commit that is accepted now is judged: its pages may have been compared
// with checksums since it arrived.
func commitTime(now effects.Time, g *world.Grant) effects.Time {
	if g.CommitArrivedAt != 0 {
		return g.CommitArrivedAt
	}
	return now
}

// verifyQueue checks, after a step, that no request waits without need or longer than allowed.
func (or *queueOracle) verifyQueue(n *world.Node, s *rank.Stats) {
	state := or.stateOf(n)
	state.newGrant = 0
	if or.oracles().tableShares.verifyPendingShare(n, s); or.w.Failure != nil {
		return
	}
	if or.verifyWithdrawn(n); or.w.Failure != nil {
		return
	}
	if or.oracles().plainCounts.verifyWaiting(n); or.w.Failure != nil {
		return
	}
	or.recordWaits(n)
	for i := range state.pending {
		o := &state.pending[i]
		if o.reading && (o.conn == 0 || o.cancelled) {
			or.countVoid(checkRepliedInTime)
			continue // No sender waits for the reply, or the plane is to end the read.
		}
		if o.commits && or.oracles().limits.stateOf(n).outstanding.Verifies > 0 {
			or.countVoid(checkRepliedInTime)
			continue // The reply may wait for the comparison of the grant's pages.
		}
		if or.countJudged(checkRepliedInTime); o.dueAtOnce || o.dueAt+n.FrozenTime-o.frozenAtArrival < or.w.Now {
			or.fail(checkRepliedInTime, "node %d does not reply to request %d in time", n.AsSubject(), oracle.Message(o.request))
			return
		}
	}
	if or.verifyNoNeedlessWait(n, s); or.w.Failure != nil {
		return
	}
	for i := range state.pending {
		state.pending[i].isNew = false
	}
}
