package pd

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// A plainReader is a receiver that speaks LMCache's protocol without our extensions. The reader shakes hands, receives
// offers of chunks, reads the chunks with its own hardware, replies, and sends a done message. A plain reader has no
// leases, so pages that are lent to a plain reader stay lent until the done message arrives or until the mapping
// through which the reader reads is gone (rule M5). A plain reader is not a node: the simulation runs the reader beside
// the nodes.
type plainReader struct {
	pool  world.Pool      // target of the links that lead to the reader
	node  world.Node      // nominal owner of the pool
	Has   map[uint32]bool // the keys that the reader has read, by number
	reads []plainRead     // all offers that the reader has begun to read; only the newest can be in progress
	queue []plainRequest  // offers that wait, because the reader has one thread for all senders
	busy  bool
}

// plainRequest is an offer that waits in the queue.
type plainRequest struct {
	conn *world.Conn
	corr effects.Corr
	body []byte
}

// plainRead is an offer that the reader reads or has read.
type plainRead struct {
	conn  *world.Conn
	corr  effects.Corr
	owner *world.Pool
	loan  *world.Grant
	pull  protocol.PullID
	done  effects.Addr
	ids   []uint32 // the numbers of the keys
	pages []uint32
	parts []int   // number of parts of each chunk
	sent  []int64 // indexes in the offer of the chunks that the reader already has
	step  int     // index of the half page that is loaded next
}

// asked replies to a request, or queues an offer.
func (r *plainReader) asked(w *Cluster, c *world.Conn, corr effects.Corr, body []byte) {
	answer := func(b []byte) { r.answer(w, c, corr, b) }
	tag, err := protocol.PeekTag(body, &WireLimits)
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
		r.queue = append(r.queue, plainRequest{c, corr, w.Stock.Bytes.Keep(body)})
		r.next(w)
	default:
		answer(nil) // An unknown request is answered with an empty frame, as LMCache does.
	}
}

// answer sends a reply, unless a fault loses it. The sender is not notified of the loss.
func (r *plainReader) answer(w *Cluster, c *world.Conn, corr effects.Corr, body []byte) {
	if c.Dead || c.Closed || w.Lost(c, plan.FaultReplyLost, c.Sent) {
		return
	}
	w.After(w.ConnDraw(draw.Reply, c).Heavy(w.Setting.Net),
		world.Delivery{Kind: world.KindAnswer, Node: plan.Nobody, A: c.ID, B: uint64(corr),
			Body: w.Body(w.encoders.once(w, scribePlain, c.Name, 2*c.Sent+world.ToClient, body))})
}

// next begins with the next offer in the queue, if the reader is idle.
func (r *plainReader) next(w *Cluster) {
	if !r.busy && len(r.queue) > 0 {
		x := r.queue[0]
		r.queue = r.queue[1:]
		r.offered(w, x.conn, x.corr, x.body)
	}
}

// offered begins to read the chunks of an offer that the reader does not have.
func (r *plainReader) offered(w *Cluster, c *world.Conn, corr effects.Corr, body []byte) {
	m := &w.inbox.offer
	if m.Decode(body, &WireLimits) != nil || len(m.Keys) == 0 {
		r.answer(w, c, corr, nil)
		r.next(w)
		return
	}
	if w.ConnDraw(draw.PlainReader, c).Permille(100) {
		// The reader sends nothing more about the offer.
		r.answer(w, c, corr, (&protocol.PullReadyDoneAck{AllocFailed: true}).Append(nil))
		r.next(w)
		return
	}
	owner := w.Nodes[c.Client]
	if !w.Lives(c.Client, c.Life) {
		r.next(w) // The owner's incarnation is gone, together with its memory and its connections.
		return
	}
	x := plainRead{conn: c, corr: corr, owner: owner.Pool, loan: owner.Pool.Loan(c.Offer), pull: m.PullID}
	if at, err := protocol.ParseEndpoint(string(m.SenderDoneURL)); err == nil {
		x.done = effects.Addr{Host: at.Host, Port: at.Port}
	}
	for i, name := range m.Keys {
		id, ok := w.Keys.Number(name)
		switch {
		case !ok || m.SenderIndexes[i] < 0 || int(m.SenderIndexes[i]) >= len(x.owner.Pages):
			w.Fail("S9", "node %d offers a vanilla reader what it does not have", owner.It())
			return
		case r.Has[id]:
			x.sent = append(x.sent, int64(i))
		default:
			covered := world.Parts
			if i == len(m.Keys)-1 {
				covered = int(m.LastChunkTokens)
			}
			x.ids, x.pages, x.parts = append(x.ids, id), append(x.pages, uint32(m.SenderIndexes[i])), append(x.parts, covered)
		}
	}
	r.reads, r.busy = append(r.reads, x), true
	r.load(w, len(r.reads)-1)
}

