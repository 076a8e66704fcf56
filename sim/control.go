package sim

import (
	"slices"

	"github.com/kvferry/kvferry/contract"
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
)

// conn is one client connection, as ZMQ makes them: it exists before its peer does,
// finds a restarted peer by itself, and as many requests are in flight as its window
// says. A lost request or reply leaves it silent until its owner closes it.
type conn struct {
	id      uint64       `snap:"skip"`
	name    plan.Subject // in draws
	client  int32
	life    uint32 // of the client
	channel effects.Channel
	server  int32  // noNode: nobody has that address
	known   uint32 // the server's life that was told of this connection; 0 is none
	closed  bool
	dead    bool
	up      bool `snap:"skip"` // its client was told that it is open
	window  uint16
	asked   []question   `snap:"skip"` // those that ended, and of whom something still may come, among them
	opened  effects.Time `snap:"skip"` // when, on the client's clock
	posted  int64        `snap:"skip"` // when the newest answer leaves its client's mailbox
	sent    uint64
	offer   effects.GrantID // that the newest request was about
	lane    bool            // it carries offers
	asking  uint16          // requests of whose end its client was not told
}

// question is one Send on a connection.
type question struct {
	corr    effects.Corr
	asked   effects.Time    // when it left, on the client's clock
	nth     uint64          // of its connection
	offer   effects.GrantID // that it was about
	parked  []byte          // itself, for a server that is down
	repeats bool            // it gives a field twice
	ended   bool            // or it was answered, which may still be in the mailbox
}

// under is the question that a Corr names, or nil.
func (c *conn) under(corr effects.Corr) *question {
	for i := range c.asked {
		if c.asked[i].corr == corr {
			return &c.asked[i]
		}
	}
	return nil
}

// forget drops a question of which nothing comes any more.
func (c *conn) forget(corr effects.Corr) {
	c.asked = slices.DeleteFunc(c.asked, func(q question) bool { return q.corr == corr })
}

// waits is how many questions have not ended.
func (c *conn) waits() (n uint16) {
	for i := range c.asked {
		if !c.asked[i].ended {
			n++
		}
	}
	return n
}

// holds says whether a question is parked.
func (c *conn) holds() bool {
	return slices.ContainsFunc(c.asked, func(q question) bool { return q.parked != nil })
}

// request is one received message that may be answered once.
type request struct {
	conn    *conn
	corr    effects.Corr    `snap:"skip"`
	asked   effects.Time    `snap:"skip"` // when it left, on its client's clock
	nth     uint64          `snap:"skip"` // of its connection
	offer   effects.GrantID `snap:"skip"` // that it was about
	node    int32
	life    uint32
	channel effects.Channel
	replied bool
	moot    bool // its server was told that the asker is gone, or the asker has asked again
	noise   bool
	repeats bool            // it gives a field twice
	plain   int             // the job of a plain sender, from 1
	grant   effects.GrantID // that was made for it
	at      int64           `snap:"skip"`
}

func (w *world) connOf(id uint64) *conn {
	if id == 0 || id > uint64(len(w.conns)) {
		return nil
	}
	return w.conns[id-1]
}

// serverConn is what the server calls c: another name in each of the server's lives.
func (c *conn) serverConn() uint64 { return 1<<40 | uint64(c.known)<<32 | c.id }

func (w *world) connDraw(l draw.Label, c *conn) draw.Of { return w.nthDraw(l, c, c.sent) }

// nthDraw draws for the nth message of a connection.
func (w *world) nthDraw(l draw.Label, c *conn, nth uint64) draw.Of {
	return draw.Hash(w.seed, l, uint64(c.name), nth)
}

// find says which node listens at addr for a channel.
func (w *world) find(a effects.Addr, ch effects.Channel) int32 {
	if ch == effects.ChannelProxy && a.Host == w.proxyHost {
		return w.cast.proxy
	}
	if ch == ChannelDispatch && a.Host == enginesHost && w.cast.ranks > 0 {
		return plan.Engines
	}
	if a.Host == outsiderHost {
		return plan.Outsider
	}
	if n := w.at(a, ch); n != nil && n.serves(ch) {
		return n.id
	}
	return plan.Nobody
}

