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
	pool     world.Pool      // target of the links that lead to the reader
	node     world.Node      // nominal owner of the pool
	ReadKeys map[uint32]bool // the keys that the reader has read, by number
	reads    []plainRead     // all offers that the reader has begun to read; only the newest can be in progress
	queue    []plainRequest  // offers that wait, because the reader has one thread for all senders
	busy     bool
}

// plainRequest is an offer that waits in the queue.
type plainRequest struct {
	conn *world.Conn
	corr effects.Corr
	body []byte
}

// plainRead is an offer that the reader reads or has read.
type plainRead struct {
	conn        *world.Conn
	corr        effects.Corr
	owner       *world.Pool
	lease       *world.Grant
	pullID      protocol.PullID
	doneAddr    effects.Addr
	keyNumbers  []uint32 // the numbers of the keys
	pages       []uint32
	parts       []int   // number of parts of each chunk
	alreadyRead []int64 // indexes in the offer of the chunks that the reader already has
	step        int     // index of the half page that is loaded next
}

// handleRequest replies to a request, or queues an offer.
func (r *plainReader) handleRequest(w *Cluster, c *world.Conn, corr effects.Corr, body []byte) {
	answer := func(b []byte) { r.sendReply(w, c, corr, b) }
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
		r.queue = append(r.queue, plainRequest{c, corr, w.Arenas.Bytes.CopySlice(body)})
		r.startNext(w)
	default:
		answer(nil) // An unknown request is answered with an empty frame, as LMCache does.
	}
}

// sendReply sends a reply, unless a fault loses it. The sender is not notified of the loss.
func (r *plainReader) sendReply(w *Cluster, c *world.Conn, corr effects.Corr, body []byte) {
	if c.Dead || c.Closed || w.DrawLoss(c, plan.FaultReplyLost, c.SentCount) {
		return
	}
	w.QueueAfter(w.DrawForConn(draw.Reply, c).HeavyTail(w.Conditions.MessageTime),
		world.Delivery{Kind: world.KindReplyArrives, Node: plan.NoNode, A: c.ID, B: uint64(corr),
			Body: w.CopyBody(w.encoder.maybeRewrite(w, authorPlain, c.Name, 2*c.SentCount+world.ToClient, body))})
}

// startNext begins with the next offer in the queue, if the reader is idle.
func (r *plainReader) startNext(w *Cluster) {
	if !r.busy && len(r.queue) > 0 {
		x := r.queue[0]
		r.queue = r.queue[1:]
		r.startRead(w, x.conn, x.corr, x.body)
	}
}

// startRead begins to read the chunks of an offer that the reader does not have.
func (r *plainReader) startRead(w *Cluster, c *world.Conn, corr effects.Corr, body []byte) {
	m := &w.decodeBuffers.offer
	if m.Decode(body, &WireLimits) != nil || len(m.Keys) == 0 {
		r.sendReply(w, c, corr, nil)
		r.startNext(w)
		return
	}
	if w.DrawForConn(draw.PlainReader, c).ChancePermille(100) {
		// The reader sends nothing more about the offer.
		r.sendReply(w, c, corr, (&protocol.PullReadyDoneAck{AllocFailed: true}).Append(nil))
		r.startNext(w)
		return
	}
	owner := w.Nodes[c.Client]
	if !w.IsRunning(c.Client, c.Incarnation) {
		r.startNext(w) // The owner's incarnation is gone, together with its memory and its connections.
		return
	}
	x := plainRead{conn: c, corr: corr, owner: owner.Pool, lease: owner.Pool.FindReadLease(c.Offer), pullID: m.PullID}
	if at, err := protocol.ParseEndpoint(string(m.SenderDoneURL)); err == nil {
		x.doneAddr = effects.Addr{Host: at.Host, Port: at.Port}
	}
	for i, name := range m.Keys {
		id, ok := w.Keys.NumberOf(name)
		switch {
		case !ok || m.SenderIndexes[i] < 0 || int(m.SenderIndexes[i]) >= len(x.owner.Pages):
			w.Fail("S9", "node %d offers a vanilla reader chunks that the node does not have", owner.AsSubject())
			return
		case r.ReadKeys[id]:
			x.alreadyRead = append(x.alreadyRead, int64(i))
		default:
			covered := world.Parts
			if i == len(m.Keys)-1 {
				covered = int(m.LastChunkTokens)
			}
			x.keyNumbers, x.pages, x.parts = append(x.keyNumbers, id), append(x.pages, uint32(m.SenderIndexes[i])), append(x.parts, covered)
		}
	}
	r.reads, r.busy = append(r.reads, x), true
	r.scheduleLoad(w, len(r.reads)-1)
}

