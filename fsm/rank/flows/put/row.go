package put

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// A Row is what each flow has of a put: the command and its chunks, whom they are for, and the question about them
// that is under way. A put's outcome and its end are two things: after Deliver its row stays until nothing touches
// its pages and its peer was told what it has to know.
type Row struct {
	engine.Op
	Batch
	Peer      table.Handle // of the link room; zero: it had no place
	Where     link.Where   // of the peer
	Request   table.Handle // zero: belongs to none
	Operation uint64
	Attempt   uint32              // how often it was asked
	Failed    uint32              // those of them that count against it
	over      bool                // as in line
	alone     bool                // as in line
	turn      uint64              `snap:"skip"` // its place among those that were sent
	reached   uint64              // the link's attempt when it began to wait for it
	Conn      effects.Conn        // of the lane it has taken
	answer    kernel.TimerID      `snap:"set"` // when that which was asked there is overdue
	Who       effects.Incarnation // whom it asked: what is said of it holds for no other life
	Us        effects.Incarnation // who we are to it
	// chunks is how many it asks room for: a breaker lets a put pass that is smaller than the one that opened it. 0: no
	// breaker holds it up, and it opens none. A put of another flow never waits at its peer, and its flow tries it again.
	chunks  uint32
	Listens bool            // that peer takes a last word (commit, withdrawal); the link may be down by then
	Grant   effects.GrantID // of its peer, under which its pages go
	Sent    uint32
	Skipped uint32
	Inner
}

// An Inner is what a put says besides that another flow gives, and no engine does.
type Inner struct {
	For     kernel.Ref // who hears what becomes of it; none: the engine
	Layers  uint32     // of a chunk, each of which has a page; 0: each chunk has one
	Whole   bool       // the keys are of chunks, of which all layers are here, in order; else of layers
	Epoch   uint32
	Opened  effects.GrantID
	Already []uint32 // what was there already, by place
	NoRoom  bool     // its peer has no room for it now, or is left alone for that, and nothing of it went
}

// A Batch is the chunks of a put.
type Batch struct {
	keys       []byte
	ends       []uint32 // ends[i]: where key i ends in keys
	LastTokens uint32
}

// Size is the number of chunks.
func (b *Batch) Size() int { return len(b.ends) }

// KeyBytes is how long all keys are together.
func (b *Batch) KeyBytes() int { return len(b.keys) }

// Key is that of chunk i.
func (b *Batch) Key(i int) []byte {
	from := uint32(0)
	if i > 0 {
		from = b.ends[i-1]
	}
	return b.keys[from:b.ends[i]]
}

// Keys is how many keys say what a put has: one for each of its layers, or one for each chunk.
func (r *Row) Keys(chunks bool) int {
	if chunks {
		return r.Size()
	}
	return len(r.Pages)
}

// Shape is what LMCache sends for a batch: that of its first object, which may be a short one.
func (b *Batch) Shape(l *protocol.Layout) protocol.Shape {
	if b.Size() == 1 && b.LastTokens < l.Tokens() {
		if short, err := l.WithTokens(b.LastTokens); err == nil {
			return short.Shape
		}
	}
	return l.Shape
}

// Admitted is what a Put has been given before a flow takes it, or why it is to end at once.
type Admitted struct {
	engine.Taken
	Peer table.Handle // of the link room
	Code effects.Code
	Why  effects.Why

	chunks uint32
}

// Admit takes a Put, and gives it its peer, or says no at once. open puts of the flow are there, and one can have fits
// of these chunks. What is refused here leaves everything as it was; what is refused later has an outcome as any put
// has, of which the proxy hears.
func Admit(e *flow.Env, t effects.Ticket, c *engine.Put, open int, fits engine.Fits) (Admitted, bool) {
	taken, ok := e.Commands.Take(&e.Env, t, c, open, fits, e.Draining)
	a := Admitted{Taken: taken}
	if ok {
		a.meet(e, link.Where(c.Peer), uint32(len(c.Keys)))
	}
	return a, ok
}

