package sender

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/engine"
	"github.com/kvferry/kvferry/fsm/kernel"
	"github.com/kvferry/kvferry/fsm/link"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// A row is what each flow has of a put: the command and its chunks, whom they are for, and the question about them
// that is under way. A put's outcome and its end are two things: after Deliver its row stays until nothing touches
// its pages and its peer was told what it has to know.
type row struct {
	engine.Op
	batch
	peer      table.Handle // of the link room; zero: it had no place
	where     link.Where   // of the peer
	request   table.Handle // zero: belongs to none
	operation uint64
	attempt   uint32              // how often it was asked
	failed    uint32              // those of them that count against it
	turn      uint64              `snap:"skip"` // its place among those that were sent
	reached   uint64              // the link's attempt when it began to wait for it
	conn      effects.Conn        // of the lane it has taken
	answer    kernel.TimerID      `snap:"set"` // when that which was asked there is overdue
	who       effects.Incarnation // whom it asked: what is said of it holds for no other life
	us        effects.Incarnation // who we are to it
	listens   bool                // that peer takes a last word (commit, withdrawal); the link may be down by then
	sent      uint32
	skipped   uint32
}

// A batch is the chunks of a put.
type batch struct {
	keys       []byte
	ends       []uint32 // ends[i]: where key i ends in keys
	lastTokens uint32
}

// size is the number of chunks.
func (b *batch) size() int { return len(b.ends) }

func (b *batch) key(i int) []byte {
	from := uint32(0)
	if i > 0 {
		from = b.ends[i-1]
	}
	return b.keys[from:b.ends[i]]
}

// shape is what LMCache sends for a batch: that of its first object, which may be a short one.
func (b *batch) shape(l *protocol.Layout) protocol.Shape {
	if b.size() == 1 && b.lastTokens < l.Tokens() {
		if short, err := l.WithTokens(b.lastTokens); err == nil {
			return short.Shape
		}
	}
	return l.Shape
}

// admitted is what a Put has been given before a flow takes it, or why it is to end at once.
type admitted struct {
	ticket    effects.Ticket
	request   table.Handle
	peer      table.Handle
	operation uint64
	code      effects.Code
	why       effects.Why
}

// begin makes the row of a put, which ref names; it reuses the memory of the one that was here before.
func (r *row) begin(e *step, c *Put, a *admitted, ref kernel.Ref) {
	patience := c.Patience
	if patience == 0 {
		patience = e.cfg.PutTimeout
	}
	*r = row{
		Op: engine.Op{Pages: r.Pages}, batch: batch{keys: r.keys[:0], ends: r.ends[:0], lastTokens: c.LastChunkTokens},
		peer: a.peer, where: link.Where(c.Peer), request: a.request, operation: a.operation,
	}
	r.Begin(&e.Env, a.ticket, c.Pages, patience)
	for _, key := range c.Keys {
		r.keys = append(r.keys, key...)
		r.ends = append(r.ends, uint32(len(r.keys)))
	}
	e.tickets.Add(a.ticket, ref)
}

// meet notes which life of its peer a put is about to speak to, and returns what that has said of itself.
func (r *row) meet(e *step) *link.Incarnation {
	of := e.links.Of(r.peer)
	_, r.who = of.Link()
	r.us = of.Us()
	return of
}

// met says whether the link is up to the life that a put was sent to.
func (r *row) met(e *step) bool {
	state, _ := e.links.Outbound(r.peer).State()
	_, who := e.links.Of(r.peer).Link()
	return state == link.Ready && who == r.who
}

// send asks the peer on the lane that was taken; answered is told of the answer, overdue when there is none in time.
func (r *row) send(e *step, body []byte, answered, overdue kernel.Ref) {
	e.Out.Send(effects.Send{Corr: e.Corrs.Open(answered), Conn: r.conn, Body: e.Out.Cut(body)})
	e.Timers.Set(&r.answer, e.Now.Add(e.cfg.ReplyTimeout), overdue)
}

// hangUp closes the lane that was taken, so that a late answer can never be taken for the next one's.
func (r *row) hangUp(e *step, lane link.Lane) { e.links.CloseTaken(&e.Env, r.peer, lane, r.conn) }

