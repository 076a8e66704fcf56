package recall

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory/transfer"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// A Source carries out recalls: it sends a query, reads the pages that the reply names in one transfer, and sends
// a done message.
type Source struct {
	cfg           Config `snap:"share"`
	rows          table.Slab[recallRow]
	conns         table.Slab[peerConn]
	lastOperation uint64 // the operation id of the latest recall

	query     protocol.CacheQueryRequest  `snap:"scratch"`
	reply     protocol.CacheQueryResponse `snap:"scratch"`
	pairs     []effects.Pair              `snap:"scratch"`
	pageOrder []uint64                    `snap:"scratch"`
}

// Recycle returns a Source without recalls, with room for ways to the given number of peers. The memory of f is
// reused, so f must not be used afterwards.
func (f *Source) Recycle(cfg Config, peersMax uint32) Source {
	return Source{
		cfg: cfg, rows: f.rows.Recycle(int(cfg.RecallsMax)), conns: f.conns.Recycle(int(peersMax)),
		query: f.query, reply: f.reply, pairs: f.pairs, pageOrder: f.pageOrder,
	}
}

// A recallRow is one recall. The outcome of a recall and the end of its row are separate events: after Deliver the row
// stays until nothing touches the recall's pages and the peer has been told that the lease is no longer needed.
type recallRow struct {
	engine.Op
	trace       effects.TraceContext `snap:"skip"`
	keys        []byte
	keyEnds     []uint32 // keyEnds[i] is the end of key i in keys
	requestID   []byte
	peer        table.Handle  // the outbound peer in the table of links
	peerAddr    link.PeerAddr // the address of the peer
	peerConn    table.Handle
	phase       recallPhase
	operation   uint64
	attempt     uint32         // the number of queries sent; later the number of done messages sent
	linkAttempt uint64         // the number of the link's attempt when the recall began to wait for the link
	conn        effects.Conn   // the connection on which the query or done message is in flight
	replyTimer  kernel.TimerID `snap:"set"` // the time at which the reply is overdue

	peerID      effects.Incarnation // the incarnation that was asked: the lease is valid for no other (M2)
	selfID      effects.Incarnation // the incarnation of this rank that the peer knows
	sentAt      effects.Time        // when the attempt in flight, or the answered one, was sent (M4)
	firstSentAt effects.Time        `snap:"skip"` // when the first attempt was sent: the lease may be as old
	readGrant   effects.GrantID     // the grant of the lease; zero: none
	// readUntil is the time at which the right to read ends, less the guard. Invariant: on a leased plane a read that
	// ends later is not believed (M4).
	readUntil effects.Time
	hits      uint32 // the number of chunks that are read
	transfer  transfer.Transfer
}

// recallPhase is the phase of a recall.
type recallPhase uint8

const (
	recallWaiting    recallPhase = iota // waits for the link, or for its turn on the connection
	recallQuerying                      // the query was sent
	recallReading                       // the transfer is in flight
	recallSettling                      // the transfer has ended, but something may still store into the pages
	recallDoneQueued                    // waits for its turn to send the done message
	recallDoneSent                      // the done message was sent
	recallPhaseCount
)

func (r *recallRow) keyCount() int { return len(r.keyEnds) }

func (r *recallRow) keyAt(i int) []byte {
	from := uint32(0)
	if i > 0 {
		from = r.keyEnds[i-1]
	}
	return r.keys[from:r.keyEnds[i]]
}

// Len returns the number of recalls that have not ended.
func (f *Source) Len() int { return f.rows.Len() }

// OnCommand takes a Recall, and returns false for any other command.
func (f *Source) OnCommand(e *flow.Env, x *effects.Command) bool {
	c, ok := x.Body.(*Recall)
	if ok {
		f.startRecall(e, x.Ticket, c)
	}
	return ok
}

