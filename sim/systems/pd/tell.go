package pd

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// What ranks say that nobody answers.

// notice is a word to the proxy: how many chunks of a request are missing.
func (w *Cluster) notice(n *world.Node, body []byte, taken bool) (request, missing uint64, ok bool) {
	m, err := readNotice(body)
	if err != nil {
		w.Fail("contract", "node %d tells the proxy what it cannot read: %v", n.It(), err)
		return 0, 0, false
	}
	OnNotified.Report(&w.Panel, n.ID, Notified{n, &m, taken})
	return w.JobNamed(m.RequestID), uint64(m.Failed), true
}

// endTold is the word to a sender that an offer of its has ended.
func (w *Cluster) endTold(n *world.Node, body []byte, taken bool) bool {
	m := &w.inbox.done
	if err := m.Decode(body, &WireLimits); err != nil {
		w.Fail("contract", "node %d tells a sender of an end what it cannot read: %v", n.It(), err)
		return false
	}
	OnDoneSent.Report(&w.Panel, n.ID, DoneSent{n, m, taken})
	return true
}

// dispatched is what a user's proxy tells the engines of decodes: that a request is there. The answer says no more than
// that it was heard.
func (w *Cluster) dispatched(c *world.Conn, corr effects.Corr, body []byte) {
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
