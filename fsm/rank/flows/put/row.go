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

// A Row is the part of a put that both flows have: the command and its chunks, the peer for which they are, and the
// request about them that is in flight. The outcome of a put and its end are two events: after Deliver the Row stays
// until nothing touches the put's pages and the peer has been notified of all that it has to know.
type Row struct {
	engine.Op
	Batch
	Peer      table.Handle // in the table of peers; zero: that table was full
	Where     link.Where   // the peer's address
	Request   table.Handle // zero: the put belongs to no request
	Operation uint64
	Attempt   uint32         // how often the put was sent
	Failed    uint32         // sent attempts that count as failed
	over      bool           // counted in the queue's over
	alone     bool           // in the queue alone
	turn      uint64         `snap:"skip"` // order in which puts were first sent
	reached   uint64         // the link's attempt when the put was queued
	Conn      effects.Conn   // of the lane that the put has taken
	answer    kernel.TimerID `snap:"set"` // when the reply is overdue
	// Who is the incarnation of the peer that received the request. What that incarnation said about the put does not
	// hold for another incarnation (M2).
	Who effects.Incarnation
	Us  effects.Incarnation // our identity towards the peer
	// chunks is the number of chunks for which the put needs room: a circuit breaker lets a put pass that is smaller
	// than the put that opened the breaker. If chunks is 0, no breaker stops the put, and the put opens none. That is
	// so for a put of another flow, which never waits at the peer, and which that flow retries.
	chunks uint32
	// Listens means that the peer accepts a final message (a commit or a withdrawal). The link may be down by then.
	Listens bool
	Grant   effects.GrantID // of the peer, for the put's pages
	Sent    uint32
	Skipped uint32
	Inner
}

// An Inner contains the additional properties of a put that another flow requested. A put of the engine has none of
// these.
type Inner struct {
	For kernel.Ref // the row to notify of the result; none: the engine
	// Layers is the number of layers of a chunk, each of which has a page; 0: each chunk has one page.
	Layers uint32
	// Whole means that the keys name chunks, all layers of which are here, in order. Otherwise the keys name layers.
	Whole   bool
	Epoch   uint32
	Opened  effects.GrantID
	Already []uint32 // indices of pages; the peer had their chunks already
	// NoRoom means that the peer has no room for the put now, or that a circuit breaker is open for this reason. None
	// of the put was sent.
	NoRoom bool
}

// A Batch contains the keys of a put's chunks.
type Batch struct {
	keys       []byte
	ends       []uint32 // ends[i] is where key i ends in keys
	LastTokens uint32   // tokens in the last chunk
}

// Size returns the number of chunks.
func (b *Batch) Size() int { return len(b.ends) }

// KeyBytes returns the length of all keys together.
func (b *Batch) KeyBytes() int { return len(b.keys) }

// Key returns the key of chunk i.
func (b *Batch) Key(i int) []byte {
	from := uint32(0)
	if i > 0 {
		from = b.ends[i-1]
	}
	return b.keys[from:b.ends[i]]
}

// Keys returns the number of keys that describe the put: one for each chunk or, if chunks is false, one for each page.
func (r *Row) Keys(chunks bool) int {
	if chunks {
		return r.Size()
	}
	return len(r.Pages)
}

// Shape returns the shape that LMCache sends for a batch: the shape of the first object, which may be a short chunk.
func (b *Batch) Shape(l *protocol.Layout) protocol.Shape {
	if b.Size() == 1 && b.LastTokens < l.Tokens() {
		if short, err := l.WithTokens(b.LastTokens); err == nil {
			return short.Shape
		}
	}
	return l.Shape
}

// Admitted contains what a Put has received before its flow starts the put, or the reason that the put ends at once.
type Admitted struct {
	engine.Taken
	Peer table.Handle // in the table of peers
	Code effects.Code
	Why  effects.Why

	chunks uint32
}

// Admit accepts a Put and finds its peer, or refuses the Put and returns false. open is the number of the flow's open
// puts, and fits is the number of these chunks that one put can contain. A refusal changes nothing. If the Put is
// accepted but Admitted.Code is not OK, the Put ends at once with an outcome like every accepted put, and counts in the
// notification to the proxy.
func Admit(e *flow.Env, t effects.Ticket, c *engine.Put, open int, fits engine.Fits) (Admitted, bool) {
	taken, ok := e.Commands.Take(&e.Env, t, c, open, fits, e.Draining)
	a := Admitted{Taken: taken}
	if ok {
		a.meet(e, link.Where(c.Peer), uint32(len(c.Keys)))
	}
	return a, ok
}

