package sim

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
)

// A plain reader speaks LMCache and nothing of ours: it shakes hands, is offered chunks, reads them with its own
// hardware, answers, and says when it is done. It knows no lease, so what is lent to it stands until its
// word or until the mapping that it reads through is gone (rule M5). It is no node: it listens beside them.
type plainReader struct {
	pool  pool            // what links to it lead to
	node  node            // whose that is, in name
	has   map[uint32]bool // keys that it has read, by number
	reads []plainRead     // offers that it reads, the newest alone
	queue []plainRequest  // what waits: it has one thread for all senders
	busy  bool
}

// plainRequest is an offer that waits.
type plainRequest struct {
	conn *conn
	corr effects.Corr
	body []byte
}

// plainRead is one offer.
type plainRead struct {
	conn  *conn
	corr  effects.Corr
	owner *pool
	loan  *grant
	pull  protocol.PullID
	done  effects.Addr
	ids   []uint32 // keys by number
	pages []uint32
	parts []int   // that each chunk has
	sent  []int64 // places of those that it has
	step  int     // the half page that is loaded next
}

// plainAsked answers a request to it.
func (w *world) plainAsked(c *conn, corr effects.Corr, body []byte) {
	answer := func(b []byte) { w.plainAnswer(c, corr, b) }
	tag, err := protocol.PeekTag(body, &wireLimits)
	switch {
	case err != nil:
		answer(nil)
	case tag == protocol.TagHixlInitRequest:
		answer((&protocol.HixlInitResponse{EngineID: []byte("plain:1")}).Append(nil))
	case tag == protocol.TagHixlReadyRequest:
		answer((&protocol.HixlReadyResponse{OK: true}).Append(nil))
	case tag == protocol.TagHixlMemInfoRequest:
		answer((&protocol.HixlMemInfoResponse{}).Append(nil))
	case tag == protocol.TagPullReadyNotif:
		w.reader.queue = append(w.reader.queue, plainRequest{c, corr, w.stock.bytes.keep(body)})
		w.plainNext()
	default:
		answer(nil) // As it does with what it does not know: an empty frame.
	}
}

// plainAnswer sends a reply, unless it is lost: then nobody is told.
func (w *world) plainAnswer(c *conn, corr effects.Corr, body []byte) {
	if c.dead || c.closed || w.lost(c, plan.FaultReplyLost, c.sent) {
		return
	}
	w.after(w.connDraw(draw.Reply, c).Heavy(w.plan.Net),
		delivery{kind: kindAnswer, node: plan.Nobody, a: c.id, b: uint64(corr),
			body: w.body(w.writtenOnce(scribePlain, c.name, 2*c.sent+toClient, body))})
}

// plainNext goes on with the next offer.
func (w *world) plainNext() {
	if r := &w.reader; !r.busy && len(r.queue) > 0 {
		x := r.queue[0]
		r.queue = r.queue[1:]
		w.plainOffered(x.conn, x.corr, x.body)
	}
}

// plainOffered begins to read what it has not.
func (w *world) plainOffered(c *conn, corr effects.Corr, body []byte) {
	m := &w.oracles.truth.offer
	if m.Decode(body, &wireLimits) != nil || len(m.Keys) == 0 {
		w.plainAnswer(c, corr, nil)
		w.plainNext()
		return
	}
	if w.connDraw(draw.PlainReader, c).Permille(100) {
		w.plainAnswer(c, corr, (&protocol.PullReadyDoneAck{AllocFailed: true}).Append(nil)) // And says no more of it.
		w.plainNext()
		return
	}
	owner := w.nodes[c.client]
	if !w.lives(c.client, c.life) {
		w.plainNext() // Whose memory that was is gone, and its connections with it.
		return
	}
	x := plainRead{conn: c, corr: corr, owner: owner.pool, loan: owner.pool.loan(c.offer), pull: m.PullID}
	if at, err := protocol.ParseEndpoint(string(m.SenderDoneURL)); err == nil {
		x.done = effects.Addr{Host: at.Host, Port: at.Port}
	}
	for i, name := range m.Keys {
		id, ok := w.oracles.truth.keyNumber(name)
		switch {
		case !ok || m.SenderIndexes[i] < 0 || int(m.SenderIndexes[i]) >= len(x.owner.pages):
			w.fail("S9", "node %d offers a plain reader what it does not have", owner.it())
			return
		case w.reader.has[id]:
			x.sent = append(x.sent, int64(i))
		default:
			covered := parts
			if i == len(m.Keys)-1 {
				covered = int(m.LastChunkTokens)
			}
			x.ids, x.pages, x.parts = append(x.ids, id), append(x.pages, uint32(m.SenderIndexes[i])), append(x.parts, covered)
		}
	}
	w.reader.reads, w.reader.busy = append(w.reader.reads, x), true
	w.plainLoad(len(w.reader.reads) - 1)
}

