package world

import (
	"github.com/kvferry/kvferry/contract"
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
)

// One-way messages: to the proxy, and done messages of receivers to senders.

// post carries out an [effects.Post].
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

// takes returns OK if the transport accepts a post on the connection, or the code with which it refuses.
func (c *Conn) takes(w *World) effects.Code {
	if c.Dead {
		return effects.PeerLost
	}
	if r, yes := w.Strikes(plan.FaultRefused, c.Name, c.Sent); yes {
		return refusal(contract.Posting, r)
	}
	return effects.OK
}

// postNotice sends a message to the proxy.
func (c *Conn) postNotice(w *World, n *Node, e *effects.Post) {
	code := c.takes(w)
	request, missing, ok := w.System.Notice(n, e.Body, code == effects.OK)
	if !ok {
		return
	}
	d := w.ConnDraw(draw.Post, c)
	w.ForNode(n, d.Heavy(w.Setting.Net/4), Delivery{Kind: KindSendDone, A: uint64(e.Corr), B: uint64(code)})
	if code == effects.OK {
		x := Delivery{Kind: KindPosted, Node: plan.Nobody, A: uint64(n.ID), B: request, C: missing}
		w.After(d.Again().Heavy(w.Setting.Net)+w.held(n.ID, plan.Proxy), x)
		if again, yes := w.Strikes(plan.FaultDoubled, c.Name, c.Sent); yes { // As when the transport reconnects.
			w.After(again.Span(0, effects.Second), x)
		}
	}
}

// postDone sends a done message to a sender. The transport keeps the message while the sender is down, and finds the
// sender after the restart. postDone loses messages that are in flight when a connection breaks, without any
// notification.
func (c *Conn) postDone(w *World, n *Node, e *effects.Post) {
	code := c.takes(w)
	if !w.System.Tell(n, e.Body, code == effects.OK) {
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
	body := w.System.InTransit(n, plan.FaultCorruptRequest, c, ToServer, c.Sent, e.Body)
	w.After(delay, Delivery{Kind: KindTold, Node: plan.Nobody, A: c.ID, Body: w.Body(body)})
	if again, yes := w.Strikes(plan.FaultDoubled, c.Name, c.Sent); yes { // As when the transport reconnects.
		w.After(delay+again.Span(0, effects.Second), Delivery{Kind: KindTold, Node: plan.Nobody, A: c.ID, Body: w.Body(body)})
	}
}

// told delivers a one-way message to its node, or keeps the message until the node is up again.
func (w *World) told(d Delivery) {
	c := w.Conns[d.A-1]
	s := w.Nodes[c.Server]
	if !s.Up {
		s.Missed = append(s.Missed, d)
		return
	}
	w.ForNode(s, 0, Delivery{Kind: KindReceived, A: 1<<41 | d.A, B: uint64(c.Channel), Body: d.Body})
}

// tellMissed delivers the messages that arrived while the node was down.
func (s *Node) tellMissed(w *World) {
	for _, d := range s.Missed {
		w.After(s.draw(w, draw.Notice).Heavy(w.Setting.Net), d)
	}
	s.Missed = s.Missed[:0]
}

// postOwn sends a one-way message from or to a user's machine. The messages of a connection arrive in order: a late
// message delays all later messages. A message that is in flight when the transport reconnects is lost or arrives
// twice.
func (c *Conn) postOwn(w *World, n *Node, e *effects.Post) {
	code := c.takes(w)
	notice := !n.User && c.Channel == effects.ChannelProxy
	if notice {
		if _, _, ok := w.System.Notice(n, e.Body, code == effects.OK); !ok {
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