func (w *world) open(n *node, e *effects.Open) {
	if !e.Channel.Takes(e.Window) {
		w.fail("contract", "node %d opens %v with a window of %d", n.it(), e.Channel, e.Window)
		return
	}
	c := w.stock.conns.one(conn{id: uint64(len(w.conns) + 1), client: n.id, life: n.life, channel: e.Channel,
		window: max(e.Window, 1), server: w.find(e.Addr, e.Channel), opened: w.clock(n)})
	c.name = plan.AboutConn(n.id, n.life, c.server, e.Channel, 0)
	n.opened[c.name]++
	c.name = plan.AboutConn(n.id, n.life, c.server, e.Channel, n.opened[c.name])
	w.conns = append(w.conns, c)
	w.going.conns.add(c)
	w.oracles.onOpen(n, c)
	d := w.draw(draw.Open, n)
	code, late := effects.OK, effects.Duration(0)
	if r, yes := w.strikes(plan.FaultDelay, c.name, 0); yes {
		late = r.Span(0, effects.Second)
	}
	if r, yes := w.strikes(plan.FaultRefused, c.name, 0); yes {
		c.closed = true
		w.forNode(n, 0, delivery{kind: kindOpened, a: uint64(e.Corr), b: c.id, c: uint64(refusal(contract.Opening, r))})
		return
	}
	if c.server == plan.Nobody && d.Again().Again().Permille(500) {
		c.dead = true // Some transports connect in the background, for ever.
	} else if c.server == plan.Nobody || c.server >= 0 && !w.nodes[c.server].up && d.Again().Permille(300) {
		code, c.closed = effects.Unreachable, true
		w.forNode(n, late+d.Heavy(w.plan.Net), delivery{kind: kindOpened, a: uint64(e.Corr), b: c.id, c: uint64(code)})
		return
	}
	w.forNode(n, late+d.Heavy(w.plan.Net), delivery{kind: kindOpened, a: uint64(e.Corr), b: c.id, c: uint64(code)})
}

func (w *world) close(n *node, e *effects.Close) {
	c := w.connOf(uint64(e.Conn))
	if c == nil || c.client != n.id || c.life != n.life || c.closed {
		w.fail("contract", "node %d closes connection %d, which it does not have", n.it(), oracle.Conn(e.Conn))
		return
	}
	c.closed = true
	w.unanswered(n, c, 0, effects.Closed)
	w.tellServer(c, false)
}

// unanswered ends all questions of a connection, in their order. What comes of them still names them.
func (w *world) unanswered(n *node, c *conn, late effects.Duration, code effects.Code) {
	for i := range c.asked {
		if q := &c.asked[i]; !q.ended {
			q.ended = true
			w.forNode(n, late, delivery{kind: kindUnanswered, a: uint64(q.corr), b: uint64(code)})
		}
	}
}

// tellServer lets the server notice that its client is gone; transports are free not
// to, unless always is set.
func (w *world) tellServer(c *conn, always bool) {
	if c.server < 0 || c.known == 0 || c.channel.Order() == effects.OneWay {
		return
	}
	s := w.nodes[c.server]
	d := w.connDraw(draw.Notice, c)
	if s.up && s.life == c.known && (always || d.Permille(500)) {
		w.forNode(s, d.Again().Heavy(w.plan.Net), delivery{kind: kindConnLost, a: c.serverConn()})
	}
}

func (w *world) send(n *node, e *effects.Send) {
	c := w.connOf(uint64(e.Conn))
	if c == nil || c.client != n.id || c.life != n.life || c.closed {
		w.fail("contract", "node %d sends on connection %d, which it does not have", n.it(), oracle.Conn(e.Conn))
		return
	}
	if waits := c.waits(); waits >= c.window {
		w.fail("contract", "node %d sends on connection %d while %d of %d requests are in flight on it",
			n.it(), oracle.Conn(e.Conn), waits, c.window)
		return
	}
	w.oracles.onSend(n, c, e.Body)
	c.sent++
	c.asking++
	if n.own == nil {
		w.sentAgain(n, c, e.Corr, e.Body)
	}
	w.result.Messages++
	if r, yes := w.strikes(plan.FaultRefused, c.name, c.sent); yes {
		w.forNode(n, 0, delivery{kind: kindUnanswered, a: uint64(e.Corr), b: uint64(refusal(contract.Asking, r))})
		return
	}
	if n.own == nil {
		w.overhear(e.Body)
	}
	c.asked = append(c.asked, question{corr: e.Corr, asked: w.clock(n), nth: c.sent, offer: c.offer})
	if c.dead || w.lost(c, plan.FaultRequestLost, c.sent) {
		return
	}
	if delay, ok := w.transit(c, draw.Request, toServer, c.sent); ok {
		w.after(delay, delivery{kind: kindArrive, node: plan.Nobody, a: c.id, b: uint64(e.Corr),
			body: w.body(w.request(n, c, e.Body))})
	}
}

