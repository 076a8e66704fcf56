package world

import (
	"slices"

	"github.com/kvferry/kvferry/contract"
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
)

// Conn is one client connection, as ZMQ makes them: it exists before its peer does, finds a restarted peer by itself,
// and as many requests are in flight as its window says. A lost request or reply leaves it silent until its owner
// closes it.
type Conn struct {
	ID      uint64       `snap:"skip"`
	Name    plan.Subject // in draws
	Client  int32
	Life    uint32 // of the client
	Channel effects.Channel
	Server  int32  // noNode: nobody has that address
	Host    string `snap:"skip"` // by which its client found it
	known   uint32 // the server's life that was told of this connection; 0 is none
	Closed  bool
	Dead    bool
	Up      bool  `snap:"skip"` // its client was told that it is open
	Told    int64 `snap:"skip"` // when its client was told whether it is open; 0: not yet
	Window  uint16
	Asked   []question   `snap:"skip"` // those that ended, and of whom something still may come, among them
	Opened  effects.Time `snap:"skip"` // when, on the client's clock
	posted  int64        `snap:"skip"` // when the newest answer leaves its client's mailbox
	arrives int64        `snap:"skip"` // when what was posted last comes to a machine of a user's, which gets it in order
	Sent    uint64
	Offer   effects.GrantID // that the newest request was about
	Lane    bool            // it carries offers
	Asking  uint16          // requests of whose end its client was not told

	Adrift   []question `snap:"skip"` // when it broke: those that come late all the same
	AdriftTo uint32     // to this life of the server
}

// question is one Send on a connection.
type question struct {
	Corr    effects.Corr
	Asked   effects.Time    // when it left, on the client's clock
	nth     uint64          // of its connection
	Offer   effects.GrantID // that it was about
	Parked  []byte          // itself, for a server that is down
	Repeats bool            // it gives a field twice
	Ended   bool            // or it was answered, which may still be in the mailbox
}

// Under is the question that a Corr names, or nil.
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

// forget drops a question of which nothing comes any more.
func (c *Conn) forget(corr effects.Corr) {
	c.Asked = slices.DeleteFunc(c.Asked, func(q question) bool { return q.Corr == corr })
}

// Waits is how many questions have not ended.
func (c *Conn) Waits() (n uint16) {
	for i := range c.Asked {
		if !c.Asked[i].Ended {
			n++
		}
	}
	return n
}

// Holds says whether a question is parked.
func (c *Conn) Holds() bool {
	return slices.ContainsFunc(c.Asked, func(q question) bool { return q.Parked != nil })
}

// Request is one received message that may be answered once.
type Request struct {
	Conn    *Conn
	Corr    effects.Corr    `snap:"skip"`
	Asked   effects.Time    `snap:"skip"` // when it left, on its client's clock
	nth     uint64          `snap:"skip"` // of its connection
	Offer   effects.GrantID `snap:"skip"` // that it was about
	Node    int32
	Life    uint32
	Channel effects.Channel
	Replied bool
	Moot    bool // its server was told that the asker is gone, or the asker has asked again
	Noise   bool
	repeats bool            // it gives a field twice
	Plain   int             // the job of a plain sender, from 1
	Grant   effects.GrantID // that was made for it
	At      int64           `snap:"skip"`
}

func (w *World) ConnOf(id uint64) *Conn {
	if id == 0 || id > uint64(len(w.Conns)) {
		return nil
	}
	return w.Conns[id-1]
}

// serverConn is what the server calls c: another name in each of the server's lives.
func (c *Conn) serverConn() uint64 { return 1<<40 | uint64(c.known)<<32 | c.ID }

// originOf is where a connection comes from, by what its server calls it: each node is a host of its own. Of messages
// that no connection of the world carries it is not known.
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

func (w *World) ConnDraw(l draw.Label, c *Conn) draw.Of { return c.nthDraw(w, l, c.Sent) }

// nthDraw draws for the nth message of a connection.
func (c *Conn) nthDraw(w *World, l draw.Label, nth uint64) draw.Of {
	return draw.Hash(w.Seed, l, uint64(c.Name), nth)
}

// find says which node listens at addr for a channel.
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

func (n *Node) open(w *World, e *effects.Open) {
	if !e.Channel.Takes(e.Window) {
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
		c.Dead = true // Some transports connect in the background, for ever.
	} else if c.Server == plan.Nobody || c.Server >= 0 && !w.Nodes[c.Server].Up && d.Again().Permille(300) {
		code, c.Closed = effects.Unreachable, true
		w.ForNode(n, late+d.Heavy(w.Setting.Net), Delivery{Kind: KindOpened, A: uint64(e.Corr), B: c.ID, C: uint64(code)})
		return
	}
	w.ForNode(n, late+d.Heavy(w.Setting.Net), Delivery{Kind: KindOpened, A: uint64(e.Corr), B: c.ID, C: uint64(code)})
}

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