// plainLoad lets its hardware load the next half page, when it likes.
func (w *world) plainLoad(i int) {
	x := &w.reader.reads[i]
	if x.step == 2*len(x.pages) {
		w.plainHas(x)
		w.reader.busy = false
		w.plainNext()
		return
	}
	name := uint64(x.conn.name)<<8 | uint64(x.step)
	late := effects.Duration(0)
	if s, yes := w.strikes(plan.FaultLateStore, x.conn.name, x.conn.sent<<16|uint64(x.step)); yes {
		late = s.Span(0, 3*effects.Second)
	}
	w.after(late+draw.Hash(w.seed, draw.PlainReader, name, x.conn.sent).Heavy(w.plan.Device),
		delivery{kind: kindPlainLoad, node: plan.Nobody, a: uint64(i)})
}

// plainLoaded is one load. Its page must still be what it was lent as; where the mapping is gone, nothing is loaded.
func (w *world) plainLoaded(i int) {
	x := &w.reader.reads[i]
	k := x.step / 2
	x.step++
	if !x.owner.mapped() || x.loan == nil || x.loan.gone {
		w.plainAnswer(x.conn, x.corr, nil) // An error of its own, of which it says no more.
		w.reader.busy = false
		w.plainNext()
		return
	}
	n, pg := x.owner.node, &x.owner.pages[x.pages[k]]
	half := (x.step - 1) % 2 * parts / 2
	if s := pg.stamps[half]; half < x.parts[k] && (s.key() != x.ids[k] || s.part() != half) {
		w.fail("S19", "a plain reader loads page %d of node %d under grant %d and finds key %d instead of %d",
			n.itsPage(x.pages[k]), n.it(), n.itsGrant(x.loan.id), oracle.Key(s.key()), x.ids[k])
		return
	}
	w.plainLoad(i)
}

// plainHas answers what has been read, and says that it is done.
func (w *world) plainHas(x *plainRead) {
	for _, id := range x.ids {
		w.reader.has[id] = true
	}
	w.plainAnswer(x.conn, x.corr, (&protocol.PullReadyDoneAck{AlreadySent: x.sent}).Append(nil))
	n := w.at(x.done, effects.ChannelDone)
	if n == nil || !n.up || w.struck(plan.FaultDoneLost, x.conn.name, x.conn.sent) {
		return
	}
	d := draw.Hash(w.seed, draw.PlainReader, uint64(x.conn.name), 1<<32|x.conn.sent)
	tell := delivery{kind: kindReceived, a: 1 << 52, b: uint64(effects.ChannelDone),
		body: w.body(w.writtenOnce(scribePlain, x.conn.name, 1<<32|x.conn.sent,
			(&protocol.PullDoneSignal{PullID: x.pull}).Append(nil)))}
	w.forNode(n, d.Heavy(w.plan.Net), tell)
	if again, yes := w.strikes(plan.FaultDoubled, x.conn.name, x.conn.sent); yes {
		tell.body = w.body(tell.body)
		w.forNode(n, again.Span(0, effects.Second), tell)
	}
}

// plainLink is a link to it: it leads to no memory of ours.
func (w *world) plainLink(n *node) *link {
	w.reader.node.id = plan.Outsider
	w.reader.pool.node = &w.reader.node
	return w.stock.links.one(link{id: uint64(len(w.links) + 1), from: n.id, fromLife: n.life, to: plan.Outsider,
		target: &w.reader.pool})
}
