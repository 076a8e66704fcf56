package sim

import (
	"github.com/kvferry/kvferry/contract"
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
)

// Messages that nobody answers: to the proxy, and from receivers to senders the ends of offers.

func (w *world) post(n *node, e *effects.Post) {
	c := w.connOf(uint64(e.Conn))
	if c == nil || c.client != n.id || c.life != n.life || c.closed || c.channel.Order() != effects.OneWay {
		w.fail("contract", "node %d posts on connection %d, which is no open one-way connection of its",
			n.it(), oracle.Conn(e.Conn))
		return
	}
	c.sent++
	w.result.Messages++
	if n.own != nil || c.server >= 0 && w.nodes[c.server].own != nil {
		w.postOwn(n, c, e)
		return
	}
	if c.channel == effects.ChannelDone {
		w.postDone(n, c, e)
		return
	}
	w.postNotice(n, c, e)
}

// takes says whether the transport takes what is posted on a connection, or how it refuses.
func (w *world) takes(c *conn) effects.Code {
	if c.dead {
		return effects.PeerLost
	}
	if r, yes := w.strikes(plan.FaultRefused, c.name, c.sent); yes {
		return refusal(contract.Telling, r)
	}
	return effects.OK
}

// postNotice tells the proxy.
func (w *world) postNotice(n *node, c *conn, e *effects.Post) {
	code := w.takes(c)
	request, missing, ok := w.system.engine.notice(w, n, e.Body, code == effects.OK)
	if !ok {
		return
	}
	d := w.connDraw(draw.Post, c)
	w.forNode(n, d.Heavy(w.plan.Net/4), delivery{kind: kindSendDone, a: uint64(e.Corr), b: uint64(code)})
	if code == effects.OK {
		x := delivery{kind: kindPosted, node: plan.Nobody, a: uint64(n.id), b: request, c: missing}
		w.after(d.Again().Heavy(w.plan.Net)+w.held(n.id, plan.Proxy), x)
		if again, yes := w.strikes(plan.FaultDoubled, c.name, c.sent); yes { // As when the transport connects anew.
			w.after(again.Span(0, effects.Second), x)
		}
	}
}

// postDone tells a sender that an offer has ended. The transport keeps the message while the
// sender is down, finds it when it is there again, and loses what was under way when a
// connection broke; nobody is told.
func (w *world) postDone(n *node, c *conn, e *effects.Post) {
	code := w.takes(c)
	if !w.system.engine.tell(w, n, e.Body, code == effects.OK) {
		return
	}
	d := w.connDraw(draw.Post, c)
	w.forNode(n, d.Heavy(w.plan.Net/4), delivery{kind: kindSendDone, a: uint64(e.Corr), b: uint64(code)})
	if code != effects.OK || c.server < 0 {
		return
	}
	w.overhear(e.Body)
	if w.struck(plan.FaultDoneLost, c.name, c.sent) {
		return
	}
	delay := d.Again().Heavy(w.plan.Net) + w.held(n.id, c.server)
	if late, yes := w.strikes(plan.FaultDelay, c.name, 2*c.sent); yes {
		delay += late.Span(0, effects.Second)
	}
	body := w.onItsWay(n, plan.FaultCorruptRequest, c, toServer, c.sent, e.Body)
	w.after(delay, delivery{kind: kindTold, node: plan.Nobody, a: c.id, body: w.body(body)})
	if again, yes := w.strikes(plan.FaultDoubled, c.name, c.sent); yes { // As when the transport connects anew.
		w.after(delay+again.Span(0, effects.Second), delivery{kind: kindTold, node: plan.Nobody, a: c.id, body: w.body(body)})
	}
}

// told is such a message at the sender, or where it waits for the sender to be up again.
func (w *world) told(d delivery) {
	c := w.conns[d.a-1]
	s := w.nodes[c.server]
	if !s.up {
		s.missed = append(s.missed, d)
		return
	}
	w.forNode(s, 0, delivery{kind: kindReceived, a: 1<<41 | d.a, b: uint64(c.channel), body: d.body})
}

// tellMissed brings what waited for a node that is up again.
func (w *world) tellMissed(s *node) {
	for _, d := range s.missed {
		w.after(w.draw(draw.Notice, s).Heavy(w.plan.Net), d)
	}
	s.missed = s.missed[:0]
}
