package sender

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/kernel"
	"github.com/kvferry/kvferry/fsm/link"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// phase is where a put stands.
type phase uint8

const (
	waiting    phase = iota // for the link, or for its turn on the alloc lane
	asking                  // AllocRequest sent
	moving                  // transfer in flight
	settling                // transfer ended, but something may still touch the pages
	committing              // waits for the commit lane, to commit or to abort its grant, or to withdraw its offer
	confirming              // commit, abort or withdrawal sent
	offering                // PullReadyNotif sent
	offered                 // acknowledged, or not to be any more; its pages are lent
	short                   // for host pages, to be copied to
	copying                 // chunks on their way there
)

// A put is one batch. Its outcome and its end are two things: after Deliver it may
// stay as a ghost until nothing touches its pages and its grant was given back.
type put struct {
	op
	peer       table.Handle
	request    table.Handle // zero: belongs to none
	phase      phase
	aborting   bool // the grant is to be given back, not committed
	keys       []byte
	ends       []uint32 // ends[i]: where key i ends in keys
	lastTokens uint32
	answer     kernel.TimerID `snap:"set"`
	operation  uint64
	attempt    uint32
	reached    uint64       // the link's attempt when it began to wait for it
	conn       effects.Conn // of the lane it has taken
	asked      effects.Time
	since      effects.Time `snap:"skip"` // when it asked first: an answer to that may be what a later attempt is told
	transfer   effects.Corr `snap:"skip"` // its phase says whether it has one
	link       effects.Link // of the transfer
	grant      effects.GrantID
	us         effects.Incarnation // who we are to it
	who        effects.Incarnation // whom it asked: grant ids mean nothing to another life
	commits    bool                // whether that peer takes commits, or withdrawals; the link may be down when it matters
	sent       uint32
	skipped    uint32
	pull       protocol.PullID // of its offer
	lease      Lease           // of its pages
	host       []effects.Page  // with offload, once it has them: where its chunks are copied to
	copies     []effects.Corr  // likewise: one for each part, zero when that is settled
	read       bool            // its reader said that it has everything
	withdrawn  bool            // it was taken back, and the peer is to be told

	where link.Where // of the peer
}

func (p *put) key(i int) []byte {
	from := uint32(0)
	if i > 0 {
		from = p.ends[i-1]
	}
	return p.keys[from:p.ends[i]]
}

// OnPut handles a Put.
func (s *Sender) OnPut(v *env.Env, l *link.Links, t effects.Ticket, c *Put) {
	if code, why := s.check(v, c); code != effects.OK {
		turnDown(v, t, code, why)
		return
	}
	if !s.mayFollow(c) {
		v.Out.Mark(MarkPutsFull)
		turnDown(v, t, effects.TooMany, &effects.Why{
			Field: "tables.commands", Ours: number(s.puts.Max()) + ", and " + number(s.puts.Len()) + " puts are in progress",
			Remedy: "retry when one has ended, or raise tables.commands",
		})
		return
	}
	req, code, why := s.requests.join(v, c.Request, c.Last)
	if code != effects.OK {
		turnDown(v, t, code, why)
		return
	}
	s.follow(t, c)
	peer, alone := table.Handle(0), s.leftAlone(v, link.Where(c.Peer))
	if !alone {
		peer = l.Want(v, link.Where(c.Peer))
	}
	h, p := s.puts.Add()
	patience := c.Patience
	if patience == 0 {
		patience = s.cfg.PutTimeout
	}
	s.operation++
	*p = put{
		op: op{pages: p.pages}, peer: peer, request: req, keys: p.keys[:0], ends: p.ends[:0],
		host: p.host[:0], copies: p.copies[:0],
		lastTokens: c.LastChunkTokens, operation: s.operation, where: link.Where(c.Peer),
	}
	p.begin(v, t, c.Pages, patience)
	for _, key := range c.Keys {
		p.keys = append(p.keys, key...)
		p.ends = append(p.ends, uint32(len(p.keys)))
	}
	s.tickets.add(t, ticketRef(ticketPut, h))
	switch {
	case alone:
		v.Out.Mark(MarkPeerBackedOff)
		p.blame(effects.BackedOff, s.leftAloneFor(p.where))
		s.deliver(v, p, effects.BackedOff)
		s.end(v, l, h, p)
		return
	case peer == 0:
		v.Out.Mark(MarkPeersFull)
		p.blame(effects.TooMany, effects.Why{
			Stage: effects.StageConnect, Field: "tables.peers", Ours: number(s.cfg.PeersMax) + ", all in use,",
			Remedy: "raise tables.peers, or retry",
		})
		s.deliver(v, p, effects.TooMany)
		s.end(v, l, h, p)
		return
	}
	if s.cfg.Pull {
		s.name(p, h)
	}
	v.Timers.Set(&p.timer, p.deadline, timerRef(timerPut, h))
	if s.cfg.Offload {
		s.becomeShort(v, h, p)
		return
	}
	s.becomeQueued(v, l, h, p)
}

