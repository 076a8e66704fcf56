package ledger

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// pendingLookup is a lookup that may get the reply in a later step, as recorded at the receiver.
type pendingLookup struct {
	request     uint64
	peer        effects.Incarnation
	operation   uint64
	contentHash uint64 // a digest of the requested chunks
	nameKnown   bool   // the lookup names this incarnation by the name for the peer
}

// newPendingLookup returns the record of a lookup that n has received.
func newPendingLookup(n *world.Node, request uint64, m *protocol.AscendBatchedLookupAndGetMsg) pendingLookup {
	grant := uint32(0)
	if !m.PullMode {
		grant = uint32(m.Ext.Grant) ^ uint32(m.Ext.Grant>>32)
	}
	peer := effects.Incarnation(m.Ext.Incarnation)
	return pendingLookup{
		request, peer, m.Ext.Operation, contentHash('s', m.Keys, m.LookupID, grant),
		pd.IsGenuine(n, peer, effects.Incarnation(m.Ext.To)),
	}
}

// isSameOperation reports whether q has the same operation as an earlier lookup.
func (q *pendingLookup) isSameOperation(former *pendingLookup) bool {
	return q.request != former.request && q.peer == former.peer && q.operation == former.operation
}

// isRetryOf reports whether q is a retry of an earlier lookup. A lookup for different chunks is not a retry, and
// neither is a stranger's lookup.
func (q *pendingLookup) isRetryOf(former *pendingLookup) bool {
	return q.isSameOperation(former) && q.contentHash == former.contentHash && q.nameKnown
}

// removeRetried removes the lookups of which the last lookup is a retry, because only the last lookup gets a reply.
func removeRetried[T any](or *oracleBase, lookups []T, lookupOf func(*T) *pendingLookup) []T {
	if len(lookups) < 2 {
		return lookups
	}
	last := *lookupOf(&lookups[len(lookups)-1])
	return slices.DeleteFunc(lookups, func(x T) bool {
		former := lookupOf(&x)
		isRetry := last.isRetryOf(former)
		if isRetry {
			or.w.Requests[former.request-1].NeedsNoReply = true
		}
		return isRetry
	})
}

// removeSuperseded does the same at the end of a step in which the last lookup arrived and got no reply. A lookup that
// has the operation of an earlier lookup but is no retry must get the reply in the step in which the lookup arrives.
// That is also true for a retry of a peer that first has to introduce itself; then the peer's earlier lookup goes on.
func removeSuperseded[T any](or *oracleBase, n *world.Node, lookups []T, lookupOf func(*T) *pendingLookup) []T {
	for i := range lookups {
		last, former := lookupOf(&lookups[len(lookups)-1]), lookupOf(&lookups[i])
		if !last.isSameOperation(former) {
			continue
		}
		if or.countJudged(checkLookupRetry); !last.isRetryOf(former) {
			or.fail(checkLookupRetry, "node %d treats message %d as a retry of message %d, which it is not", n.AsSubject(),
				oracle.Message(last.request), oracle.Message(former.request))
			return lookups
		}
	}
	return removeRetried(or, lookups, lookupOf)
}

// asksIntroduction reports whether a reply tells the peer to introduce itself, and says nothing of chunks.
func asksIntroduction(body []byte) bool {
	m := protocol.P2PErrorMsg{}
	return m.Decode(body, &pd.WireLimits) == nil && m.Code == protocol.P2PNotIntroduced
}