// startRecall starts a Recall, or refuses it at once and changes nothing.
func (f *Source) startRecall(e *flow.Env, t effects.Ticket, c *Recall) {
	if code, why := f.validateRecall(e, c); code != effects.OK {
		engine.RefuseCommand(&e.Env, t, code, &why)
		return
	}
	if f.rows.Full() {
		e.Out.Mark(Marks.RecallsFull)
		engine.RefuseCommand(&e.Env, t, effects.TooMany, recallsFullReason(f.cfg.RecallsMax))
		return
	}
	// A refused command leaves nothing behind, so the connection is taken only after the peer.
	addr, peer := effects.Addr{Host: c.Peer.Host, Port: c.Peer.QueryPort}, table.Handle(0)
	if _, _, ok := f.findConn(addr); ok {
		peer = e.Links.AcquirePeer(&e.Env, c.Peer.linkAddr())
	}
	if peer == 0 {
		engine.RefuseCommand(&e.Env, t, effects.TooMany, peersFullReason(e.Cfg.PeersMax))
		return
	}
	connHandle := f.takeConn(e, addr)
	timeout := c.Timeout
	if timeout == 0 {
		timeout = f.cfg.RecallTimeout
	}
	h, r := f.rows.Add()
	f.lastOperation++
	*r = recallRow{
		Op: engine.Op{Pages: r.Pages}, keys: r.keys[:0], keyEnds: r.keyEnds[:0], requestID: append(r.requestID[:0], c.Request...),
		peer: peer, peerAddr: c.Peer.linkAddr(), peerConn: connHandle, operation: f.lastOperation,
		trace: c.Trace,
	}
	r.BeginCommand(&e.Env, t, c.Keys, c.Pages, timeout)
	for _, key := range c.Keys {
		r.keys = append(r.keys, key...)
		r.keyEnds = append(r.keyEnds, uint32(len(r.keys)))
	}
	e.Tickets.Add(t, sourceRef(timerRecall, h))
	e.Timers.Set(&r.Timer, r.Deadline, sourceRef(timerRecall, h))
	f.rows.PushBack(&f.conns.Get(connHandle).queries, h)
	f.awaitLink(e, h, r)
}

// awaitLink lets a recall that was inserted into its connection's queue wait for the link, and advances the connection.
func (f *Source) awaitLink(e *flow.Env, _ table.Handle, r *recallRow) {
	r.linkAttempt = e.Links.Outbound(r.peer).AttemptNumber()
	f.sendQueued(e, r.peerConn)
}

// requeueRecall puts the recall back to the front of its queue: the same operation is sent again.
func (f *Source) requeueRecall(e *flow.Env, h table.Handle, r *recallRow) {
	e.Out.Mark(Marks.AskAgain)
	r.phase, r.conn = recallWaiting, 0
	f.rows.PushFront(&f.conns.Get(r.peerConn).queries, h)
	f.awaitLink(e, h, r)
}

// startRead starts the one read. lease is the remaining time of the lease, counted from when the answered
// attempt was sent. The read begins before the right to it ends, and its completion is believed only before that (M4).
func (f *Source) startRead(e *flow.Env, h table.Handle, r *recallRow, lease effects.Duration) {
	r.phase, r.conn = recallReading, 0
	r.readUntil = e.AccessEnd(r.sentAt, lease)
	currentLink, currentID := e.Links.IncarnationOf(r.peer).Link()
	r.transfer.Begin(&e.Env, effects.Transfer{
		Link: currentLink, Peer: currentID, Grant: r.readGrant, Read: true, Pairs: f.pairs, Since: r.firstSentAt,
		NotAfter: min(r.Deadline, r.readUntil),
	}, sourceRef(kindTransfer, h))
}

// onTransferDone handles the end of the read. If the recall has its outcome already (deadline, abort), only the
// memory is returned and the lease is given back.
func (f *Source) onTransferDone(e *flow.Env, h table.Handle, ev *effects.TransferDone) {
	r := f.rows.Get(h)
	code := ev.Code
	switch {
	case code == effects.PeerLost || code == effects.Stale:
		if currentLink, _ := e.Links.IncarnationOf(r.peer).Link(); r.transfer.UsesLink(currentLink) {
			e.Links.FailPeer(&e.Env, r.peer, code, effects.Why{
				Stage: effects.StageTransfer, Field: "data plane", Theirs: "gone",
			})
		}
	case code == effects.OK && e.Cfg.Leased && ev.At > r.readUntil:
		// On a leased plane the owner does not observe the read: the pages may have been reused by then (M4).
		e.Out.Mark(Marks.ReadLate)
		code = effects.Expired
	}
	if code != effects.OK {
		e.Out.Mark(Marks.ReadFailed)
		r.SetReason(code, effects.Why{Stage: effects.StageTransfer, Field: "data plane", Ours: code.String()})
	}
	if !r.transfer.OnDone(ev) {
		e.Out.Mark(Marks.Unsettled)
		r.phase = recallSettling
		if !r.IsDelivered() {
			f.deliverOutcome(e, r, unsettledCode(code), true)
		}
		return
	}
	if r.IsHeld() {
		r.ReturnPages(&e.Env)
	}
	if !r.IsDelivered() {
		f.deliverOutcome(e, r, code, false)
	}
	f.queueDone(e, h, r)
}

