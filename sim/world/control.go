package world

import (
	"slices"

	"github.com/kvferry/kvferry/contract"
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
)

// Conn is a client connection with the behaviour of a ZMQ socket. The connection may exist before the peer does, and
// finds a restarted peer by itself. Window limits the number of requests in flight. If a request or a reply is lost,
// the connection stays silent until its owner closes it.
type Conn struct {
	ID      uint64       `snap:"skip"`
	Name    plan.Subject // in draws
	Client  int32
	Life    uint32 // incarnation of the client
	Channel effects.Channel
	Server  int32  // plan.Nobody: no node has that address
	Host    string `snap:"skip"` // by which the client addressed the server
	known   uint32 // the server's incarnation that last received from the client; 0 also if none
	Closed  bool
	Dead    bool  // nothing arrives any more, except for Stragglers
	Up      bool  `snap:"skip"` // the client was notified that it is open
	Told    int64 `snap:"skip"` // when the client was notified whether it is open; 0: not yet
	Window  uint16
	Asked   []question      `snap:"skip"` // includes ended requests that may still get a reply
	Opened  effects.Time    `snap:"skip"` // on the client's clock
	posted  int64           `snap:"skip"` // when the newest reply leaves the client's mailbox
	arrives int64           `snap:"skip"` // when the newest post reaches a user's machine, which receives posts in order
	Sent    uint64          // number of messages sent on the connection
	Offer   effects.GrantID // the offer that the newest request is about
	Lane    bool            // the connection carries offers
	Asking  uint16          // requests that the client does not know to have ended

	Adrift   []question `snap:"skip"` // requests in flight when the connection broke that arrive all the same
	AdriftTo uint32     // the server's incarnation at which the stragglers arrive
}

// question is a Send on a connection.
type question struct {
	Corr    effects.Corr
	Asked   effects.Time    // when it was sent, on the client's clock
	nth     uint64          // its number on the connection
	Offer   effects.GrantID // the offer that it is about
	Parked  []byte          // the message, while the server is down
	Repeats bool            // it gives a field twice
	Ended   bool            // unanswered, or answered; the reply may still be in the mailbox
}

// Under returns the request with the given Corr, or nil.
func (c *Conn) Under(corr effects.Corr) *question {
	for i := range c.Adrift {
		if c.Adrift[i].Corr == corr {
			return &c.Adrift[i]
		}
	}
	for i := range c.Asked {
		if c.Asked[i].Corr == corr {
			return &c.Asked[i]
		}
	}
	return nil
}

// forget removes a request that cannot get a reply any more.
func (c *Conn) forget(corr effects.Corr) {
	c.Asked = slices.DeleteFunc(c.Asked, func(q question) bool { return q.Corr == corr })
}

// Waits returns the number of requests that have not ended.
func (c *Conn) Waits() (n uint16) {
	for i := range c.Asked {
		if !c.Asked[i].Ended {
			n++
		}
	}
	return n
}

// Holds reports whether a request is parked for a server that is down.
func (c *Conn) Holds() bool {
	return slices.ContainsFunc(c.Asked, func(q question) bool { return q.Parked != nil })
}

// Request is a received message that may be answered once.
type Request struct {
	Conn    *Conn
	Corr    effects.Corr    `snap:"skip"`
	Asked   effects.Time    `snap:"skip"` // when it was sent, on its client's clock
	nth     uint64          `snap:"skip"` // its number on the connection
	Offer   effects.GrantID `snap:"skip"` // the offer that it is about
	Node    int32
	Life    uint32
	Channel effects.Channel
	Replied bool
	Moot    bool            // the server knows that the client is gone, or the client has repeated the request
	Noise   bool            // sent by a stranger
	repeats bool            // it gives a field twice
	Plain   int             // the job of the plain sender that sent it, from 1
	Grant   effects.GrantID // the grant that was made for it
	At      int64           `snap:"skip"`
}

// ConnOf returns the connection with the given id, or nil.
func (w *World) ConnOf(id uint64) *Conn {
	if id == 0 || id > uint64(len(w.Conns)) {
		return nil
	}
	return w.Conns[id-1]
}

// serverConnID returns the id by which the server knows c. The id differs in each of the server's incarnations.
func (c *Conn) serverConn() uint64 { return 1<<40 | uint64(c.known)<<32 | c.ID }