// Carry takes a put of another flow, and gives it its peer, or says why it is to end at once.
func Carry(e *flow.Env, c *flow.Carried) (a Admitted) {
	a.Request, a.Operation, a.Patience = c.Request, e.Commands.Operation(), c.Put.Patience
	a.meet(e, link.Where(c.Put.Peer), 0)
	return a
}

// meet gives a put of so many chunks its peer, or says why it has none. With 0 no breaker holds it up.
func (a *Admitted) meet(e *flow.Env, w link.Where, chunks uint32) {
	if a.chunks = chunks; chunks > 0 && e.Breakers.LeftAlone(e.Now, w, chunks) {
		e.Out.Mark(Marks.PeerBackedOff)
		a.Code, a.Why = effects.BackedOff, e.Breakers.Why(w)
		return
	}
	if a.Peer = e.Links.Want(&e.Env, w); a.Peer == 0 {
		e.Out.Mark(Marks.PeersFull)
		a.Code, a.Why = effects.TooMany, effects.Why{
			Stage: effects.StageConnect, Field: "tables.peers", Ours: number(e.Cfg.PeersMax) + ", all in use,",
			Remedy: "raise tables.peers, or retry",
		}
	}
}

// Begin makes the row of a put, which ref names; it reuses the memory of the one that was here before.
func (r *Row) Begin(e *flow.Env, c *engine.Put, a *Admitted, ref kernel.Ref) {
	*r = Row{
		Op: engine.Op{Pages: r.Pages}, Inner: Inner{Already: r.Already[:0]},
		Batch: Batch{keys: r.keys[:0], ends: r.ends[:0], LastTokens: c.LastChunkTokens},
		Peer:  a.Peer, Where: link.Where(c.Peer), Request: a.Request, Operation: a.Operation, chunks: a.chunks,
	}
	r.Op.Begin(&e.Env, a.Ticket, c.Pages, a.Patience)
	for _, key := range c.Keys {
		r.keys = append(r.keys, key...)
		r.ends = append(r.ends, uint32(len(r.keys)))
	}
	if a.Ticket != 0 {
		e.Tickets.Add(a.Ticket, ref)
	}
}

// Meet notes which life of its peer a put is about to speak to, and returns what that has said of itself.
func (r *Row) Meet(e *flow.Env) *link.Incarnation {
	of := e.Links.Of(r.Peer)
	_, r.Who = of.Link()
	r.Us = of.Us()
	return of
}

// Met says whether the link is up to the life that a put was sent to.
func (r *Row) Met(e *flow.Env) bool {
	state, _ := e.Links.Outbound(r.Peer).State()
	_, who := e.Links.Of(r.Peer).Link()
	return state == link.Ready && who == r.Who
}

// Send asks the peer on the lane that was taken; answered is told of the answer, overdue when there is none in time.
// The end of the body is for the bytes of the pages that it carries.
func (r *Row) Send(e *flow.Env, body []byte, carries []effects.Page, answered, overdue kernel.Ref) {
	e.Out.Send(effects.Send{Corr: e.Corrs.Open(answered), Conn: r.Conn, Body: e.Out.Cut(body), Carries: carries})
	e.Timers.Set(&r.answer, e.Now.Add(e.Cfg.ReplyTimeout), overdue)
}

// HangUp closes the lane that was taken, so that a late answer can never be taken for the next one's.
func (r *Row) HangUp(e *flow.Env, lane link.Lane) { e.Links.CloseTaken(&e.Env, r.Peer, lane, r.Conn) }

