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
	cfg       Config `snap:"share"`
	rows      table.Slab[row]
	ways      table.Slab[way]
	operation uint64 // the operation id of the latest recall

	ask   protocol.CacheQueryRequest  `snap:"scratch"`
	reply protocol.CacheQueryResponse `snap:"scratch"`
	pairs []effects.Pair              `snap:"scratch"`
	order []uint64                    `snap:"scratch"`
}

// Emptied returns a Source without recalls, with room for ways to the given number of peers. The memory of f is
// reused, so f must not be used afterwards.
func (f *Source) Emptied(cfg Config, peersMax uint32) Source {
	return Source{
		cfg: cfg, rows: f.rows.Emptied(int(cfg.RecallsMax)), ways: f.ways.Emptied(int(peersMax)),
		ask: f.ask, reply: f.reply, pairs: f.pairs, order: f.order,
	}
}

// A row is one recall. The outcome of a recall and the end of its row are separate events: after Deliver the row
// stays until nothing touches the recall's pages and the peer has been told that the lease is no longer needed.
type row struct {
	engine.Op
	keys      []byte
	ends      []uint32 // ends[i] is the end of key i in keys
	request   []byte
	peer      table.Handle // the outbound peer in the table of links
	where     link.Where   // the address of the peer
	way       table.Handle
	phase     phase
	operation uint64
	attempt   uint32         // the number of queries sent; later the number of done messages sent
	reached   uint64         // the number of the link's attempt when the recall began to wait for the link
	conn      effects.Conn   // the connection on which the query or done message is in flight
	answer    kernel.TimerID `snap:"set"` // the time at which the reply is overdue

	who   effects.Incarnation // the incarnation that was asked: the lease is valid for no other (M2)
	us    effects.Incarnation // the incarnation of this rank that the peer knows
	asked effects.Time        // when the attempt in flight, or the answered one, was sent (M4)
	since effects.Time        `snap:"skip"` // when the first attempt was sent: the lease may be as old
	grant effects.GrantID     // the grant of the lease; zero: none
	// until is the time at which the right to read ends, less the guard. Invariant: on a leased plane a read that
	// ends later is not believed (M4).
	until effects.Time
	hits  uint32 // the number of chunks that are read
	read  transfer.Transfer
}

// phase is the phase of a recall.
type phase uint8

const (
	waiting  phase = iota // waits for the link, or for its turn on the way
	asking                // the query was sent
	reading               // the transfer is in flight
	settling              // the transfer has ended, but something may still store into the pages
	leaving               // waits for its turn to send the done message
	telling               // the done message was sent
	phases
)

func (r *row) size() int { return len(r.ends) }

func (r *row) key(i int) []byte {
	from := uint32(0)
	if i > 0 {
		from = r.ends[i-1]
	}
	return r.keys[from:r.ends[i]]
}

// Len returns the number of recalls that have not ended.
func (f *Source) Len() int { return f.rows.Len() }

// Command takes a Recall, and returns false for any other command.
func (f *Source) Command(e *flow.Env, x *effects.Command) bool {
	c, ok := x.Body.(*Recall)
	if ok {
		f.take(e, x.Ticket, c)
	}
	return ok
}

// take starts a Recall, or refuses it at once and changes nothing.
func (f *Source) take(e *flow.Env, t effects.Ticket, c *Recall) {
	if code, why := f.check(e, c); code != effects.OK {
		engine.TurnDown(&e.Env, t, code, &why)
		return
	}
	if f.rows.Full() {
		e.Out.Mark(Marks.RecallsFull)
		engine.TurnDown(&e.Env, t, effects.TooMany, recallsFull(f.cfg.RecallsMax))
		return
	}
	// A refused command leaves nothing behind, so the way is taken only after the peer.
	to, peer := effects.Addr{Host: c.Peer.Host, Port: c.Peer.QueryPort}, table.Handle(0)
	if _, _, ok := f.open(to); ok {
		peer = e.Links.Want(&e.Env, c.Peer.where())
	}
	if peer == 0 {
		engine.TurnDown(&e.Env, t, effects.TooMany, peersFull(e.Cfg.PeersMax))
		return
	}
	way := f.reach(e, to)
	patience := c.Patience
	if patience == 0 {
		patience = f.cfg.RecallTimeout
	}
	h, r := f.rows.Add()
	f.operation++
	*r = row{
		Op: engine.Op{Pages: r.Pages}, keys: r.keys[:0], ends: r.ends[:0], request: append(r.request[:0], c.Request...),
		peer: peer, where: c.Peer.where(), way: way, operation: f.operation,
	}
	r.Begin(&e.Env, t, c.Pages, patience)
	for _, key := range c.Keys {
		r.keys = append(r.keys, key...)
		r.ends = append(r.ends, uint32(len(r.keys)))
	}
	e.Tickets.Add(t, sourceRef(timerRecall, h))
	e.Timers.Set(&r.Timer, r.Deadline, sourceRef(timerRecall, h))
	f.rows.PushBack(&f.ways.Get(way).asks, h)
	f.queued(e, h, r)
}

// queued lets a recall that was inserted into its way's queue wait for the link, and advances the way.
func (f *Source) queued(e *flow.Env, _ table.Handle, r *row) {
	r.reached = e.Links.Outbound(r.peer).Attempt()
	f.pump(e, r.way)
}

// becomeWaiting puts the recall back to the front of its queue: the same operation is sent again.
func (f *Source) becomeWaiting(e *flow.Env, h table.Handle, r *row) {
	e.Out.Mark(Marks.AskAgain)
	r.phase, r.conn = waiting, 0
	f.rows.PushFront(&f.ways.Get(r.way).asks, h)
	f.queued(e, h, r)
}