// load schedules the load of the next half page by the reader's hardware, after a drawn delay. After the last half
// page, the read ends.
func (r *plainReader) load(w *Cluster, i int) {
	x := &r.reads[i]
	if x.step == 2*len(x.pages) {
		r.has(w, x)
		r.busy = false
		r.next(w)
		return
	}
	name := uint64(x.conn.Name)<<8 | uint64(x.step)
	late := effects.Duration(0)
	if s, yes := w.Strikes(plan.FaultLateStore, x.conn.Name, x.conn.Sent<<16|uint64(x.step)); yes {
		late = s.Span(0, 3*effects.Second)
	}
	w.After(late+draw.Hash(w.Seed, draw.PlainReader, name, x.conn.Sent).Heavy(w.Setting.Device),
		world.Delivery{Kind: world.KindPlainLoad, Node: plan.Nobody, A: uint64(i)})
}

// loaded performs one load. The page must still hold the chunk that was offered (S19). If the mapping is gone,
// nothing is loaded and the read fails.
func (r *plainReader) loaded(w *Cluster, i int) {
	x := &r.reads[i]
	k := x.step / 2
	x.step++
	if !x.owner.Mapped() || x.loan == nil || x.loan.Gone {
		r.answer(w, x.conn, x.corr, nil) // An error of the reader's own, about which the reader sends nothing more.
		r.busy = false
		r.next(w)
		return
	}
	n, pg := x.owner.Node, &x.owner.Pages[x.pages[k]]
	half := (x.step - 1) % 2 * world.Parts / 2
	if s := pg.Stamps[half]; half < x.parts[k] && (s.Key() != x.ids[k] || s.Part() != half) {
		w.Fail("S19", "a vanilla reader loads page %d of node %d under grant %d and finds key %d instead of %d",
			n.ItsPage(x.pages[k]), n.It(), n.ItsGrant(x.loan.ID), oracle.Key(s.Key()), x.ids[k])
		return
	}
	r.load(w, i)
}

// has records the chunks that were read, replies to the offer and sends the done message.
func (r *plainReader) has(w *Cluster, x *plainRead) {
	for _, id := range x.ids {
		r.Has[id] = true
	}
	r.answer(w, x.conn, x.corr, (&protocol.PullReadyDoneAck{AlreadySent: x.sent}).Append(nil))
	n := w.At(x.done, effects.ChannelDone)
	if n == nil || !n.Up || w.Struck(plan.FaultDoneLost, x.conn.Name, x.conn.Sent) {
		return
	}
	d := draw.Hash(w.Seed, draw.PlainReader, uint64(x.conn.Name), 1<<32|x.conn.Sent)
	tell := world.Delivery{Kind: world.KindReceived, A: 1 << 52, B: uint64(effects.ChannelDone),
		Body: w.Body(w.encoders.once(w, scribePlain, x.conn.Name, 1<<32|x.conn.Sent,
			(&protocol.PullDoneSignal{PullID: x.pull}).Append(nil)))}
	w.ForNode(n, d.Heavy(w.Setting.Net), tell)
	if again, yes := w.Strikes(plan.FaultDoubled, x.conn.Name, x.conn.Sent); yes {
		tell.Body = w.Body(tell.Body)
		w.ForNode(n, again.Span(0, effects.Second), tell)
	}
}

// link returns a link to the reader. The link leads to no memory of a node.
func (r *plainReader) link(w *world.World, n *world.Node) *world.Link {
	r.node.ID = plan.Outsider
	r.pool.Node = &r.node
	return w.Stock.Links.One(world.Link{ID: uint64(len(w.Links) + 1), From: n.ID, FromLife: n.Life, To: plan.Outsider,
		Target: &r.pool})
}
