package world

import (
	"github.com/kvferry/kvferry/contract"
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
)

// One-way messages: to the proxy, and done messages of receivers to senders.

// sendPost carries out an [effects.Post].
func (n *Node) sendPost(w *World, e *effects.Post) {
	c := w.ConnOf(uint64(e.Conn))
	if c == nil || c.Client != n.ID || c.Incarnation != n.Incarnation || c.Closed || c.Channel.Order() != effects.OneWay {
		w.Fail("contract", "node %d posts on connection %d, which is not an open one-way connection of this node",
			n.AsSubject(), oracle.Conn(e.Conn))
		return
	}
	c.SentCount++
	w.Result.Messages++
	if n.Custom || c.Channel == effects.ChannelFeed || c.Server >= 0 && w.Nodes[c.Server].Custom {
		c.postCustom(w, n, e)
		return
	}
	if c.Channel == effects.ChannelDone {
		c.postDone(w, n, e)
		return
	}
	c.postToProxy(w, n, e)
}

// acceptPost returns OK if the transport accepts a post on the connection, or the code with which it refuses.
func (c *Conn) acceptPost(w *World) effects.Code {
	if c.Dead {
		return effects.PeerLost
	}
	if r, yes := w.DrawStrike(plan.FaultEffectRefused, c.Name, c.SentCount); yes {
		return drawRefusal(contract.Posting, r)
	}
	return effects.OK
}

// postToProxy sends a message to the proxy.
func (c *Conn) postToProxy(w *World, n *Node, e *effects.Post) {
	code := c.acceptPost(w)
	request, missing, ok := w.System.OnProxyPost(n, e.Body, code == effects.OK)
	if !ok {
		return
	}
	d := w.DrawForConn(draw.Post, c)
	w.QueueForNode(n, d.HeavyTail(w.Conditions.MessageTime/4), Delivery{Kind: KindSendDone, A: uint64(e.Corr), B: uint64(code)})
	if code == effects.OK {
		x := Delivery{Kind: KindProxyPost, Node: plan.NoNode, A: uint64(n.ID), B: request, C: missing}
		w.QueueAfter(d.Rehash().HeavyTail(w.Conditions.MessageTime)+w.blockedTime(n.ID, plan.Proxy), x)
		if second, yes := w.DrawStrike(plan.FaultPostDoubled, c.Name, c.SentCount); yes { // As when the transport reconnects.
			w.QueueAfter(second.Duration(0, effects.Second), x)
		}
	}
}

// postDone sends a done message to a sender. The transport keeps the message while the sender is down, and finds the
// sender after the restart. postDone loses messages that are in flight when a connection breaks, without any
// notification.
func (c *Conn) postDone(w *World, n *Node, e *effects.Post) {
	code := c.acceptPost(w)
	if !w.System.OnNodePost(n, e.Body, code == effects.OK) {
		return
	}
	d := w.DrawForConn(draw.Post, c)
	w.QueueForNode(n, d.HeavyTail(w.Conditions.MessageTime/4), Delivery{Kind: KindSendDone, A: uint64(e.Corr), B: uint64(code)})
	if code != effects.OK || c.Server < 0 {
		return
	}
	w.OverhearMessage(e.Body)
	if w.IsStruck(plan.FaultDoneLost, c.Name, c.SentCount) {
		return
	}
	delay := d.Rehash().HeavyTail(w.Conditions.MessageTime) + w.blockedTime(n.ID, c.Server)
	if more, yes := w.DrawStrike(plan.FaultMessageDelayed, c.Name, 2*c.SentCount); yes {
		delay += more.Duration(0, effects.Second)
	}
	body := w.System.MessageInTransit(n, plan.FaultRequestCorrupted, c, ToServer, c.SentCount, e.Body)
	w.QueueAfter(delay, Delivery{Kind: KindPostArrives, Node: plan.NoNode, A: c.ID, Body: w.CopyBody(body)})
	if second, yes := w.DrawStrike(plan.FaultPostDoubled, c.Name, c.SentCount); yes { // As when the transport reconnects.
		w.QueueAfter(delay+second.Duration(0, effects.Second), Delivery{Kind: KindPostArrives, Node: plan.NoNode, A: c.ID,
			Body: w.CopyBody(body)})
	}
}