// scheduleLoad schedules the load of the next half page by the reader's hardware, after a drawn delay. After the last
// half page, the read ends.
func (r *plainReader) scheduleLoad(w *Cluster, i int) {
	x := &r.reads[i]
	if x.step == 2*len(x.pages) {
		r.finishRead(w, x)
		r.busy = false
		r.startNext(w)
		return
	}
	name := uint64(x.conn.Name)<<8 | uint64(x.step)
	late := effects.Duration(0)
	if s, ok := w.DrawStrike(plan.FaultLateStore, x.conn.Name, x.conn.SentCount<<16|uint64(x.step)); ok {
		late = s.Duration(0, 3*effects.Second)
	}
	w.QueueAfter(late+draw.Hash(w.Seed, draw.PlainReader, name, x.conn.SentCount).HeavyTail(w.Conditions.DeviceTime),
		world.Delivery{Kind: world.KindVanillaLoad, Node: plan.NoNode, A: uint64(i)})
}

// performLoad performs one load. The page must still hold the chunk that was offered (S19). If the mapping is gone,
// nothing is loaded and the read fails.
func (r *plainReader) performLoad(w *Cluster, i int) {
	x := &r.reads[i]
	k := x.step / 2
	x.step++
	if !x.owner.IsMapped() || x.lease == nil || x.lease.Revoked {
		r.sendReply(w, x.conn, x.corr, nil) // An error of the reader's own, about which the reader sends nothing more.
		r.busy = false
		r.startNext(w)
		return
	}
	n, pg := x.owner.Node, &x.owner.Pages[x.pages[k]]
	half := (x.step - 1) % 2 * world.Parts / 2
	if s := pg.Stamps[half]; half < x.parts[k] && (s.Key() != x.keyNumbers[k] || s.Part() != half) {
		w.Fail("S19", "a vanilla reader loads page %d of node %d under grant %d and finds key %d instead of %d",
			n.PageSubject(x.pages[k]), n.AsSubject(), n.GrantSubject(x.lease.ID), oracle.Key(s.Key()), x.keyNumbers[k])
		return
	}
	r.scheduleLoad(w, i)
}

// finishRead records the chunks that were read, replies to the offer and sends the done message.
func (r *plainReader) finishRead(w *Cluster, x *plainRead) {
	for _, id := range x.keyNumbers {
		r.ReadKeys[id] = true
	}
	r.sendReply(w, x.conn, x.corr, (&protocol.PullReadyDoneAck{AlreadySent: x.alreadyRead}).Append(nil))
	n := w.NodeAt(x.doneAddr, effects.ChannelDone)
	if n == nil || !n.Up || w.IsStruck(plan.FaultDoneLost, x.conn.Name, x.conn.SentCount) {
		return
	}
	d := draw.Hash(w.Seed, draw.PlainReader, uint64(x.conn.Name), 1<<32|x.conn.SentCount)
	delivery := world.Delivery{Kind: world.KindReceived, A: 1 << 52, B: uint64(effects.ChannelDone),
		Body: w.CopyBody(w.encoder.maybeRewrite(w, authorPlain, x.conn.Name, 1<<32|x.conn.SentCount,
			(&protocol.PullDoneSignal{PullID: x.pullID}).Append(nil)))}
	w.QueueForNode(n, d.HeavyTail(w.Conditions.MessageTime), delivery)
	if doubledDraw, ok := w.DrawStrike(plan.FaultPostDoubled, x.conn.Name, x.conn.SentCount); ok {
		delivery.Body = w.CopyBody(delivery.Body)
		w.QueueForNode(n, doubledDraw.Duration(0, effects.Second), delivery)
	}
}

// newLink returns a link to the reader. The link leads to no memory of a node.
func (r *plainReader) newLink(w *world.World, n *world.Node) *world.Link {
	r.node.ID = plan.Outsider
	r.pool.Node = &r.node
	return w.Arenas.Links.AllocCopy(world.Link{ID: uint64(len(w.Links) + 1), From: n.ID, FromIncarnation: n.Incarnation, To: plan.Outsider,
		Target: &r.pool})
}