// Carry accepts a put of another flow and finds its peer. If Code of the result is not OK, the put ends at once.
func Carry(e *flow.Env, c *flow.Carried) (a Admitted) {
	a.Request, a.Operation, a.Patience = c.Request, e.Commands.Operation(), c.Put.Patience
	a.meet(e, link.Where(c.Put.Peer), 0)
	return a
}

// meet finds the peer of a put with this number of chunks, or sets the code and the reason. If chunks is 0, no circuit
// breaker stops the put.
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

// Begin initializes the Row of a put, which ref names. Begin reuses the memory of the Row that was here before.
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

// Meet records the incarnation of the peer to which the put is about to be sent, and returns what that incarnation said
// in its handshake.
func (r *Row) Meet(e *flow.Env) *link.Incarnation {
	of := e.Links.Of(r.Peer)
	_, r.Who = of.Link()
	r.Us = of.Us()
	return of
}

// Met reports whether the link is up to the incarnation to which the put was sent (M2).
func (r *Row) Met(e *flow.Env) bool {
	state, _ := e.Links.Outbound(r.Peer).State()
	_, who := e.Links.Of(r.Peer).Link()
	return state == link.Ready && who == r.Who
}

// Send sends a request on the lane that the put has taken, and starts the timer for the reply. The reply goes to
// answered, the timeout to overdue. The driver copies the bytes of the pages in carries to the end of the body.
func (r *Row) Send(e *flow.Env, body []byte, carries []effects.Page, answered, overdue kernel.Ref) {
	e.Out.Send(effects.Send{Corr: e.Corrs.Open(answered), Conn: r.Conn, Body: e.Out.Cut(body), Carries: carries})
	e.Timers.Set(&r.answer, e.Now.Add(e.Cfg.ReplyTimeout), overdue)
}

// HangUp closes the lane that the put has taken, so that a late reply is never taken for the reply to the next request.
func (r *Row) HangUp(e *flow.Env, lane link.Lane) { e.Links.CloseTaken(&e.Env, r.Peer, lane, r.Conn) }

// Outcome delivers the put's one outcome. If held is set, something still touches the put's memory, and Return follows
// later.
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

// Return gives the memory back after an outcome with held set.
func (r *Row) Return(e *flow.Env) {
	if r.For.Owner == kernel.OwnerNone {
		r.Op.Return(&e.Env)
		return
	}
	r.Back(&e.Env)
	e.Told = append(e.Told, flow.Told{For: r.For, Returned: true})
}

// LetGo releases everything that the Row has. The flow then removes the Row.
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

// inVain reports whether a put need not wait any longer for a link that is not open. If nobody listens at the peer's
// address, each put waits for one connection attempt that began after the put was queued, so that a peer that starts in
// the meantime is found.
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

// TooLate returns the code of a put that has run out of time while it waited for its peer: the cause of the link's
// failure if that is known, else Expired.
func (r *Row) TooLate(e *flow.Env) effects.Code {
	if state, cause := e.Links.Outbound(r.Peer).State(); state != link.Ready && cause != effects.OK {
		r.BlameAs(cause, e.Links.Outbound(r.Peer).Why())
		return cause
	}
	return effects.Expired
}

// OutOfTime returns the reason for any put that has run out of time.
func (r *Row) OutOfTime() effects.Why {
	return effects.Why{Field: "put_timeout", Ours: r.Patience.String(), Theirs: "no answer"}
}

// OutOfTimeWaiting returns the reason for a put that has run out of time while it waited for its peer.
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

// Malformed records and reports that a peer's reply is not valid.
func (r *Row) Malformed(e *flow.Env, stage effects.Stage, why effects.Why) {
	r.Blame(effects.Malformed, why)
	why.Addr, why.Peer, why.Stage = r.Where.Addr(), r.Who, stage
	e.Out.Observe(effects.Observe{
		Fact: effects.FactMalformed, Code: effects.Malformed, ID: uint64(r.Conn), Peer: r.Who, Why: &why,
	})
}