// The transport of a directory reports the end of a feed after all messages of the feed. If the node is down, its next
// incarnation receives the messages, and later the report.
const (
	feedLostDelay = effects.Millisecond
	feedLostRetry = 1100 * effects.Millisecond
	feedLostTries = 10
	postsEnded    = 1 // in field B of the delivery; field C counts the tries
)

// deliverPost delivers a one-way message to its node, or keeps the message until the node is up again.
func (w *World) deliverPost(d Delivery) {
	c := w.Conns[d.A-1]
	s := w.Nodes[c.Server]
	switch {
	case d.B == postsEnded && !s.Up:
		if d.C++; d.C < feedLostTries {
			w.QueueAfter(feedLostRetry, d)
		}
		return
	case d.B == postsEnded:
		w.QueueForNode(s, 0, Delivery{Kind: KindConnLost, A: 1<<41 | d.A})
		return
	case !s.Up:
		s.Missed = append(s.Missed, d)
		return
	}
	w.QueueForNode(s, 0, Delivery{Kind: KindReceived, A: 1<<41 | d.A, B: uint64(c.Channel), Body: d.Body})
}

// deliverMissed delivers the messages that arrived while the node was down.
func (s *Node) deliverMissed(w *World) {
	for _, d := range s.Missed {
		w.QueueAfter(s.nextDraw(w, draw.Notice).HeavyTail(w.Conditions.MessageTime), d)
	}
	s.Missed = s.Missed[:0]
}

// postCustom sends a one-way message from or to a user's machine. The messages of a connection arrive in order: a late
// message delays all later messages. A message that is in flight when the transport reconnects is lost or arrives
// twice.
func (c *Conn) postCustom(w *World, n *Node, e *effects.Post) {
	code := c.acceptPost(w)
	toProxy := !n.Custom && c.Channel == effects.ChannelProxy
	if toProxy {
		if _, _, ok := w.System.OnProxyPost(n, e.Body, code == effects.OK); !ok {
			return
		}
	}
	d := w.DrawForConn(draw.Post, c)
	w.QueueForNode(n, d.HeavyTail(w.Conditions.MessageTime/4), Delivery{Kind: KindSendDone, A: uint64(e.Corr), B: uint64(code)})
	if code != effects.OK || c.Server < 0 {
		return
	}
	delay, body := d.Rehash().HeavyTail(w.Conditions.MessageTime)+w.blockedTime(n.ID, c.Server), e.Body
	if !toProxy {
		if w.IsStruck(plan.FaultDoneLost, c.Name, c.SentCount) {
			return
		}
		if more, yes := w.DrawStrike(plan.FaultMessageDelayed, c.Name, 2*c.SentCount); yes {
			delay += more.Duration(0, effects.Second)
		}
		delay = max(delay, effects.Duration(c.lastPostAt-w.Now))
		c.lastPostAt = w.Now + int64(delay)
		body = w.CorruptMessage(plan.FaultRequestCorrupted, c, c.SentCount, body)
	}
	w.QueueAfter(delay, Delivery{Kind: KindPostArrives, Node: plan.NoNode, A: c.ID, Body: w.CopyBody(body)})
	if second, yes := w.DrawStrike(plan.FaultPostDoubled, c.Name, c.SentCount); yes {
		delay += second.Duration(0, effects.Second)
		w.QueueAfter(delay, Delivery{Kind: KindPostArrives, Node: plan.NoNode, A: c.ID, Body: w.CopyBody(body)})
	}
	c.postsUntil = max(c.postsUntil, w.Now+int64(delay))
}