func (s *Sender) check(v *env.Env, c *Put) (effects.Code, *effects.Why) {
	n := len(c.Keys)
	switch {
	case s.draining:
		return effects.Draining, &effects.Why{}
	case n == 0:
		return effects.Invalid, &effects.Why{Field: "Keys", Theirs: "empty", Ours: "one or more"}
	case n != len(c.Pages):
		return effects.Invalid, &effects.Why{
			Field: "Pages", Theirs: number(len(c.Pages)), Ours: "one for each of " + number(n) + " keys",
		}
	case c.Patience < 0:
		return effects.Invalid, &effects.Why{Field: "Patience", Theirs: c.Patience.String(), Ours: "0 or more"}
	case c.Peer.Host == "" || c.Peer.InitPort == 0 || c.Peer.AllocPort == 0:
		return effects.Invalid, &effects.Why{
			Field: "Peer", Theirs: where(c.Peer),
			Ours: "a host and two ports",
		}
	case n > s.Fits(c.Keys):
		return effects.TooLarge, &effects.Why{
			Field: "Keys", Theirs: number(n), Ours: "at most " + number(s.Fits(c.Keys)) + " of these",
		}
	case len(c.Request) > int(s.cfg.RequestIDMax):
		return effects.TooLarge, &effects.Why{
			Field: "Request", Theirs: number(len(c.Request)) + " bytes", Ours: "at most " + number(s.cfg.RequestIDMax),
		}
	case c.Last && len(c.Request) == 0:
		return effects.Invalid, &effects.Why{Field: "Request", Theirs: "empty", Ours: "a request that Last is of"}
	}
	if c.Layout != s.cfg.Layout {
		why, _ := link.Differ(s.cfg.Layout, c.Layout)
		why.Field = "Layout" + why.Field[len("layout"):]
		return effects.Mismatch, &why
	}
	if c.LastChunkTokens == 0 || c.LastChunkTokens > c.Layout.Tokens() {
		return effects.Invalid, &effects.Why{
			Field: "LastChunkTokens", Theirs: number(c.LastChunkTokens), Ours: "1 to " + number(c.Layout.Tokens()),
		}
	}
	var check protocol.KeyCheck
	for i, key := range c.Keys {
		want := s.cfg.PageBytes
		if i == n-1 {
			want = s.tokenBytes * uint64(c.LastChunkTokens)
		}
		switch got := uint64(c.Pages[i].Length); {
		case got != want:
			return effects.Invalid, &effects.Why{Field: at("Pages", i), Theirs: number(got) + " bytes", Ours: number(want)}
		case !v.Filled().Lives(c.Pages[i]):
			return effects.Invalid, &effects.Why{
				Field: at("Pages", i), Theirs: "none of a Reserve that was not released", Ours: "one",
			}
		}
		if err := check.Check(key, s.cfg.Wire.KeyBytes); err != nil {
			return effects.Invalid, &effects.Why{Field: at("Keys", i), Theirs: effects.Words([]byte(err.Error()))}
		}
	}
	return effects.OK, nil
}