// outcome gives the put its one outcome, without its memory if something still touches that.
func (r *row) outcome(e *step, code effects.Code, held bool, stage effects.Stage) {
	out := effects.Deliver{Code: code, Held: held}
	if code == effects.OK {
		out.Sent, out.Skipped = r.sent, r.skipped
	} else {
		out.Why = r.Because(code, effects.Why{Addr: r.where.Addr(), Peer: r.who, Stage: stage})
	}
	r.Deliver(&e.Env, out)
	e.Out.Observe(effects.Observe{
		Fact: effects.FactPutEnded, Code: code, Count: uint32(r.size()), ID: uint64(r.Ticket), Peer: r.who, Why: out.Why,
	})
	if e.requests.Leave(&e.Env, r.request, uint32(r.size()), code) {
		e.proxy.maybeTell(&e.Env, &e.requests) // After the outcome: who is told by the proxy may rely on it.
	}
}

// letGo ends the row, which its flow then removes.
func (r *row) letGo(e *step) {
	r.MustBeOver()
	e.Timers.Stop(&r.Timer)
	e.Timers.Stop(&r.answer)
	if r.peer != 0 {
		e.links.Unwant(r.peer)
	}
	e.tickets.Remove(r.Ticket)
	r.keys, r.ends, r.Pages = table.ShedBytes(r.keys), table.Shed(r.ends), table.Shed(r.Pages)
}

// backedOff says whether a put that was given its turn on its peer's lane must not wait there, because that peer is
// to be left alone: it may have said that it is full since the put was given, and since it was sent, if its answer
// was lost. So nobody waits for a lane while its breaker is open.
func (r *row) backedOff(e *step) bool {
	r.reached = e.links.Outbound(r.peer).Attempt()
	if !e.breakers.LeftAlone(e.Now, e.links.Outbound(r.peer).Where()) {
		return false
	}
	e.Out.Mark(MarkPeerBackedOff)
	r.Blame(effects.BackedOff, e.breakers.Why(r.where))
	return true
}

// inVain says whether a put need not wait any longer behind a gate that is not open. Where nobody is there each
// waits for one attempt that is younger than itself, so who comes later finds who started meanwhile.
func (r *row) inVain(e *step, g link.Gate) bool {
	switch g {
	case link.GateUnfit:
		e.Out.Mark(MarkPeerUnfit)
		return true
	case link.GateAbsent:
		if r.reached != e.links.Outbound(r.peer).Attempt() {
			e.Out.Mark(MarkNobodyThere)
			return true
		}
	case link.GateShut, link.GateOpen:
	}
	return false
}

// tooLate is the code of a put whose time is over while it waits for its peer: what became of the link, if it is
// known.
func (r *row) tooLate(e *step) effects.Code {
	if state, cause := e.links.Outbound(r.peer).State(); state != link.Ready && cause != effects.OK {
		r.BlameAs(cause, e.links.Outbound(r.peer).Why())
		return cause
	}
	return effects.Expired
}

// outOfTime is what is said of any put whose time is over.
func (r *row) outOfTime() effects.Why {
	return effects.Why{Field: "put_timeout", Ours: r.Patience.String(), Theirs: "no answer"}
}

// outOfTimeWaiting is what is said of one that waited for its peer.
func (r *row) outOfTimeWaiting(e *step) effects.Why {
	w := r.outOfTime()
	switch state, _ := e.links.Outbound(r.peer).State(); {
	case state == link.Ready:
		w.Theirs = "busy with what came before"
	case e.links.Outbound(r.peer).Silent():
		w = link.NoHello(w.Field, r.Patience)
	default:
		w.Stage, w.Theirs = e.links.Outbound(r.peer).Stage(), "not connected"
	}
	return w
}

// malformed notes that a peer's answer makes no sense.
func (r *row) malformed(e *step, stage effects.Stage, why effects.Why) {
	r.Blame(effects.Malformed, why)
	why.Addr, why.Peer, why.Stage = r.where.Addr(), r.who, stage
	e.Out.Observe(effects.Observe{
		Fact: effects.FactMalformed, Code: effects.Malformed, ID: uint64(r.conn), Peer: r.who, Why: &why,
	})
}
