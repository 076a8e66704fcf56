package pd

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// This file handles the messages of ranks that have no reply.

// OnProxyPost handles a notification to the proxy. The results are the index of the request's job and the number of
// chunks that are missing.
func (w *Cluster) OnProxyPost(n *world.Node, body []byte, accepted bool) (request, missing uint64, ok bool) {
	m, err := decodeNotice(body)
	if err != nil {
		w.Fail("contract", "node %d sends the proxy a message that cannot be decoded: %v", n.AsSubject(), err)
		return 0, 0, false
	}
	OnProxyNotified.Report(&w.Panel, n.ID, ProxyNotified{n, &m, accepted})
	return w.JobIndex(m.RequestID), uint64(m.Failed), true
}

// OnNodePost handles a done message, which notifies a sender that an offer has ended.
func (w *Cluster) OnNodePost(n *world.Node, body []byte, accepted bool) bool {
	m := &w.decodeBuffers.done
	if err := m.Decode(body, &WireLimits); err != nil {
		w.Fail("contract", "node %d sends a done message that cannot be decoded: %v", n.AsSubject(), err)
		return false
	}
	OnDoneSent.Report(&w.Panel, n.ID, DoneSent{n, m, accepted})
	return true
}

// HandleDispatch handles the message by which a user's proxy notifies the engines of decodes of a request. The reply
// says only that the message was received.
func (w *Cluster) HandleDispatch(c *world.Conn, corr effects.Corr, body []byte) {
	i := w.JobIndex(body)
	if i >= uint64(len(w.Jobs)) {
		w.Fail("contract", "node %d dispatches request %q, which does not exist", oracle.Node(c.Client), oracle.Request(body))
		return
	}
	w.forwardRequest(world.Delivery{Kind: world.KindProxyPost, A: uint64(c.Client), B: i})
	if c.Dead || c.Closed {
		return
	}
	w.QueueAfter(w.DrawForConn(draw.Reply, c).HeavyTail(w.Conditions.MessageTime),
		world.Delivery{Kind: world.KindReplyArrives, Node: plan.NoNode, A: c.ID, B: uint64(corr), Body: w.CopyBody(nil)})
}
