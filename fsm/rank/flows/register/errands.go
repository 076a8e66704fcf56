package register

import (
	"bytes"
	"cmp"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// Errands: messages to producers about requests without a registration, to keep a request, or to say that nobody
// needs it. A single message to a peer is in flight at a time and contains all errands for the peer, and heartbeats
// for all requests are sent at the same instant.

// A wish is an Expect or NotNeeded: an errand to each of its peers.
type wish struct {
	ticket effects.Ticket
	// id is the name of the transfer if present, otherwise the name of the request.
	id      []byte
	skip    bool
	errands []table.Handle
	left    uint32
	timer   kernel.TimerID `snap:"set"`
}

// An errand is the information for a single peer in a wish.
type errand struct {
	of   table.Handle
	peer table.Handle
	told uint32
	sent bool // the message in flight contains this errand
}

type errands struct {
	wishes table.Slab[wish]
	byID   table.Index
	rows   table.Slab[errand]
	word   protocol.PushKeep `snap:"scratch"`
}

func (x *errands) emptied(cfg *Settings) errands {
	return errands{
		wishes: x.wishes.Emptied(int(cfg.ExpectedMax)), byID: x.byID.Emptied(), rows: x.rows.Emptied(int(cfg.ExpectedMax)),
		word: x.word,
	}
}

// beginErrand starts an Expect, or a NotNeeded if skip is set. An invalid command is refused at once.
func (c *Consumer) beginErrand(e *flow.Env, t effects.Ticket, request, transfer []byte, to []Peer,
	patience effects.Duration, skip bool) {
	x := &c.errands
	code, why := checkNames(e, request, transfer, patience)
	if code == effects.OK {
		code, why = checkPeers(to)
	}
	switch {
	case code != effects.OK:
	case len(to) == 0 || len(to) > int(c.cfg.ProducersMax):
		code, why = effects.Invalid, &effects.Why{
			Field: "Producers", Theirs: flow.Number(len(to)), Ours: "1 to " + flow.Number(c.cfg.ProducersMax),
			Remedy: "name each rank of the producer that has the request, or raise register.producers",
		}
	case x.wishes.Full() || x.rows.Len()+len(to) > x.rows.Max():
		e.Out.Mark(Marks.ErrandsFull)
		code, why = effects.TooMany, &effects.Why{
			Field: "register.expected", Ours: flow.Number(x.rows.Max()) + ", less what is expected already",
			Theirs: flow.Number(len(to)) + " more",
			Remedy: "retry when one has ended, or raise register.expected",
		}
	}
	if code != effects.OK {
		engine.TurnDown(&e.Env, t, code, why)
		return
	}
	id := transfer
	if len(id) == 0 {
		id = request
	}
	h, w := x.wishes.Add()
	*w = wish{ticket: t, id: append(w.id[:0], id...), skip: skip, errands: w.errands[:0]}
	x.byID.Add(e.Store.Hash(w.id), h)
	e.Tickets.Add(t, consumerRef(timerErrand, h))
	e.Timers.Set(&w.timer, e.Now.Add(cmp.Or(patience, c.cfg.RegisterTimeout)), consumerRef(timerErrand, h))
	for _, at := range to {
		peer := e.Links.Want(&e.Env, link.Where{Host: at.Host, InitPort: at.InitPort, AllocPort: at.Port})
		if peer == 0 {
			c.endErrand(e, h, effects.TooMany, noPeer(e))
			return
		}
		eh, r := x.rows.Add()
		*r = errand{of: h, peer: peer}
		w.errands, w.left = append(w.errands, eh), w.left+1
		l := &c.lines[peer.Slot()]
		if x.rows.PushBack(&l.kept, eh); !skip {
			l.due = true // The producer's lease may have begun long ago.
		}
	}
	for _, eh := range w.errands {
		if r := x.rows.Get(eh); r != nil {
			c.pumpErrands(e, r.peer)
		}
	}
}

// registered ends the Expects of a request for which a Register has arrived.
func (x *errands) registered(e *flow.Env, c *Consumer, request, transfer []byte) {
	id := transfer
	if len(id) == 0 {
		id = request
	}
	for {
		var of table.Handle
		for at := x.byID.Seek(e.Store.Hash(id)); at.Found(); at = x.byID.Next(at) {
			if w := x.wishes.Get(at.Handle()); !w.skip && bytes.Equal(w.id, id) {
				of = at.Handle()
			}
		}
		if of == 0 {
			return
		}
		c.endErrand(e, of, effects.OK, nil)
	}
}

// endErrand delivers the outcome of a wish and removes it.
func (c *Consumer) endErrand(e *flow.Env, h table.Handle, code effects.Code, why *effects.Why) {
	x := &c.errands
	w := x.wishes.Get(h)
	for _, eh := range w.errands {
		if r := x.rows.Get(eh); r != nil && r.of == h {
			c.dropErrand(e, eh, r)
		}
	}
	e.Timers.Stop(&w.timer)
	x.byID.Remove(e.Store.Hash(w.id), h)
	e.Tickets.Remove(w.ticket)
	if code != effects.OK {
		if why == nil {
			why = ended(code)
		}
		why.Stage = effects.StageAsk
	}
	e.Out.Deliver(effects.Deliver{Ticket: w.ticket, Code: code, Why: why})
	x.wishes.Remove(h)
}

func (c *Consumer) dropErrand(e *flow.Env, h table.Handle, r *errand) {
	c.errands.rows.Unlink(&c.lines[r.peer.Slot()].kept, h)
	e.Links.Unwant(r.peer)
	c.errands.rows.Remove(h)
}

// errandLate handles the deadline of a wish.
func (c *Consumer) errandLate(e *flow.Env, h table.Handle) {
	w := c.errands.wishes.Get(h)
	w.timer = 0
	c.endErrand(e, h, effects.Expired, &effects.Why{
		Field: "Patience", Theirs: flow.Number(w.left) + " of its peers", Ours: "told in time, or registered",
		Remedy: "look whether these ranks answer, or raise Patience",
	})
}

// pumpErrands sends the due errands of a peer.
func (c *Consumer) pumpErrands(e *flow.Env, peer table.Handle) {
	x, l := &c.errands, &c.lines[peer.Slot()]
	if l.tells || l.kept.Len() == 0 {
		return
	}
	skips := false
	for h := l.kept.Front(); h != 0; h = x.rows.Next(h) {
		skips = skips || x.wishes.Get(x.rows.Get(h).of).skip
	}
	if !l.due && !skips {
		if l.next == 0 {
			e.Timers.Set(&l.next, e.Now.Add(c.cfg.interval()), consumerRef(timerKeep, peer))
		}
		return
	}
	if g, _ := e.Links.Outbound(peer).Gate(); g != link.GateOpen {
		// The errands continue when the peer changes; otherwise each wish ends at the deadline.
		return
	}
	conn := e.Links.Take(&e.Env, peer, laneWords)
	if conn == 0 {
		return
	}
	of := e.Links.Of(peer)
	_, who := of.Link()
	m := &x.word
	*m = protocol.PushKeep{
		Version: link.VersionMax, Incarnation: protocol.UUID(of.Us()), To: protocol.UUID(who), Keep: m.Keep[:0],
		Skip: m.Skip[:0],
	}
	h := l.kept.Front()
	// Errands that are sent move behind the remaining ones.
	for n := min(l.kept.Len(), int(c.cfg.NamesMax)); n > 0; n-- {
		next := x.rows.Next(h)
		r := x.rows.Get(h)
		w := x.wishes.Get(r.of)
		if w.skip {
			m.Skip = append(m.Skip, w.id)
		} else if l.due {
			m.Keep = append(m.Keep, w.id)
		}
		r.sent = true
		r.told++
		x.rows.Unlink(&l.kept, h)
		x.rows.PushBack(&l.kept, h)
		h = next
	}
	l.tells, l.due, l.conn, l.who = true, false, conn, who
	// The reference keeps the peer's slot, and so its line, until the reply.
	e.Links.Want(&e.Env, e.Links.Outbound(peer).Where())
	e.Timers.Stop(&l.next)
	e.Timers.Set(&l.next, e.Now.Add(e.Cfg.ReplyTimeout), consumerRef(timerKeep, peer))
	e.Out.Send(effects.Send{
		Corr: e.Corrs.Open(consumerRef(kindKeep, peer)), Conn: conn, Body: e.Out.Cut(m.Append(e.Out.Arena())),
	})
}

// wordTimeout handles the time of the next errand message to a peer, or the deadline of the reply.
func (c *Consumer) wordTimeout(e *flow.Env, peer table.Handle) {
	l := &c.lines[peer.Slot()]
	l.next = 0
	if l.tells {
		e.Links.CloseTaken(&e.Env, peer, laneWords, l.conn)
		return
	}
	l.due = true
	c.pumpErrands(e, peer)
}

// wordAnswered handles the reply to an errand message, or the lack of a reply.
func (c *Consumer) wordAnswered(e *flow.Env, peer table.Handle, body []byte, code effects.Code) {
	x, l := &c.errands, &c.lines[peer.Slot()]
	if e.Timers.Stop(&l.next); code == effects.OK {
		e.Links.Untake(&e.Env, peer, laneWords, l.conn)
		if code = effects.Malformed; c.end.Decode(body, &e.Cfg.Wire) == nil {
			code = effects.CodeFromWire(c.end.Code)
		}
	} else {
		e.Links.CloseTaken(&e.Env, peer, laneWords, l.conn)
	}
	l.tells, l.conn = false, 0
	if code != effects.OK {
		e.Out.Mark(Marks.KeepFailed)
	}
	if code == effects.Stale {
		c.introduce(e, peer, l.who)
	}
	for h := l.kept.Front(); h != 0; {
		next := x.rows.Next(h)
		r := x.rows.Get(h)
		was := r.sent
		r.sent = false
		w := x.wishes.Get(r.of)
		of := r.of
		switch {
		case !was || !w.skip:
		case code == effects.OK:
			c.dropErrand(e, h, r)
			if w.left--; w.left == 0 {
				c.endErrand(e, of, effects.OK, nil)
			}
		case r.told >= e.Cfg.AttemptsMax:
			c.endErrand(e, of, effects.Unreachable, &effects.Why{
				Field: "Producers", Ours: "each told", Theirs: "one does not answer", Remedy: "its lease ends all the same",
			})
			next = l.kept.Front() // More rows of this list may have been removed.
		}
		h = next
	}
	e.Links.Unwant(peer)
	c.pumpErrands(e, peer)
}
