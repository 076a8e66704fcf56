package ledger

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// Offers wait at a receiver together with allocation requests, in the same queue and for the same pages. An offer gets
// a reply when the chunks have been read.

// recordOffer records an offer when the offer reaches the receiver's machine. A message that is no offer is due for a
// reply at once.
func (or *queueOracle) recordOffer(n *world.Node, w pendingRequest, body []byte) {
	m, ok := or.facts().asOffer(body)
	if ok && m.HasExt {
		or.oracles().peerRows.recordMessage(n, effects.Incarnation(m.Ext.Incarnation), effects.Incarnation(m.Ext.To))
	}
	if !ok || len(m.Keys) == 0 || !m.HasExt {
		if ok {
			or.recordWithdrawn(n, m)
		}
		or.stateOf(n).pending = append(or.stateOf(n).pending, w)
		return
	}
	w.peer, w.operation, w.offerGrant = effects.Incarnation(m.Ext.Incarnation), m.Ext.Operation, effects.GrantID(m.Ext.Grant)
	w.pullID = m.PullID
	if i := or.w.JobIndex(m.Ext.Request); len(m.Ext.Request) > 0 && i < uint64(len(or.w.Jobs)) {
		w.job = int(i) + 1
	}
	w.body, w.contentHash = or.w.Arenas.Bytes.CopySlice(body), contentHash('o', m.Keys, m.Ext.Request, m.LastChunkTokens)
	w.tenant = tenantOfKeys(m.Keys)
	w.keyCount, w.pageCount, w.dueAtOnce = len(m.Keys), countDistinct(m.Keys), false
	w.dueAt = or.w.Now + int64(n.LongestSpan(pd.InfoOf(n).Cfg.AllocTimeout+pd.InfoOf(n).Cfg.ReadTimeout)+pd.Grace)
	or.enqueueRequest(n, w, effects.Incarnation(m.Ext.To))
	if last := len(or.stateOf(n).pending) - 1; or.stateOf(n).pending[last].request == w.request {
		or.recordWait(n, last)
	}
}

// recordWithdrawn records that a waiting offer is taken back.
func (or *queueOracle) recordWithdrawn(n *world.Node, m *protocol.PullReadyNotif) {
	if len(m.Ext.Withdraw) == 0 || !pd.IsGenuine(n, effects.Incarnation(m.Ext.Incarnation), effects.Incarnation(m.Ext.To)) {
		return
	}
	or.countJudged(checkWithdrawnOffer)
	state := or.stateOf(n)
	for i := range state.pending {
		o := &state.pending[i]
		if o.offerGrant != 0 && o.peer == effects.Incarnation(m.Ext.Incarnation) && o.operation == m.Ext.Operation && !o.reading {
			o.withdrawn = o.pullID == m.Ext.Withdraw[0]
		}
	}
}

// verifyWithdrawn checks that no offer waits that was taken back, when the machine has no more work for this instant.
func (or *queueOracle) verifyWithdrawn(n *world.Node) {
	state := or.stateOf(n)
	for i := range state.pending {
		o := &state.pending[i]
		if !o.withdrawn || n.Busy {
			continue
		}
		if !o.reading {
			or.fail(checkWithdrawnOffer, "node %d lets request %d wait, which is a withdrawn offer",
				n.AsSubject(), oracle.Message(o.request))
			return
		}
		o.withdrawn = false
	}
}

// beginRead checks that it was an offer's turn, when the receiver begins to read the chunks.
func (or *queueOracle) beginRead(n *world.Node, t *world.Transfer) {
	i := slices.IndexFunc(or.stateOf(n).pending, func(o pendingRequest) bool {
		return o.offerGrant == t.Grant && o.peer == t.Link.Peer && !o.reading
	})
	if i < 0 {
		return // The offer is part of a scenario, or is read again.
	}
	w := &or.stateOf(n).pending[i]
	if or.verifyPeerOrder(n, w, i); or.w.Failure != nil {
		return
	}
	or.verifyTurn(n, w, len(t.Pairs))
	or.verifyOvertaken(n, w, i)
	or.oracles().tenantShares.verifyTaken(n, w.tenant, len(t.Pairs), len(t.Pairs), "reads into")
	or.countPass(n, w)
	or.oracles().prompt.verifyNotAbandoned(n, w.job)
	w.reading, w.keyCount = true, 0
	or.stateOf(n).recordedOffers = append(or.stateOf(n).recordedOffers, operationID{w.peer, w.operation})
}

// recordCancelled records that the machine cancels a read. The machine can do no more to make the reply possible.
func (or *queueOracle) recordCancelled(n *world.Node, t *world.Transfer) {
	for i := range or.stateOf(n).pending {
		if o := &or.stateOf(n).pending[i]; o.isReadBy(t) {
			o.cancelled = true
		}
	}
}

// recordReadEnd makes the reply to an offer due when the end of the read is reported, if a sender waits for the reply.
func (or *queueOracle) recordReadEnd(n *world.Node, t *world.Transfer) {
	state := or.stateOf(n)
	state.pending = slices.DeleteFunc(state.pending, func(o pendingRequest) bool { return o.isReadBy(t) && o.conn == 0 })
	for i := range state.pending {
		if o := &state.pending[i]; o.isReadBy(t) {
			o.dueAtOnce, o.cancelled, o.unwanted = true, false, false
		}
	}
}

// isReadBy reports whether a transfer reads the chunks of this offer.
func (o *pendingRequest) isReadBy(t *world.Transfer) bool {
	return o.reading && o.offerGrant == t.Grant && o.peer == t.Link.Peer
}

// canBeServed reports whether a request could be served if there were free pages. An offer cannot be served before the
// sender's plane is connected.
func (o *pendingRequest) canBeServed(n *world.Node) bool {
	return o.offerGrant == 0 || slices.ContainsFunc(n.Links,
		func(l *world.Link) bool { return l.Peer == o.peer && l.ImportReported && !l.LossReported && !l.Dropped })
}

// countDistinct counts the distinct keys.
func countDistinct(keys [][]byte) (n int) {
	for i, k := range keys {
		if !slices.ContainsFunc(keys[:i], func(o []byte) bool { return string(o) == string(k) }) {
			n++
		}
	}
	return n
}
