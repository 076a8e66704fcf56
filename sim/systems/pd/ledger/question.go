package ledger

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// question is a lookup that may get the reply in a later step, as recorded at the receiver.
type question struct {
	request   uint64
	peer      effects.Incarnation
	operation uint64
	what      uint64 // a digest of the requested chunks
	known     bool   // the lookup names this incarnation by the name for the peer
}

// questionOf returns the record of a lookup that n has received.
func questionOf(n *world.Node, request uint64, m *protocol.AscendBatchedLookupAndGetMsg) question {
	grant := uint32(0)
	if !m.PullMode {
		grant = uint32(m.Ext.Grant) ^ uint32(m.Ext.Grant>>32)
	}
	peer := effects.Incarnation(m.Ext.Incarnation)
	return question{
		request, peer, m.Ext.Operation, digest('s', m.Keys, m.LookupID, grant),
		pd.Believes(n, peer, effects.Incarnation(m.Ext.To)),
	}
}

// named reports whether q has the same operation as an earlier lookup.
func (q *question) named(former *question) bool {
	return q.request != former.request && q.peer == former.peer && q.operation == former.operation
}

// again reports whether q is a retry of an earlier lookup. A lookup for different chunks is not a retry, and neither is
// a stranger's lookup.
func (q *question) again(former *question) bool {
	return q.named(former) && q.what == former.what && q.known
}

// moot removes the lookups of which the last lookup is a retry, because only the last lookup gets a reply.
func moot[T any](or *judge, some []T, of func(*T) *question) []T {
	if len(some) < 2 {
		return some
	}
	last := *of(&some[len(some)-1])
	return slices.DeleteFunc(some, func(x T) bool {
		former := of(&x)
		again := last.again(former)
		if again {
			or.w.Requests[former.request-1].Moot = true
		}
		return again
	})
}

// newest does the same at the end of a step in which the last lookup arrived and got no reply. A lookup that has the
// operation of an earlier lookup but is no retry must get the reply in the step in which the lookup arrives. That is
// also true for a retry of a peer that first has to introduce itself; then the peer's earlier lookup goes on.
func newest[T any](or *judge, n *world.Node, some []T, of func(*T) *question) []T {
	for i := range some {
		last, former := of(&some[len(some)-1]), of(&some[i])
		if !last.named(former) {
			continue
		}
		if or.judged(checkSharedSame); !last.again(former) {
			or.fail(checkSharedSame, "node %d takes message %d for message %d that is asked again, which it is not", n.It(),
				oracle.Message(last.request), oracle.Message(former.request))
			return some
		}
	}
	return moot(or, some, of)
}

// introduces reports whether a reply tells the peer to introduce itself, and says nothing of chunks.
func introduces(body []byte) bool {
	m := protocol.P2PErrorMsg{}
	return m.Decode(body, &pd.WireLimits) == nil && m.Code == protocol.P2PNotIntroduced
}