// originOf returns the origin of a connection, given the id by which its server knows it. Each node is a host of its
// own. The origin of messages that do not arrive on a connection of the world is unknown.
func (w *World) originOf(serverConn uint64) effects.Origin {
	if kind := serverConn >> 40; kind != 1 && kind != 2 {
		return 0
	}
	c := w.ConnOf(serverConn & (1<<32 - 1))
	if c == nil {
		return 0
	}
	return effects.Origin(c.Client) + 1
}

// ConnDraw draws for the newest message of a connection.
func (w *World) ConnDraw(l draw.Label, c *Conn) draw.Of { return c.nthDraw(w, l, c.Sent) }

// nthDraw draws for the nth message of a connection.
func (c *Conn) nthDraw(w *World, l draw.Label, nth uint64) draw.Of {
	return draw.Hash(w.Seed, l, uint64(c.Name), nth)
}

// find returns the node that listens at an address on a channel.
func (w *World) find(a effects.Addr, ch effects.Channel) int32 {
	if ch == effects.ChannelProxy && a.Host == w.ProxyHost {
		return w.Proxy
	}
	if ch == ChannelDispatch && a.Host == EnginesHost && w.Engines {
		return plan.Engines
	}
	if a.Host == OutsiderHost {
		return plan.Outsider
	}
	if n := w.At(a, ch); n != nil && n.serves(ch) {
		return n.ID
	}
	return plan.Nobody
}

// open carries out an [effects.Open].
func (n *Node) open(w *World, e *effects.Open) {
	if !e.Channel.AllowsWindow(e.Window) {
		w.Fail("contract", "node %d opens %v with a window of %d", n.It(), e.Channel, e.Window)
		return
	}
	c := w.Stock.conns.One(Conn{ID: uint64(len(w.Conns) + 1), Client: n.ID, Life: n.Life, Channel: e.Channel,
		Window: max(e.Window, 1), Server: w.find(e.Addr, e.Channel), Opened: w.Clock(n), Host: e.Addr.Host})
	c.Name = plan.AboutConn(n.ID, n.Life, c.Server, e.Channel, 0)
	n.opened[c.Name]++
	c.Name = plan.AboutConn(n.ID, n.Life, c.Server, e.Channel, n.opened[c.Name])
	w.Conns = append(w.Conns, c)
	w.Going.Conns.Add(c)
	OnOpening.Report(&w.Panel, n.ID, Opening{n, c})
	d := n.draw(w, draw.Open)
	code, late := effects.OK, effects.Duration(0)
	if r, yes := w.Strikes(plan.FaultDelay, c.Name, 0); yes {
		late = r.Span(0, effects.Second)
	}
	if r, yes := w.Strikes(plan.FaultRefused, c.Name, 0); yes {
		c.Closed = true
		w.ForNode(n, 0, Delivery{Kind: KindOpened, A: uint64(e.Corr), B: c.ID, C: uint64(refusal(contract.Opening, r))})
		return
	}
	if c.Server == plan.Nobody && d.Again().Again().Permille(500) {
		c.Dead = true // Some transports connect in the background without ever giving up.
	} else if c.Server == plan.Nobody || c.Server >= 0 && !w.Nodes[c.Server].Up && d.Again().Permille(300) {
		code, c.Closed = effects.Unreachable, true
		w.ForNode(n, late+d.Heavy(w.Setting.Net), Delivery{Kind: KindOpened, A: uint64(e.Corr), B: c.ID, C: uint64(code)})
		return
	}
	w.ForNode(n, late+d.Heavy(w.Setting.Net), Delivery{Kind: KindOpened, A: uint64(e.Corr), B: c.ID, C: uint64(code)})
}

// Close carries out an [effects.Close].
func (w *World) Close(n *Node, e *effects.Close) {
	c := w.ConnOf(uint64(e.Conn))
	if c == nil || c.Client != n.ID || c.Life != n.Life || c.Closed {
		w.Fail("contract", "node %d closes connection %d, which it does not have", n.It(), oracle.Conn(e.Conn))
		return
	}
	c.Closed = true
	c.unanswered(w, n, 0, effects.Closed)
	c.tellServer(w, false)
}

