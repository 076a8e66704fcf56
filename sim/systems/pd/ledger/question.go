package ledger

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// A question is one about chunks that may be answered in a later step, where it came to.
type question struct {
	request   uint64
	peer      effects.Incarnation
	operation uint64
	what      uint64 // what it asks for
	known     bool   // who says it knows the name that this life has for the peer
}

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

// named says whether q has the name of another, which came before it.
func (q *question) named(former *question) bool {
	return q.request != former.request && q.peer == former.peer && q.operation == former.operation
}

// again says whether q asks once more what another did. What names other chunks does not, nor does a stranger's.
func (q *question) again(former *question) bool {
	return q.named(former) && q.what == former.what && q.known
}

// moot leaves out which questions the last of some asks again: they are answered as that alone.
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

// newest does so as the step in which the last came ends without an answer to it. One that has the name of another and
// does not ask that again is answered in its own step. A retry is, too, of who has to introduce himself first; what he
// asked before goes on.
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

// introduces says whether an answer is to who has to introduce himself, and tells nothing of chunks.
func introduces(body []byte) bool {
	m := protocol.P2PErrorMsg{}
	return m.Decode(body, &pd.WireLimits) == nil && m.Code == protocol.P2PNotIntroduced
}
