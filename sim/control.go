package sim

import (
	"github.com/kvferry/kvferry/contract"
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
)

// conn is one client connection, as ZMQ makes them: it exists before its peer does,
// finds a restarted peer by itself, and one request is in flight at a time. A lost
// request or reply leaves it silent until its owner closes it.
type conn struct {
	id      uint64  `snap:"skip"`
	name    Subject // in draws
	client  int32
	life    uint32 // of the client
	channel effects.Channel
	server  int32  // noNode: nobody has that address
	known   uint32 // the server's life that was told of this connection; 0 is none
	closed  bool
	dead    bool
	waiting effects.Corr `snap:"skip"` // the outstanding Send
	asked   effects.Time `snap:"skip"` // when that left, or it was opened, on the client's clock
	parked  []byte       // a request for a server that is down
	posted  int64        `snap:"skip"` // when the newest answer leaves its client's mailbox
	sent    uint64
	offer   effects.GrantID // that the newest request was about
	lane    bool            // it carries offers
	asking  bool            // it carries a request of whose end its client was not told
}

const (
	noNode    int32 = -1
	proxyNode int32 = -2
)

// request is one received message that may be answered once.
type request struct {
	conn    *conn
	corr    effects.Corr `snap:"skip"`
	node    int32
	life    uint32
	channel effects.Channel
	replied bool
	moot    bool // its server was told that the asker is gone, or the asker has asked again
	noise   bool
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

func (w *world) connDraw(l label, c *conn) draw {
	return hash(w.seed, l, uint64(c.name), c.sent)
}

// find says which node listens at addr for a channel.
func (w *world) find(a effects.Addr, ch effects.Channel) int32 {
	if ch == effects.ChannelProxy {
		if a.Host == w.proxyHost {
			return proxyNode
		}
		return noNode
	}
	if a.Host == plainHost {
		return plainNode
	}
	if n := w.at(a, ch); n != nil && n.serves(ch) {
		return n.id
	}
	return noNode
}

func (w *world) open(n *node, e *effects.Open) {
	c := w.stock.conns.one(conn{id: uint64(len(w.conns) + 1), client: n.id, life: n.life, channel: e.Channel,
		server: w.find(e.Addr, e.Channel), asked: w.clock(n)})
	c.name = aboutConn(n.id, n.life, c.server, e.Channel, 0)
	n.opened[c.name]++
	c.name = aboutConn(n.id, n.life, c.server, e.Channel, n.opened[c.name])
	w.conns = append(w.conns, c)
	w.going.conns.add(c)
	w.ledger.connecting(n, c)
	d := w.draw(drawOpen, n)
	code, late := effects.OK, effects.Duration(0)
	if r, yes := w.strikes(FaultDelay, c.name, 0); yes {
		late = r.span(0, effects.Second)
	}
	if r, yes := w.strikes(FaultRefused, c.name, 0); yes {
		c.closed = true
		w.forNode(n, 0, delivery{kind: kindOpened, a: uint64(e.Corr), b: c.id, c: uint64(refusal(contract.Opening, r))})
		return
	}
	if c.server == noNode && d.again().again().permille(500) {
		c.dead = true // Some transports connect in the background, for ever.
	} else if c.server == noNode || c.server >= 0 && !w.nodes[c.server].up && d.again().permille(300) {
		code, c.closed = effects.Unreachable, true
		w.forNode(n, late+d.heavy(w.plan.Net), delivery{kind: kindOpened, a: uint64(e.Corr), b: c.id, c: uint64(code)})
		return
	}
	w.forNode(n, late+d.heavy(w.plan.Net), delivery{kind: kindOpened, a: uint64(e.Corr), b: c.id, c: uint64(code)})
}

func (w *world) close(n *node, e *effects.Close) {
	c := w.connOf(uint64(e.Conn))
	if c == nil || c.client != n.id || c.life != n.life || c.closed {
		w.fail("contract", "node %d closes connection %d, which it does not have", n.it(), oracle.Conn(e.Conn))
		return
	}
	c.closed = true
	if c.waiting != 0 {
		w.forNode(n, 0, delivery{kind: kindUnanswered, a: uint64(c.waiting), b: uint64(effects.Closed)})
		c.waiting = 0
	}
	w.tellServer(c, false)
}

// tellServer lets the server notice that its client is gone; transports are free not
// to, unless always is set.
func (w *world) tellServer(c *conn, always bool) {
	if c.server < 0 || c.known == 0 || c.channel.Order() == effects.OneWay {
		return
	}
	s := w.nodes[c.server]
	d := w.connDraw(drawNotice, c)
	if s.up && s.life == c.known && (always || d.permille(500)) {
		w.forNode(s, d.again().heavy(w.plan.Net), delivery{kind: kindConnLost, a: c.serverConn()})
	}
}

func (w *world) send(n *node, e *effects.Send) {
	c := w.connOf(uint64(e.Conn))
	if c == nil || c.client != n.id || c.life != n.life || c.closed {
		w.fail("contract", "node %d sends on connection %d, which it does not have", n.it(), oracle.Conn(e.Conn))
		return
	}
	if c.waiting != 0 {
		w.fail("contract", "node %d sends on connection %d while a request is in flight on it", n.it(), oracle.Conn(e.Conn))
		return
	}
	w.ledger.asking(n, c, e.Body)
	w.ledger.spoke(n, c)
	w.ledger.offering(n, c, e.Body)
	c.waiting, c.asked, c.asking = e.Corr, w.clock(n), true
	c.sent++
	w.result.Messages++
	if r, yes := w.strikes(FaultRefused, c.name, c.sent); yes {
		c.waiting = 0
		w.forNode(n, 0, delivery{kind: kindUnanswered, a: uint64(e.Corr), b: uint64(refusal(contract.Asking, r))})
		return
	}
	w.overhear(e.Body)
	if c.dead || w.lost(c, FaultRequestLost) {
		return
	}
	if delay, ok := w.transit(c, drawRequest, toServer); ok {
		w.after(delay, delivery{kind: kindArrive, node: noNode, a: c.id, b: uint64(e.Corr), body: w.body(w.corrupt(FaultCorruptRequest, c, e.Body))})
	}
}

// lost draws whether a message of c is lost; then c is silent for good.
func (w *world) lost(c *conn, f Fault) bool {
	if w.struck(f, c.name, c.sent) {
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
	if c.server == plainNode {
		w.plainAsked(c, effects.Corr(d.b), d.body)
		w.recycle(d.body)
		return
	}
	s := w.nodes[c.server]
	if !s.up { // ZMQ keeps it until the peer is there again.
		if c.closed {
			w.recycle(d.body)
			return
		}
		c.parked = d.body
		return
	}
	c.known = s.life
	w.requests = append(w.requests, request{conn: c, corr: effects.Corr(d.b), node: s.id, life: s.life, channel: c.channel, at: w.now})
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
	w.ledger.answered(n, uint64(e.Request), e.Body)
	if r.plain != 0 {
		w.plainReply(r, e.Body)
		return
	}
	c := r.conn
	if c == nil || c.dead || c.closed || w.lost(c, FaultReplyLost) {
		return
	}
	body := w.corrupt(FaultCorruptReply, c, e.Body)
	if c.channel == effects.ChannelInit && w.struck(FaultHandshake, c.name, c.sent) {
		body = wrongAnswer()
	}
	if delay, ok := w.transit(c, drawReply, toClient); ok {
		w.after(delay, delivery{kind: kindAnswer, node: noNode, a: c.id, b: uint64(r.corr), body: w.body(body)})
	}
}

func (w *world) answer(d delivery) {
	c := w.conns[d.a-1]
	n := w.nodes[c.client]
	if c.dead || c.closed || n.life != c.life || !n.up || c.waiting != effects.Corr(d.b) {
		w.recycle(d.body)
		return
	}
	// It is in the mailbox now: that is how the request ended, though its machine may
	// close the connection before it looks there.
	c.waiting = 0
	late := effects.Duration(0)
	if m := w.connDraw(drawMailbox, c); m.permille(200) {
		late = m.again().heavy(w.plan.Net)
	}
	c.posted = w.now + int64(late)
	w.forNode(n, late, delivery{kind: kindReplied, a: d.b, b: c.id, body: d.body})
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
	at := max(w.connDraw(drawCut, c).heavy(w.plan.Net), effects.Duration(c.posted-w.now))
	if c.waiting != 0 {
		w.forNode(n, at, delivery{kind: kindUnanswered, a: uint64(c.waiting), b: uint64(effects.PeerLost)})
		c.waiting = 0
	}
	w.forNode(n, at, delivery{kind: kindConnLost, a: c.id})
}