// unanswered ends all requests of a connection, in order. The requests stay in the list, because replies may still
// arrive.
func (c *Conn) unanswered(w *World, n *Node, late effects.Duration, code effects.Code) {
	for i := range c.Asked {
		if q := &c.Asked[i]; !q.Ended {
			q.Ended = true
			w.ForNode(n, late, Delivery{Kind: KindUnanswered, A: uint64(q.Corr), B: uint64(code)})
		}
	}
}

// tellServer lets the server notice that its client has disconnected. Transports need not report the disconnect; if
// always is set, the report is not omitted.
func (c *Conn) tellServer(w *World, always bool) {
	if c.Server < 0 || c.known == 0 || c.Channel.Order() == effects.OneWay {
		return
	}
	s := w.Nodes[c.Server]
	d := w.ConnDraw(draw.Notice, c)
	if s.Up && s.Life == c.known && (always || d.Permille(500)) {
		w.ForNode(s, d.Again().Heavy(w.Setting.Net), Delivery{Kind: KindConnLost, A: c.serverConn()})
	}
}

// send carries out an [effects.Send].
func (n *Node) send(w *World, e *effects.Send) {
	c := w.ConnOf(uint64(e.Conn))
	if c == nil || c.Client != n.ID || c.Life != n.Life || c.Closed {
		w.Fail("contract", "node %d sends on connection %d, which it does not have", n.It(), oracle.Conn(e.Conn))
		return
	}
	if waits := c.Waits(); waits >= c.Window {
		w.Fail("contract", "node %d sends on connection %d while %d of %d requests are in flight on it: "+
			"wait for Replied or Unanswered, close it and open another, or open it with a larger Window",
			n.It(), oracle.Conn(e.Conn), waits, c.Window)
		return
	}
	OnSending.Report(&w.Panel, n.ID, Sending{n, c, e.Corr, e.Body})
	c.Sent++
	c.Asking++
	w.Result.Messages++
	if r, yes := w.Strikes(plan.FaultRefused, c.Name, c.Sent); yes {
		w.ForNode(n, 0, Delivery{Kind: KindUnanswered, A: uint64(e.Corr), B: uint64(refusal(contract.Sending, r))})
		return
	}
	if !n.User {
		w.Overhear(e.Body)
	}
	c.Asked = append(c.Asked, question{Corr: e.Corr, Asked: w.Clock(n), nth: c.Sent, Offer: c.Offer})
	if c.Dead || w.Lost(c, plan.FaultRequestLost, c.Sent) {
		return
	}
	if delay, ok := c.transit(w, draw.Request, ToServer, c.Sent); ok {
		w.After(delay, Delivery{Kind: KindArrive, Node: plan.Nobody, A: c.ID, B: uint64(e.Corr),
			Body: w.Body(w.System.RequestInTransit(n, c, e.Body))})
	}
}

// Lost draws whether the nth message of c, or its reply, is lost. The connection is silent from then on.
func (w *World) Lost(c *Conn, f plan.Fault, nth uint64) bool {
	if w.Struck(f, c.Name, nth) {
		c.Dead = true
	}
	return c.Dead
}

// arrive delivers a request to its server.
func (w *World) arrive(d Delivery) {
	c := w.Conns[d.A-1]
	if c.Drowned() || c.Dead && w.Nodes[c.Server].Life != c.AdriftTo {
		w.Recycle(d.Body)
		return
	}
	if c.Server == plan.Outsider {
		w.System.OutsiderAsked(c, effects.Corr(d.B), d.Body)
		w.Recycle(d.Body)
		return
	}
	if c.Server == plan.Engines {
		w.System.Dispatched(c, effects.Corr(d.B), d.Body)
		w.Recycle(d.Body)
		return
	}
	s := w.Nodes[c.Server]
	if !s.Up { // ZMQ keeps the message until the peer is up again.
		if c.Closed {
			w.Recycle(d.Body)
			return
		}
		c.Under(effects.Corr(d.B)).Parked = d.Body
		return
	}
	c.known = s.Life
	q := c.Under(effects.Corr(d.B))
	w.Requests = append(w.Requests, Request{Conn: c, Corr: q.Corr, Asked: q.Asked, nth: q.nth, Offer: q.Offer,
		Node: s.ID, Life: s.Life, Channel: c.Channel, repeats: q.Repeats, At: w.Now})
	w.ForNode(s, 0, Delivery{Kind: KindReceived, A: c.serverConn(), B: uint64(c.Channel), C: uint64(len(w.Requests)),
		Body: d.Body})
}