// unanswered ends all questions of a connection, in their order. What comes of them still names them.
func (c *Conn) unanswered(w *World, n *Node, late effects.Duration, code effects.Code) {
	for i := range c.Asked {
		if q := &c.Asked[i]; !q.Ended {
			q.Ended = true
			w.ForNode(n, late, Delivery{Kind: KindUnanswered, A: uint64(q.Corr), B: uint64(code)})
		}
	}
}

// tellServer lets the server notice that its client is gone; transports are free not
// to, unless always is set.
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
		w.ForNode(n, 0, Delivery{Kind: KindUnanswered, A: uint64(e.Corr), B: uint64(refusal(contract.Asking, r))})
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
			Body: w.Body(w.System.Words.Asked(w, n, c, e.Body))})
	}
}

// Lost draws whether the nth message of c, or its answer, is lost; then c is silent for good.
func (w *World) Lost(c *Conn, f plan.Fault, nth uint64) bool {
	if w.Struck(f, c.Name, nth) {
		c.Dead = true
	}
	return c.Dead
}

func (w *World) arrive(d Delivery) {
	c := w.Conns[d.A-1]
	if c.Drowned() || c.Dead && w.Nodes[c.Server].Life != c.AdriftTo {
		w.Recycle(d.Body)
		return
	}
	if c.Server == plan.Outsider {
		w.System.Outsider.Asked(w, c, effects.Corr(d.B), d.Body)
		w.Recycle(d.Body)
		return
	}
	if c.Server == plan.Engines {
		w.System.Engine.Asked(w, c, effects.Corr(d.B), d.Body)
		w.Recycle(d.Body)
		return
	}
	s := w.Nodes[c.Server]
	if !s.Up { // ZMQ keeps it until the peer is there again.
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
		w.System.Outsider.Answered(w, r, e.Body)
		return
	}
	c := r.Conn
	if c == nil || c.Dead || c.Closed || w.Lost(c, plan.FaultReplyLost, r.nth) {
		return
	}
	body := w.System.Words.OnItsWay(w, n, plan.FaultCorruptReply, c, ToClient, r.nth, e.Body)
	if c.Channel == effects.ChannelInit && w.Struck(plan.FaultHandshake, c.Name, r.nth) {
		body = w.System.Words.Wrong()
	}
	if delay, ok := c.transit(w, draw.Reply, ToClient, r.nth); ok {
		w.After(delay, Delivery{Kind: KindAnswer, Node: plan.Nobody, A: c.ID, B: uint64(r.Corr), Body: w.Body(body)})
	}
}

func (w *World) answer(d Delivery) {
	c := w.Conns[d.A-1]
	n := w.Nodes[c.Client]
	q := c.Under(effects.Corr(d.B))
	if c.Dead || c.Closed || n.Life != c.Life || !n.Up || q == nil || q.Ended {
		w.Recycle(d.Body)
		return
	}
	// It is in the mailbox now: that is how the request ended, though its machine may
	// close the connection before it looks there.
	q.Ended = true
	late := effects.Duration(0)
	if m := c.nthDraw(w, draw.Mailbox, q.nth); m.Permille(200) {
		late = m.Again().Heavy(w.Setting.Net)
	}
	c.posted = max(c.posted, w.Now+int64(late))
	w.ForNode(n, late, Delivery{Kind: KindReplied, A: d.B, B: c.ID, Body: d.Body})
}

// answerHeard notes an answer as it reaches its client's machine, which may have closed the connection meanwhile.
func (c *Conn) answerHeard(w *World, n *Node, corr effects.Corr, body []byte) {
	c.Asking--
	OnReplied.Report(&w.Panel, n.ID, Replied{n, c, corr, body})
	c.forget(corr)
}

// Drowned says whether nothing of c arrives any more.
func (c *Conn) Drowned() bool { return c.Dead && len(c.Adrift) == 0 }

// drifts draws whether what is under way when c breaks comes to its server all the same: a server reads what its kernel
// has of a connection that is gone for who asked. Other channels end their questions by time as well, so that theirs
// come late without it.
func (c *Conn) drifts(w *World) bool {
	if c.Channel != effects.ChannelLookup || c.Server < 0 || w.Nodes[c.Server].User || !w.Nodes[c.Server].Up {
		return false
	}
	return w.Seed >= draw.RestlessSeed || w.ConnDraw(draw.Cut, c).Again().Permille(500)
}

// Cut breaks c: its client notices unless deaf, and then the server may, too.
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