// Pump moves on the puts of one peer: what waits for the link, for the alloc lane,
// and for the commit lane.
func (s *Sender) Pump(v *env.Env, l *link.Links, peer table.Handle) {
	q := &s.queues[peer.Slot()]
	switch state, cause := l.Outbound(peer).State(); state {
	case link.Ready:
	case link.Backoff:
		if cause == effects.Mismatch || cause == effects.Unsupported {
			// Waiting cannot help: the configurations differ.
			for h := q.alloc.Front(); h != 0; h = q.alloc.Front() {
				v.Out.Mark(MarkPeerUnfit)
				s.stopWithLink(v, l, h, cause)
			}
		}
		if l.Outbound(peer).Absent() {
			// Nobody is there. Each waits for one attempt that is younger than itself, so who comes later finds who started meanwhile.
			for h := q.alloc.Front(); h != 0 && s.puts.Get(h).reached != l.Outbound(peer).Attempt(); h = q.alloc.Front() {
				v.Out.Mark(MarkNobodyThere)
				s.stopWithLink(v, l, h, cause)
			}
		}
		return
	case link.Idle, link.Opening, link.Greeting, link.Importing, link.Listing:
		return
	}
	for h := q.alloc.Front(); h != 0 && s.orphaned(l, peer, s.puts.Get(h)); h = q.alloc.Front() {
		v.Out.Mark(MarkOfferOrphaned)
		s.puts.Get(h).blame(effects.PeerLost, effects.Why{
			Field: "life", Theirs: "new (it has restarted since the offer)",
		})
		s.stop(v, l, h, s.puts.Get(h), effects.PeerLost)
	}
	if h := q.alloc.Front(); h != 0 && l.Open(v, peer, link.LaneAlloc) && s.maySend(v, peer, s.puts.Get(h)) {
		s.puts.Unlink(&q.alloc, h)
		if q.alloc.Len() == 0 {
			s.sated(peer) // One that was offered before asks for no room.
		}
		s.becomeSent(v, l, h, l.Take(v, peer, link.LaneAlloc))
	}
	if h := q.commit.Front(); h != 0 {
		if conn := l.Take(v, peer, link.LaneCommit); conn != 0 {
			s.puts.Unlink(&q.commit, h)
			s.becomeConfirming(v, l, h, conn)
		}
	}
}

// onPutDeadline ends a put whose time is up.
func (s *Sender) onPutDeadline(v *env.Env, l *link.Links, h table.Handle) {
	code := effects.Expired
	p := s.puts.Get(h)
	p.blame(code, s.outOfTime(v, l, p))
	if p.phase == waiting {
		if state, cause := l.Outbound(p.peer).State(); state != link.Ready && cause != effects.OK {
			code = cause
			p.blameLink(l.Outbound(p.peer), code)
		}
	}
	s.stop(v, l, h, p, code)
}

// stopWithLink ends a put because of what became of the link that it waits for.
func (s *Sender) stopWithLink(v *env.Env, l *link.Links, h table.Handle, cause effects.Code) {
	p := s.puts.Get(h)
	p.blameLink(l.Outbound(p.peer), cause)
	s.stop(v, l, h, p, cause)
}

// OnAbort handles an Abort.
func (s *Sender) OnAbort(v *env.Env, l *link.Links, t effects.Ticket, c *Abort) {
	switch ref := s.tickets.find(c.Target); ref.Kind {
	case ticketReserve:
		if s.reserves.waits(ref.Subject) {
			s.reserves.fail(v, &s.tickets, ref.Subject, effects.Cancelled)
			agree(v, t)
			return
		}
	case ticketPut:
		if p := s.puts.Get(ref.Subject); !p.delivered || p.phase == offered && p.lease.Stands() {
			s.stop(v, l, ref.Subject, p, effects.Cancelled)
			agree(v, t)
			return
		}
	}
	turnDown(v, t, effects.NotFound, &effects.Why{
		Field: "Target", Theirs: number(uint64(c.Target)), Ours: "the ticket of a command that has not ended",
	})
}