// reply carries out an [effects.Reply].
func (n *Node) reply(w *World, e *effects.Reply) {
	if e.Request == 0 || uint64(e.Request) > uint64(len(w.Requests)) {
		w.Fail("S10", "node %d answers request %d, which never was", n.It(), oracle.Message(e.Request))
		return
	}
	r := &w.Requests[e.Request-1]
	switch {
	case r.Node != n.ID || r.Life != n.Life:
		w.Fail("S12", "node %d answers request %d of another incarnation or node", n.It(), oracle.Message(e.Request))
		return
	case r.Replied:
		w.Fail("S10", "node %d answers request %d twice", n.It(), oracle.Message(e.Request))
		return
	}
	r.Replied = true
	OnReplying.Report(&w.Panel, n.ID, Replying{n, uint64(e.Request), e.Body})
	if r.Plain != 0 {
		w.System.OutsiderAnswered(r, e.Body)
		return
	}
	c := r.Conn
	if c == nil || c.Dead || c.Closed || w.Lost(c, plan.FaultReplyLost, r.nth) {
		return
	}
	body := w.System.InTransit(n, plan.FaultCorruptReply, c, ToClient, r.nth, e.Body)
	if c.Channel == effects.ChannelInit && w.Struck(plan.FaultHandshake, c.Name, r.nth) {
		body = w.System.WrongReply()
	}
	if delay, ok := c.transit(w, draw.Reply, ToClient, r.nth); ok {
		w.After(delay, Delivery{Kind: KindAnswer, Node: plan.Nobody, A: c.ID, B: uint64(r.Corr), Body: w.Body(body)})
	}
}

// answer puts a reply into the mailbox of its client.
func (w *World) answer(d Delivery) {
	c := w.Conns[d.A-1]
	n := w.Nodes[c.Client]
	q := c.Under(effects.Corr(d.B))
	if c.Dead || c.Closed || n.Life != c.Life || !n.Up || q == nil || q.Ended {
		w.Recycle(d.Body)
		return
	}
	// The reply is in the mailbox now, so the request has ended, although the machine may close the connection before
	// it reads the mailbox.
	q.Ended = true
	late := effects.Duration(0)
	if m := c.nthDraw(w, draw.Mailbox, q.nth); m.Permille(200) {
		late = m.Again().Heavy(w.Setting.Net)
	}
	c.posted = max(c.posted, w.Now+int64(late))
	w.ForNode(n, late, Delivery{Kind: KindReplied, A: d.B, B: c.ID, Body: d.Body})
}

// answerHeard records that a reply reaches its client's machine, which may have closed the connection in the meantime.
func (c *Conn) answerHeard(w *World, n *Node, corr effects.Corr, body []byte) {
	c.Asking--
	OnReplied.Report(&w.Panel, n.ID, Replied{n, c, corr, body})
	c.forget(corr)
}

// Drowned reports whether nothing sent on c arrives any more.
func (c *Conn) Drowned() bool { return c.Dead && len(c.Adrift) == 0 }

// drifts draws whether messages that are in flight when c breaks arrive at the server all the same. A server still
// reads what its kernel has received on a connection that was lost for the client. On the remaining channels requests
// also end by time, so late messages occur there without stragglers.
func (c *Conn) drifts(w *World) bool {
	if c.Channel != effects.ChannelLookup || c.Server < 0 || w.Nodes[c.Server].User || !w.Nodes[c.Server].Up {
		return false
	}
	return w.Seed >= draw.RestlessSeed || w.ConnDraw(draw.Cut, c).Again().Permille(500)
}

// Cut breaks c. The client notices the break unless unnoticed is set, and the server may also notice the break.
func (w *World) Cut(c *Conn, deaf bool) {
	if c.Closed || c.Dead {
		return
	}
	c.Dead = true
	if c.drifts(w) && !deaf {
		c.Adrift, c.AdriftTo = append(c.Adrift[:0], c.Asked...), w.Nodes[c.Server].Life
	} else {
		c.tellServer(w, !deaf)
	}
	if deaf {
		return
	}
	n := w.Nodes[c.Client]
	at := max(w.ConnDraw(draw.Cut, c).Heavy(w.Setting.Net), effects.Duration(c.posted-w.Now))
	c.unanswered(w, n, at, effects.PeerLost)
	w.ForNode(n, at, Delivery{Kind: KindConnLost, A: c.ID})
}
