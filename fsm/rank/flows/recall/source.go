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

// A Source is who recalls: it asks, reads what it is told in one transfer, and says when it has read.
type Source struct {
	cfg       Config `snap:"share"`
	rows      table.Slab[row]
	ways      table.Slab[way]
	operation uint64 // of the last recall

	ask   protocol.CacheQueryRequest  `snap:"scratch"`
	reply protocol.CacheQueryResponse `snap:"scratch"`
	pairs []effects.Pair              `snap:"scratch"`
	order []uint64                    `snap:"scratch"`
}

// Emptied returns a Source without any recall, with ways to so many peers, in the memory of f, which is not used any
// more.
func (f *Source) Emptied(cfg Config, peersMax uint32) Source {
	return Source{
		cfg: cfg, rows: f.rows.Emptied(int(cfg.RecallsMax)), ways: f.ways.Emptied(int(peersMax)),
		ask: f.ask, reply: f.reply, pairs: f.pairs, order: f.order,
	}
}

// A row is one recall. Its outcome and its end are two things: after Deliver it stays until nothing touches its pages
// and its peer was told that the lease is finished with.
type row struct {
	engine.Op
	keys      []byte
	ends      []uint32 // ends[i]: where key i ends in keys
	request   []byte
	peer      table.Handle // of the link room
	where     link.Where   // of the peer
	way       table.Handle
	phase     phase
	operation uint64
	attempt   uint32         // how often it was asked; then how often the last word was said
	reached   uint64         // the link's attempt when it began to wait for it
	conn      effects.Conn   // on which its question is
	answer    kernel.TimerID `snap:"set"` // when the answer is overdue

	who   effects.Incarnation // whom it asked: what is said of it holds for no other life
	us    effects.Incarnation // who we are to it
	asked effects.Time        // when that attempt was sent which is under way, or was answered
	since effects.Time        `snap:"skip"` // when it asked first: the lease may be as old
	grant effects.GrantID     // the lease; zero: none
	until effects.Time        // when our right to read ends, less the guard: a read that ends later is not believed
	hits  uint32              // chunks that are read
	read  transfer.Transfer
}

// phase is where a recall stands.
type phase uint8

const (
	waiting  phase = iota // for the link, or for its turn on its way
	asking                // question sent
	reading               // transfer in flight
	settling              // it ended, but something may still store into the pages
	leaving               // waits for its turn to say that the lease is finished with
	telling               // said it
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

// Len is the number of recalls that are not over.
func (f *Source) Len() int { return f.rows.Len() }

// Take begins with a Recall, or says no at once: then everything is as it was.
func (f *Source) Take(e *flow.Env, t effects.Ticket, c *Recall) {
	if code, why := f.check(e, c); code != effects.OK {
		engine.TurnDown(&e.Env, t, code, &why)
		return
	}
	if f.rows.Full() {
		e.Out.Mark(Marks.RecallsFull)
		engine.TurnDown(&e.Env, t, effects.TooMany, recallsFull(f.cfg.RecallsMax))
		return
	}
	// Whoever is refused leaves no trace: the way is taken when the peer is there.
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
		patience = f.cfg.Timeout
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

// queued has a recall that is in its way's line wait for the link, if need be.
func (f *Source) queued(e *flow.Env, _ table.Handle, r *row) {
	r.reached = e.Links.Outbound(r.peer).Attempt()
	f.pump(e, r.way)
}

// becomeWaiting puts it back to the front of its line: the same operation, asked again.
func (f *Source) becomeWaiting(e *flow.Env, h table.Handle, r *row) {
	e.Out.Mark(Marks.AskAgain)
	r.phase, r.conn = waiting, 0
	f.rows.PushFront(&f.ways.Get(r.way).asks, h)
	f.queued(e, h, r)
}

// becomeReading starts the one read. Our right to read ends a guard before the lease does, by our clock from before we
// asked (M4): lease is how long it stands from then. The guard covers what the clocks drift meanwhile, for the read
// that is begun as for the end that is believed.
func (f *Source) becomeReading(e *flow.Env, h table.Handle, r *row, lease effects.Duration) {
	r.phase, r.conn = reading, 0
	r.until = r.asked.Add(lease - e.Cfg.LeaseGuard)
	to, who := e.Links.Of(r.peer).Link()
	r.read.Begin(&e.Env, effects.Transfer{
		Link: to, Peer: who, Grant: r.grant, Read: true, Pairs: f.pairs, Since: r.since,
		NotAfter: min(r.Deadline, r.until),
	}, sourceRef(kindTransfer, h))
}

// transferred handles the end of the read. The outcome may be old already (deadline, abort): then only the memory comes
// back.
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
		// Nobody saw the read: the pages may have been another's by then.
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

// settled handles the late word that nothing touches the pages any more.
func (f *Source) settled(e *flow.Env, h table.Handle) {
	r := f.rows.Get(h)
	r.read.Settled()
	r.Return(&e.Env)
	f.giveBack(e, h, r)
}

// failed is the code of a read that has not settled: whatever it says, the pages cannot be used.
func failed(code effects.Code) effects.Code {
	if code == effects.OK {
		return effects.Expired
	}
	return code
}

// giveBack has the peer told that the lease is finished with, so that it need not wait for its end. Nothing of ours
// reads under it any more.
func (f *Source) giveBack(e *flow.Env, h table.Handle, r *row) {
	if r.grant == 0 {
		f.end(e, h, r)
		return
	}
	r.phase, r.conn, r.attempt = leaving, 0, 0
	f.rows.PushBack(&f.ways.Get(r.way).words, h)
	f.pump(e, r.way)
}

// Abort ends a recall early, and says whether there was anything to end.
func (f *Source) Abort(e *flow.Env, ref kernel.Ref) bool {
	r := f.rows.Get(ref.Subject)
	if r.Delivered() {
		return false
	}
	f.stop(e, ref.Subject, r, effects.Cancelled)
	return true
}

// stop gives a recall its outcome now, wherever it stands; what is under way goes on to its own end without it.
func (f *Source) stop(e *flow.Env, h table.Handle, r *row, code effects.Code) {
	switch r.phase {
	case waiting:
		f.rows.Unlink(&f.ways.Get(r.way).asks, h)
		f.deliver(e, r, code, false)
		f.end(e, h, r)
	case asking: // The answer may bring a lease, which then is given back.
		e.Out.Mark(Marks.Stopped)
		f.deliver(e, r, code, false)
	case reading: // Its pages are stored into until the transfer has settled.
		e.Out.Mark(Marks.Stopped)
		r.read.Cancel(&e.Env)
		f.deliver(e, r, code, true)
	case settling, leaving, telling, phases:
		panic("BUG: a recall has its outcome before it is finished with")
	}
}

// deliver gives the recall its one outcome; its memory with it, unless something may still store into that.
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

// end removes a recall that has its outcome and nothing under way.
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