// becomeReading starts the one read. lease is the remaining time of the lease, counted from when the answered
// attempt was sent. The right to read ends one LeaseGuard earlier, by this rank's clock (M4). The guard covers
// the drift of the clocks in the meantime, both for the beginning of the read and for the completion that is
// believed.
func (f *Source) becomeReading(e *flow.Env, h table.Handle, r *row, lease effects.Duration) {
	r.phase, r.conn = reading, 0
	r.until = r.asked.Add(lease - e.Cfg.LeaseGuard)
	to, who := e.Links.Of(r.peer).Link()
	r.read.Begin(&e.Env, effects.Transfer{
		Link: to, Peer: who, Grant: r.grant, Read: true, Pairs: f.pairs, Since: r.since,
		NotAfter: min(r.Deadline, r.until),
	}, sourceRef(kindTransfer, h))
}

// transferred handles the end of the read. If the recall has its outcome already (deadline, abort), only the
// memory is returned and the lease is given back.
func (f *Source) transferred(e *flow.Env, h table.Handle, ev *effects.TransferDone) {
	r := f.rows.Get(h)
	code := ev.Code
	switch {
	case code == effects.PeerLost || code == effects.Stale:
		if now, _ := e.Links.Of(r.peer).Link(); r.read.Over(now) {
			e.Links.Fail(&e.Env, r.peer, code, effects.Why{
				Stage: effects.StageTransfer, Field: "data plane", Theirs: "gone",
			})
		}
	case code == effects.OK && e.Cfg.Leased && ev.At > r.until:
		// On a leased plane the owner does not observe the read: the pages may have been reused by then (M4).
		e.Out.Mark(Marks.ReadLate)
		code = effects.Expired
	}
	if code != effects.OK {
		e.Out.Mark(Marks.ReadFailed)
		r.Blame(code, effects.Why{Stage: effects.StageTransfer, Field: "data plane", Ours: code.String()})
	}
	if !r.read.Done(ev) {
		e.Out.Mark(Marks.Unsettled)
		r.phase = settling
		if !r.Delivered() {
			f.deliver(e, r, failed(code), true)
		}
		return
	}
	if r.Held() {
		r.Return(&e.Env)
	}
	if !r.Delivered() {
		f.deliver(e, r, code, false)
	}
	f.giveBack(e, h, r)
}

// settled handles the notification, after an unsettled read, that nothing touches the pages any more.
func (f *Source) settled(e *flow.Env, h table.Handle) {
	r := f.rows.Get(h)
	r.read.Settled()
	r.Return(&e.Env)
	f.giveBack(e, h, r)
}

// failed returns the code of a read that has not settled: the pages cannot be used, even if the code of the
// transfer is OK.
func failed(code effects.Code) effects.Code {
	if code == effects.OK {
		return effects.Expired
	}
	return code
}

// giveBack queues the done message, so that the peer need not wait for the end of the lease. Invariant: nothing
// of this rank reads under the lease any more (M2).
func (f *Source) giveBack(e *flow.Env, h table.Handle, r *row) {
	if r.grant == 0 {
		f.end(e, h, r)
		return
	}
	r.phase, r.conn, r.attempt = leaving, 0, 0
	f.rows.PushBack(&f.ways.Get(r.way).words, h)
	f.pump(e, r.way)
}

// Abort ends a recall early, and returns false if the recall has its outcome already.
func (f *Source) Abort(e *flow.Env, ref kernel.Ref) bool {
	r := f.rows.Get(ref.Subject)
	if r.Delivered() {
		return false
	}
	f.stop(e, ref.Subject, r, effects.Cancelled)
	return true
}

// stop gives a recall its outcome now, in any phase before that. Work that is in flight continues to its own end.
func (f *Source) stop(e *flow.Env, h table.Handle, r *row, code effects.Code) {
	switch r.phase {
	case waiting:
		f.rows.Unlink(&f.ways.Get(r.way).asks, h)
		f.deliver(e, r, code, false)
		f.end(e, h, r)
	case asking: // The reply may bring a lease, which is then given back.
		e.Out.Mark(Marks.Stopped)
		f.deliver(e, r, code, false)
	case reading: // The read stores into the pages until the transfer has settled (M8).
		e.Out.Mark(Marks.Stopped)
		r.read.Cancel(&e.Env)
		f.deliver(e, r, code, true)
	case settling, leaving, telling, phases:
		panic("BUG: a recall has its outcome before it is finished with")
	}
}

// deliver delivers the recall's one outcome. held says that something may still store into the pages, so the
// memory is returned later (M8).
func (f *Source) deliver(e *flow.Env, r *row, code effects.Code, held bool) {
	out := effects.Deliver{Code: code, Held: held}
	if code == effects.OK {
		out.Hits = r.hits
	} else {
		out.Why = r.Because(code, effects.Why{Addr: r.where.Addr(), Peer: r.who, Stage: r.stage()})
	}
	r.Deliver(&e.Env, out)
	e.Out.Observe(effects.Observe{
		Fact: effects.FactRecallEnded, Code: code, Count: uint32(out.Hits), ID: uint64(r.Ticket), Peer: r.who, Why: out.Why,
	})
}

// end removes the row of a recall that has its outcome and nothing in flight.
func (f *Source) end(e *flow.Env, h table.Handle, r *row) {
	r.MustBeOver()
	e.Timers.Stop(&r.Timer)
	e.Timers.Stop(&r.answer)
	e.Links.Unwant(r.peer)
	e.Tickets.Remove(r.Ticket)
	f.ways.Get(r.way).users--
	r.keys, r.ends, r.Pages = table.ShedBytes(r.keys), table.Shed(r.ends), table.Shed(r.Pages)
	f.rows.Remove(h)
}
