package world

import (
	"github.com/kvferry/kvferry/contract"
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
)

// Messages that nobody answers: to the proxy, and from receivers to senders the ends of offers.

func (n *Node) post(w *World, e *effects.Post) {
	c := w.ConnOf(uint64(e.Conn))
	if c == nil || c.Client != n.ID || c.Life != n.Life || c.Closed || c.Channel.Order() != effects.OneWay {
		w.Fail("contract", "node %d posts on connection %d, which is no open one-way connection of its",
			n.It(), oracle.Conn(e.Conn))
		return
	}
	c.Sent++
	w.Result.Messages++
	if n.User || c.Channel == effects.ChannelFeed || c.Server >= 0 && w.Nodes[c.Server].User {
		c.postOwn(w, n, e)
		return
	}
	if c.Channel == effects.ChannelDone {
		c.postDone(w, n, e)
		return
	}
	c.postNotice(w, n, e)
}

// takes says whether the transport takes what is posted on a connection, or how it refuses.
func (c *Conn) takes(w *World) effects.Code {
	if c.Dead {
		return effects.PeerLost
	}
	if r, yes := w.Strikes(plan.FaultRefused, c.Name, c.Sent); yes {
		return refusal(contract.Telling, r)
	}
	return effects.OK
}

// postNotice tells the proxy.
func (c *Conn) postNotice(w *World, n *Node, e *effects.Post) {
	code := c.takes(w)
	request, missing, ok := w.System.Engine.Notice(w, n, e.Body, code == effects.OK)
	if !ok {
		return
	}
	d := w.ConnDraw(draw.Post, c)
	w.ForNode(n, d.Heavy(w.Setting.Net/4), Delivery{Kind: KindSendDone, A: uint64(e.Corr), B: uint64(code)})
	if code == effects.OK {
		x := Delivery{Kind: KindPosted, Node: plan.Nobody, A: uint64(n.ID), B: request, C: missing}
		w.After(d.Again().Heavy(w.Setting.Net)+w.held(n.ID, plan.Proxy), x)
		if again, yes := w.Strikes(plan.FaultDoubled, c.Name, c.Sent); yes { // As when the transport connects anew.
			w.After(again.Span(0, effects.Second), x)
		}
	}
}

// postDone tells a sender that an offer has ended. The transport keeps the message while the
// sender is down, finds it when it is there again, and loses what was under way when a
// connection broke; nobody is told.
func (c *Conn) postDone(w *World, n *Node, e *effects.Post) {
	code := c.takes(w)
	if !w.System.Engine.Tell(w, n, e.Body, code == effects.OK) {
		return
	}
	d := w.ConnDraw(draw.Post, c)
	w.ForNode(n, d.Heavy(w.Setting.Net/4), Delivery{Kind: KindSendDone, A: uint64(e.Corr), B: uint64(code)})
	if code != effects.OK || c.Server < 0 {
		return
	}
	w.Overhear(e.Body)
	if w.Struck(plan.FaultDoneLost, c.Name, c.Sent) {
		return
	}
	delay := d.Again().Heavy(w.Setting.Net) + w.held(n.ID, c.Server)
	if late, yes := w.Strikes(plan.FaultDelay, c.Name, 2*c.Sent); yes {
		delay += late.Span(0, effects.Second)
	}
	body := w.System.Words.OnItsWay(w, n, plan.FaultCorruptRequest, c, ToServer, c.Sent, e.Body)
	w.After(delay, Delivery{Kind: KindTold, Node: plan.Nobody, A: c.ID, Body: w.Body(body)})
	if again, yes := w.Strikes(plan.FaultDoubled, c.Name, c.Sent); yes { // As when the transport connects anew.
		w.After(delay+again.Span(0, effects.Second), Delivery{Kind: KindTold, Node: plan.Nobody, A: c.ID, Body: w.Body(body)})
	}
}

// told is such a message at the sender, or where it waits for the sender to be up again.
func (w *World) told(d Delivery) {
	c := w.Conns[d.A-1]
	s := w.Nodes[c.Server]
	if !s.Up {
		s.Missed = append(s.Missed, d)
		return
	}
	w.ForNode(s, 0, Delivery{Kind: KindReceived, A: 1<<41 | d.A, B: uint64(c.Channel), Body: d.Body})
}

// tellMissed brings what waited for a node that is up again.
func (s *Node) tellMissed(w *World) {
	for _, d := range s.Missed {
		w.After(s.draw(w, draw.Notice).Heavy(w.Setting.Net), d)
	}
	s.Missed = s.Missed[:0]
}

// postOwn carries what nobody answers from or to a machine of a user's. What one of those posts comes in its order:
// what is late makes wait what is behind it. What was under way when the transport connected anew is lost, or comes
// twice.
func (c *Conn) postOwn(w *World, n *Node, e *effects.Post) {
	code := c.takes(w)
	notice := !n.User && c.Channel == effects.ChannelProxy
	if notice {
		if _, _, ok := w.System.Engine.Notice(w, n, e.Body, code == effects.OK); !ok {
			return
		}
	}
	d := w.ConnDraw(draw.Post, c)
	w.ForNode(n, d.Heavy(w.Setting.Net/4), Delivery{Kind: KindSendDone, A: uint64(e.Corr), B: uint64(code)})
	if code != effects.OK || c.Server < 0 {
		return
	}
	delay, body := d.Again().Heavy(w.Setting.Net)+w.held(n.ID, c.Server), e.Body
	if !notice {
		if w.Struck(plan.FaultDoneLost, c.Name, c.Sent) {
			return
		}
		if late, yes := w.Strikes(plan.FaultDelay, c.Name, 2*c.Sent); yes {
			delay += late.Span(0, effects.Second)
		}
		delay = max(delay, effects.Duration(c.arrives-w.Now))
		c.arrives = w.Now + int64(delay)
		body = w.Corrupt(plan.FaultCorruptRequest, c, c.Sent, body)
	}
	w.After(delay, Delivery{Kind: KindTold, Node: plan.Nobody, A: c.ID, Body: w.Body(body)})
	if again, yes := w.Strikes(plan.FaultDoubled, c.Name, c.Sent); yes {
		w.After(delay+again.Span(0, effects.Second), Delivery{Kind: KindTold, Node: plan.Nobody, A: c.ID, Body: w.Body(body)})
	}
}
