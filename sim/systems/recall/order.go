package recall

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

var checkOrder = oracle.NewCheck("L7", "recalls in turn")

// queriedRecalls records the recalls for which the node has sent a query to the peer.
type queriedRecalls struct{ tickets []effects.Ticket }

// orderOracle checks that the machine sends the queries for recalls from a peer in the order in which the recalls were
// given. A retried query is exempt, because retries are sent first.
var orderOracle = oracle.New("recalls in turn", "recalls from one peer are sent in order", func(l *oracle.Subscriptions[queriedRecalls]) {
	oracle.On(l, func(s *queriedRecalls, call *oracle.Call, e *effects.Send) {
		w := pd.ClusterOf(call)
		n := w.Nodes[call.Node()]
		if c := w.ConnOf(uint64(e.Conn)); c != nil && c.Channel == effects.ChannelQuery && !n.Custom {
			s.recordQuery(call, w, n, c.Server, e.Body)
		}
	})
})

// recordQuery attributes a query to a recall. If several recalls ask for the same chunks, the query belongs to the
// oldest recall.
func (s *queriedRecalls) recordQuery(call *oracle.Call, w *pd.Cluster, n *world.Node, server int32, body []byte) {
	m := protocol.CacheQueryRequest{}
	if m.Decode(body, &pd.WireLimits) != nil || len(m.Keys) == 0 || m.Ext.Attempt > 1 {
		return
	}
	oldest := effects.Ticket(0)
	for i := range w.Commands {
		c, t := &w.Commands[i], effects.Ticket(i+1)
		if c.Kind != wantRecall || c.Node != n.ID || c.Incarnation != n.Incarnation || c.Finished || c.ReceivedStep == 0 ||
			w.Jobs[c.Job].Receiver != server ||
			slices.Contains(s.tickets, t) {
			continue
		}
		if oldest == 0 {
			oldest = t
		}
		if j := &w.Jobs[c.Job]; slices.EqualFunc(j.Keys, m.Keys, slices.Equal) &&
			string(sourceRequest(w, j)) == string(m.Ext.Request) {
			s.tickets = append(s.tickets, t)
			if call.CountJudged(checkOrder); t != oldest {
				call.FailCheck(checkOrder, "node %d sends the query of ticket %d before that of ticket %d, which has waited longer",
					n.AsSubject(), oracle.Ticket(t), oracle.Ticket(oldest))
			}
			return
		}
	}
}