// Outcome gives the put its one outcome, without its memory if something still touches that.
func (r *Row) Outcome(e *flow.Env, code effects.Code, held bool, stage effects.Stage) {
	out := effects.Deliver{Code: code, Held: held}
	if code == effects.OK {
		out.Sent, out.Skipped = r.Sent, r.Skipped
	} else {
		out.Why = r.Because(code, effects.Why{Addr: r.Where.Addr(), Peer: r.Who, Stage: stage})
	}
	if r.For.Owner != kernel.OwnerNone {
		r.End(&e.Env, held)
		e.Told = append(e.Told, flow.Told{
			For: r.For, Code: code, Held: r.Held(), NoRoom: r.NoRoom && passing(code), Why: out.Why,
			Grant: r.Grant, Already: append([]uint32(nil), r.Already...),
		})
		return
	}
	r.Deliver(&e.Env, out)
	e.Out.Observe(effects.Observe{
		Fact: effects.FactPutEnded, Code: code, Count: uint32(r.Size()), ID: uint64(r.Ticket), Peer: r.Who, Why: out.Why,
	})
	e.Commands.Leave(&e.Env, r.Request, uint32(r.Size()), code)
}

// Return gives the memory back apart from the outcome.
func (r *Row) Return(e *flow.Env) {
	if r.For.Owner == kernel.OwnerNone {
		r.Op.Return(&e.Env)
		return
	}
	r.Back(&e.Env)
	e.Told = append(e.Told, flow.Told{For: r.For, Returned: true})
}

// LetGo ends the row, which its flow then removes.
func (r *Row) LetGo(e *flow.Env) {
	r.MustBeOver()
	e.Timers.Stop(&r.Timer)
	e.Timers.Stop(&r.answer)
	if r.Peer != 0 {
		e.Links.Unwant(r.Peer)
	}
	if r.Ticket != 0 {
		e.Tickets.Remove(r.Ticket)
	}
	r.keys, r.ends, r.Pages = table.ShedBytes(r.keys), table.Shed(r.ends), table.Shed(r.Pages)
}

// inVain says whether a put need not wait any longer behind a gate that is not open. Where nobody is there each
// waits for one attempt that is younger than itself, so who comes later finds who started meanwhile.
func (r *Row) inVain(e *flow.Env, g link.Gate) bool {
	switch g {
	case link.GateUnfit:
		e.Out.Mark(Marks.PeerUnfit)
		return true
	case link.GateAbsent:
		if r.reached != e.Links.Outbound(r.Peer).Attempt() {
			e.Out.Mark(Marks.NobodyThere)
			return true
		}
	case link.GateShut, link.GateSilent, link.GateOpen:
	}
	return false
}

// TooLate is the code of a put whose time is over while it waits for its peer: what became of the link, if it is
// known.
func (r *Row) TooLate(e *flow.Env) effects.Code {
	if state, cause := e.Links.Outbound(r.Peer).State(); state != link.Ready && cause != effects.OK {
		r.BlameAs(cause, e.Links.Outbound(r.Peer).Why())
		return cause
	}
	return effects.Expired
}

// OutOfTime is what is said of any put whose time is over.
func (r *Row) OutOfTime() effects.Why {
	return effects.Why{Field: "put_timeout", Ours: r.Patience.String(), Theirs: "no answer"}
}

// OutOfTimeWaiting is what is said of one that waited for its peer.
func (r *Row) OutOfTimeWaiting(e *flow.Env) effects.Why {
	w := r.OutOfTime()
	switch state, _ := e.Links.Outbound(r.Peer).State(); {
	case state == link.Ready:
		w.Theirs = "busy with what came before"
	case e.Links.Outbound(r.Peer).Silent():
		w = link.NoHello(w.Field, r.Patience)
	default:
		w.Stage, w.Theirs = e.Links.Outbound(r.Peer).Stage(), "not connected"
	}
	return w
}

// Malformed notes that a peer's answer makes no sense.
func (r *Row) Malformed(e *flow.Env, stage effects.Stage, why effects.Why) {
	r.Blame(effects.Malformed, why)
	why.Addr, why.Peer, why.Stage = r.Where.Addr(), r.Who, stage
	e.Out.Observe(effects.Observe{
		Fact: effects.FactMalformed, Code: effects.Malformed, ID: uint64(r.Conn), Peer: r.Who, Why: &why,
	})
}