// stop gives a put its outcome now, wherever it stands; what is under way goes on
// to its own end as a ghost.
func (s *Sender) stop(v *env.Env, l *link.Links, h table.Handle, p *put, code effects.Code) {
	switch p.phase {
	case waiting:
		s.unqueue(p, h)
		if p.lease.Out() {
			s.takeBack(v, l, h, p, code)
			return
		}
		s.deliver(v, p, code)
		s.end(v, l, h, p)
	case short:
		s.puts.Unlink(&s.short, h)
		s.shifted = true
		s.deliver(v, p, code)
		s.end(v, l, h, p)
	case copying:
		v.Out.Mark(MarkStoppedCopying)
		s.endCopying(v, h, p, code)
	case offering, offered:
		v.Out.Mark(MarkStoppedOffered)
		s.takeBack(v, l, h, p, code)
	case asking:
		v.Out.Mark(MarkStoppedAsking)
		s.deliver(v, p, code)
	case moving:
		v.Out.Mark(MarkStoppedMoving)
		v.Out.Cancel(p.transfer)
		p.aborting = true
		s.deliverHeld(v, p, code, true)
	case settling:
		panic("BUG: a settling put has its outcome already")
	case committing, confirming:
		v.Out.Mark(MarkStoppedCommitting)
		if p.delivered { // its last errand took too long: the lease will do
			if p.phase == committing {
				s.puts.Unlink(&s.queues[p.peer.Slot()].commit, h)
				s.finish(v, l, h, p)
			}
			return
		}
		p.aborting = true
		s.deliver(v, p, code)
		v.Timers.Set(&p.timer, v.Now.Add(s.cfg.ReplyTimeout), timerRef(timerPut, h))
	}
}

// deliver gives the put its one outcome, with its memory.
func (s *Sender) deliver(v *env.Env, p *put, code effects.Code) { s.deliverHeld(v, p, code, false) }

// deliverHeld gives the put its one outcome, without its memory if something still touches that.
func (s *Sender) deliverHeld(v *env.Env, p *put, code effects.Code, held bool) {
	out := effects.Deliver{Code: code, Held: held}
	if code == effects.OK {
		out.Sent, out.Skipped = p.sent, p.skipped
	} else {
		out.Why = p.because(code, effects.Why{Addr: p.where.Addr(), Peer: p.who, Stage: p.stage()})
	}
	for _, page := range p.host {
		v.Pool.Unref(page)
	}
	p.op.deliver(v, out)
	v.Out.Observe(effects.Observe{
		Fact: effects.FactPutEnded, Code: code, Count: uint32(len(p.ends)), ID: uint64(p.ticket), Peer: p.who, Why: out.Why,
	})
	if s.requests.leave(v, p.request, uint32(len(p.ends)), code) {
		s.proxy.maybeTell(v, &s.requests) // After the outcome: the engine may count on that order.
	}
}

// end removes a put that has its outcome and nothing under way.
func (s *Sender) end(v *env.Env, l *link.Links, h table.Handle, p *put) {
	p.mustBeOver()
	v.Timers.Stop(&p.timer)
	v.Timers.Stop(&p.answer)
	if p.peer != 0 {
		l.Unwant(p.peer)
	}
	s.tickets.remove(p.ticket)
	if p.pull != (protocol.PullID{}) {
		s.byPull.Remove(pullHash(p.pull), h)
	}
	p.keys, p.ends, p.pages, p.host = table.ShedBytes(p.keys), table.Shed(p.ends), table.Shed(p.pages), table.Shed(p.host)
	s.puts.Remove(h)
}