// onSettled handles the notification, after an unsettled read, that nothing touches the pages any more.
func (f *Source) onSettled(e *flow.Env, h table.Handle) {
	r := f.rows.Get(h)
	r.transfer.OnSettled()
	r.ReturnPages(&e.Env)
	f.queueDone(e, h, r)
}

// unsettledCode returns the code of a read that has not settled: the pages cannot be used, even if the code of the
// transfer is OK.
func unsettledCode(code effects.Code) effects.Code {
	if code == effects.OK {
		return effects.Expired
	}
	return code
}

// queueDone queues the done message, so that the peer need not wait for the end of the lease. Invariant: nothing
// of this rank reads under the lease any more (M2).
func (f *Source) queueDone(e *flow.Env, h table.Handle, r *recallRow) {
	if r.readGrant == 0 {
		f.removeRecall(e, h, r)
		return
	}
	r.phase, r.conn, r.attempt = recallDoneQueued, 0, 0
	f.rows.PushBack(&f.conns.Get(r.peerConn).doneMessages, h)
	f.sendQueued(e, r.peerConn)
}

// AbortCommand ends a recall early, and returns false if the recall has its outcome already.
func (f *Source) AbortCommand(e *flow.Env, ref kernel.Ref) bool {
	r := f.rows.Get(ref.Subject)
	if r.IsDelivered() {
		return false
	}
	f.failRecall(e, ref.Subject, r, effects.Cancelled)
	return true
}

// failRecall gives a recall its outcome now, in any phase before that. Work that is in flight continues to its own end.
func (f *Source) failRecall(e *flow.Env, h table.Handle, r *recallRow, code effects.Code) {
	switch r.phase {
	case recallWaiting:
		f.rows.Unlink(&f.conns.Get(r.peerConn).queries, h)
		f.deliverOutcome(e, r, code, false)
		f.removeRecall(e, h, r)
	case recallQuerying: // The reply may bring a lease, which is then given back.
		e.Out.Mark(Marks.Stopped)
		f.deliverOutcome(e, r, code, false)
	case recallReading: // The read stores into the pages until the transfer has settled (M8).
		e.Out.Mark(Marks.Stopped)
		r.transfer.Cancel(&e.Env)
		f.deliverOutcome(e, r, code, true)
	case recallSettling, recallDoneQueued, recallDoneSent, recallPhaseCount:
		panic("BUG: a recall has its outcome before it is finished with")
	}
}

// deliverOutcome delivers the recall's one outcome. held says that something may still store into the pages, so the
// memory is returned later (M8).
func (f *Source) deliverOutcome(e *flow.Env, r *recallRow, code effects.Code, held bool) {
	out := effects.Deliver{Code: code, Held: held}
	if code == effects.OK {
		out.Hits = r.hits
	} else {
		out.Why = r.FinalReason(code, effects.Why{Addr: r.peerAddr.InitAddr(), Peer: r.peerID, Stage: r.reportStage()})
	}
	r.Deliver(&e.Env, out)
	e.Out.Observe(effects.Observe{
		Fact: effects.FactRecallEnded, Code: code, Count: uint32(out.Hits), ID: uint64(r.Ticket), Peer: r.peerID, Why: out.Why,
	})
}

// removeRecall removes the row of a recall that has its outcome and nothing in flight.
func (f *Source) removeRecall(e *flow.Env, h table.Handle, r *recallRow) {
	r.MustBeFinished()
	e.Timers.Stop(&r.Timer)
	e.Timers.Stop(&r.replyTimer)
	e.Links.ReleasePeer(r.peer)
	e.Tickets.Remove(r.Ticket)
	f.conns.Get(r.peerConn).recallCount--
	r.keys, r.keyEnds, r.Pages = table.TrimBytes(r.keys), table.TrimSlice(r.keyEnds), table.TrimSlice(r.Pages)
	f.rows.Remove(h)
}
