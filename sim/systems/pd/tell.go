package pd

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// This file handles the messages of ranks that have no reply.

// Notice handles a notification to the proxy. The results are the index of the request's job and the number of chunks
// that are missing.
func (w *Cluster) Notice(n *world.Node, body []byte, taken bool) (request, missing uint64, ok bool) {
	m, err := readNotice(body)
	if err != nil {
		w.Fail("contract", "node %d tells the proxy what it cannot read: %v", n.It(), err)
		return 0, 0, false
	}
	OnNotified.Report(&w.Panel, n.ID, Notified{n, &m, taken})
	return w.JobNamed(m.RequestID), uint64(m.Failed), true
}

// Tell handles a done message, which notifies a sender that an offer has ended.
func (w *Cluster) Tell(n *world.Node, body []byte, taken bool) bool {
	m := &w.inbox.done
	if err := m.Decode(body, &WireLimits); err != nil {
		w.Fail("contract", "node %d tells a sender of an end what it cannot read: %v", n.It(), err)
		return false
	}
	OnDoneSent.Report(&w.Panel, n.ID, DoneSent{n, m, taken})
	return true
}

// Dispatched handles the message by which a user's proxy notifies the engines of decodes of a request. The reply says
// only that the message was received.
func (w *Cluster) Dispatched(c *world.Conn, corr effects.Corr, body []byte) {
	i := w.JobNamed(body)
	if i >= uint64(len(w.Jobs)) {
		w.Fail("contract", "node %d dispatches request %q, which never was", oracle.Node(c.Client), oracle.Request(body))
		return
	}
	w.posted(world.Delivery{Kind: world.KindPosted, A: uint64(c.Client), B: i})
	if c.Dead || c.Closed {
		return
	}
	w.After(w.ConnDraw(draw.Reply, c).Heavy(w.Setting.Net),
		world.Delivery{Kind: world.KindAnswer, Node: plan.Nobody, A: c.ID, B: uint64(corr), Body: w.Body(nil)})
}