// lost draws whether the nth message of c, or its answer, is lost; then c is silent for good.
func (w *world) lost(c *conn, f plan.Fault, nth uint64) bool {
	if w.struck(f, c.name, nth) {
		c.dead = true
	}
	return c.dead
}

func (w *world) arrive(d delivery) {
	c := w.conns[d.a-1]
	if c.dead {
		w.recycle(d.body)
		return
	}
	if c.server == plan.Outsider {
		w.system.outsider.asked(w, c, effects.Corr(d.b), d.body)
		w.recycle(d.body)
		return
	}
	if c.server == plan.Engines {
		w.dispatched(c, effects.Corr(d.b), d.body)
		w.recycle(d.body)
		return
	}
	s := w.nodes[c.server]
	if !s.up { // ZMQ keeps it until the peer is there again.
		if c.closed {
			w.recycle(d.body)
			return
		}
		c.under(effects.Corr(d.b)).parked = d.body
		return
	}
	c.known = s.life
	q := c.under(effects.Corr(d.b))
	w.requests = append(w.requests, request{conn: c, corr: q.corr, asked: q.asked, nth: q.nth, offer: q.offer,
		node: s.id, life: s.life, channel: c.channel, repeats: q.repeats, at: w.now})
	w.forNode(s, 0, delivery{kind: kindReceived, a: c.serverConn(), b: uint64(c.channel), c: uint64(len(w.requests)), body: d.body})
}

func (w *world) reply(n *node, e *effects.Reply) {
	if e.Request == 0 || uint64(e.Request) > uint64(len(w.requests)) {
		w.fail("S10", "node %d answers request %d, which never was", n.it(), oracle.Message(e.Request))
		return
	}
	r := &w.requests[e.Request-1]
	switch {
	case r.node != n.id || r.life != n.life:
		w.fail("S12", "node %d answers request %d of another life or node", n.it(), oracle.Message(e.Request))
		return
	case r.replied:
		w.fail("S10", "node %d answers request %d twice", n.it(), oracle.Message(e.Request))
		return
	}
	r.replied = true
	w.oracles.onReply(n, uint64(e.Request), e.Body)
	if r.plain != 0 {
		w.system.outsider.answered(w, r, e.Body)
		return
	}
	c := r.conn
	if c == nil || c.dead || c.closed || w.lost(c, plan.FaultReplyLost, r.nth) {
		return
	}
	body := w.onItsWay(n, plan.FaultCorruptReply, c, toClient, r.nth, e.Body)
	if c.channel == effects.ChannelInit && w.struck(plan.FaultHandshake, c.name, r.nth) {
		body = w.system.words.wrong()
	}
	if delay, ok := w.transit(c, draw.Reply, toClient, r.nth); ok {
		w.after(delay, delivery{kind: kindAnswer, node: plan.Nobody, a: c.id, b: uint64(r.corr), body: w.body(body)})
	}
}

func (w *world) answer(d delivery) {
	c := w.conns[d.a-1]
	n := w.nodes[c.client]
	q := c.under(effects.Corr(d.b))
	if c.dead || c.closed || n.life != c.life || !n.up || q == nil || q.ended {
		w.recycle(d.body)
		return
	}
	// It is in the mailbox now: that is how the request ended, though its machine may
	// close the connection before it looks there.
	q.ended = true
	late := effects.Duration(0)
	if m := w.nthDraw(draw.Mailbox, c, q.nth); m.Permille(200) {
		late = m.Again().Heavy(w.plan.Net)
	}
	c.posted = max(c.posted, w.now+int64(late))
	w.forNode(n, late, delivery{kind: kindReplied, a: d.b, b: c.id, body: d.body})
}

// answerHeard notes an answer as it reaches its client's machine, which may have closed the connection meanwhile.
func (w *world) answerHeard(n *node, c *conn, corr effects.Corr, body []byte) {
	c.asking--
	if n.own == nil {
		n.answeredBefore(corr)
	}
	w.oracles.onReplied(n, c, c.under(corr).offer, body)
	c.forget(corr)
}

// cut breaks c: its client notices unless deaf, and then the server may, too.
func (w *world) cut(c *conn, deaf bool) {
	if c.closed || c.dead {
		return
	}
	c.dead = true
	w.tellServer(c, !deaf)
	if deaf {
		return
	}
	n := w.nodes[c.client]
	at := max(w.connDraw(draw.Cut, c).Heavy(w.plan.Net), effects.Duration(c.posted-w.now))
	w.unanswered(n, c, at, effects.PeerLost)
	w.forNode(n, at, delivery{kind: kindConnLost, a: c.id})
}
