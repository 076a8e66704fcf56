package end

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

var _ flow.Flow = (*Source)(nil)

// A Source sends end-of-request messages to receivers.
type Source struct {
	cfg  Config `snap:"share"`
	rows table.Slab[row]
	ways table.Slab[way]
	used table.List // the ways with a message to send or in flight
	idle table.List // the idle ways, in the order in which they became idle

	ask   protocol.EndRequest  `snap:"scratch"`
	reply protocol.EndResponse `snap:"scratch"`
}

// A row is one End, from its command to its outcome.
type row struct {
	ticket    effects.Ticket
	way       table.Handle
	operation uint64
	request   []byte
	code      effects.Code
	reason    []byte
	patience  effects.Duration
	timer     kernel.TimerID `snap:"set"` // the end of the patience
	cause     effects.Code   // the code of the latest failure
	why       effects.Why
}

// A way is the connection to one receiver's alloc port. One message is in flight on a way at a time, that of the
// first End in the queue.
type way struct {
	where link.Where
	conn  link.Conn
	queue table.List // the Ends that have not been confirmed
	phase wayPhase
	fails uint32         // the number of consecutive attempts without a reply
	timer kernel.TimerID `snap:"set"` // the time at which the reply is overdue, or at which the pause ends
	asked table.Handle   // the End of the message in flight; its row may be gone
	busy  bool           // the way is in Source.used
}

// wayPhase is the phase of a way.
type wayPhase uint8

const (
	wayIdle    wayPhase = iota // nothing is in flight
	wayOpening                 // the connection is being opened
	wayAsking                  // a reply is awaited
	wayPausing                 // no message is sent until the pause ends
)

// The kinds of Refs of this flow.
const (
	kindEnd  uint8 = iota + 1 // an End: its ticket and the end of its patience
	kindOpen                  // the connection of a way
	kindAsk                   // the reply to a message
	timerWay                  // the time at which the reply is overdue, or at which the pause ends
)

func ref(kind uint8, h table.Handle) kernel.Ref {
	return kernel.Ref{Owner: kernel.OwnerEndSource, Kind: kind, Subject: h}
}

// Emptied returns a Source without Ends. The memory of f is reused, so f must not be used afterwards.
func (f *Source) Emptied(cfg Config) Source {
	return Source{
		cfg: cfg, rows: f.rows.Emptied(int(cfg.EndsMax)), ways: f.ways.Emptied(int(cfg.PeersMax)),
		ask: f.ask, reply: f.reply,
	}
}

// Step handles the completions of the effects that this flow requested.
func (f *Source) Step(e *flow.Env, of kernel.Ref, ev effects.Event) {
	switch ev := ev.(type) {
	case *effects.Opened:
		f.opened(e, of.Subject, ev)
	case *effects.ConnLost:
		f.lost(e, of.Subject)
	case *effects.Replied:
		f.replied(e, of.Subject, ev.Body)
	case *effects.Unanswered:
		f.unanswered(e, of.Subject, ev.Code)
	default:
		kernel.Foreign("who tells how requests ended")
	}
}

// take starts an End, or refuses it at once.
func (f *Source) take(e *flow.Env, t effects.Ticket, c *End) {
	if code, why := f.check(e, c); code != effects.OK {
		engine.TurnDown(&e.Env, t, code, &why)
		return
	}
	var at table.Handle
	if !f.rows.Full() { // If the table is full, no connection is closed for an End that is refused anyway.
		at = f.reach(e, link.Where(c.Peer))
	}
	if at == 0 {
		e.Out.Mark(Marks.Full)
		engine.TurnDown(&e.Env, t, effects.TooMany, &effects.Why{
			Field: "tables.commands", Ours: number(f.rows.Max()) + ", and as many ends are told",
			Remedy: "retry when one has ended, or raise tables.commands",
		})
		return
	}
	h, r := f.rows.Add()
	*r = row{
		ticket: t, way: at, operation: e.Commands.Operation(), request: append(r.request[:0], c.Request...), code: c.Code,
		reason: append(r.reason[:0], c.Reason...), patience: c.Patience,
	}
	if r.patience == 0 {
		r.patience = f.cfg.Timeout
	}
	e.Tickets.Add(t, ref(kindEnd, h))
	e.Timers.Set(&r.timer, e.Now.Add(r.patience), ref(kindEnd, h))
	f.rows.PushBack(&f.ways.Get(at).queue, h)
	f.goOn(e, at)
}

// check returns OK if an End is valid, or else the code and the reason for refusing it.
func (f *Source) check(e *flow.Env, c *End) (effects.Code, effects.Why) {
	most := e.Commands.RequestIDMax()
	switch {
	case e.Draining:
		return effects.Draining, effects.Why{}
	case len(c.Request) == 0:
		return effects.Invalid, *flow.NoRequest()
	case len(c.Request) > most:
		return effects.TooLarge, effects.Why{
			Field: "Request", Theirs: number(len(c.Request)) + " bytes", Ours: "at most " + number(most) + " (limits.request_bytes)",
		}
	case len(c.Reason) > effects.WordsMax:
		return effects.TooLarge, effects.Why{
			Field: "Reason", Theirs: number(len(c.Reason)) + " bytes", Ours: "at most " + number(effects.WordsMax),
		}
	case c.Code >= effects.CodeCount:
		return effects.Invalid, effects.Why{
			Field: "Code", Theirs: number(uint32(c.Code)), Ours: "a code below " + number(uint32(effects.CodeCount)),
		}
	case c.Patience < 0:
		return effects.Invalid, effects.Why{Field: "Patience", Theirs: c.Patience.String(), Ours: "0 or more"}
	case c.Peer.Host == "" || c.Peer.InitPort == 0 || c.Peer.AllocPort == 0:
		return effects.Invalid, effects.Why{Field: "Peer", Theirs: effects.Words([]byte(c.Peer.Host)),
			Ours: "a host and two ports"}
	}
	return effects.OK, effects.Why{}
}

// reach returns the way to a receiver, and inserts a new way if necessary, in place of the longest idle way if
// the table is full. It returns 0 if all ways are in use.
func (f *Source) reach(e *flow.Env, to link.Where) table.Handle {
	for slot := range f.ways.Slots() {
		h := f.ways.At(slot)
		if w := f.ways.Get(h); w != nil && w.where == to {
			return h
		}
	}
	if f.ways.Full() {
		h := f.idle.Front()
		if h == 0 {
			return 0
		}
		f.ways.Get(h).conn.Close(&e.Env)
		f.ways.Unlink(&f.idle, h)
		f.ways.Remove(h)
	}
	h, w := f.ways.Add()
	*w = way{where: to}
	f.ways.PushBack(&f.idle, h)
	return h
}

// goOn sends the message of the first End in a way's queue if nothing is in flight on the way, and moves the way
// to the list of used or of idle ways. A way is idle, and may be replaced, when its queue is empty and no
// completion or timer of the way is outstanding.
func (f *Source) goOn(e *flow.Env, h table.Handle) {
	w := f.ways.Get(h)
	if w.phase == wayIdle && w.queue.Len() > 0 {
		if w.conn.ID() == 0 {
			w.phase = wayOpening
			w.conn.Open(&e.Env, e.Corrs.Open(ref(kindOpen, h)), effects.ChannelAlloc,
				effects.Addr{Host: w.where.Host, Port: w.where.AllocPort})
		} else {
			f.send(e, h, w)
		}
	}
	f.ways.Unlink(w.list(f), h)
	if w.busy = w.phase != wayIdle || w.queue.Len() > 0; w.busy {
		f.ways.PushBack(&f.used, h)
	} else {
		f.ways.PushBack(&f.idle, h)
	}
}

// list returns the list that contains the way.
func (w *way) list(f *Source) *table.List {
	if w.busy {
		return &f.used
	}
	return &f.idle
}

// send sends the message of the first End in the queue. The message names the incarnation that the receiver
// knows, if the two nodes have ever shaken hands.
func (f *Source) send(e *flow.Env, h table.Handle, w *way) {
	r := f.rows.Get(w.queue.Front())
	us, who := e.Links.Names(w.where)
	f.ask = protocol.EndRequest{
		Version: link.VersionMax, Incarnation: protocol.UUID(us), To: protocol.UUID(who), Operation: r.operation,
		Request: r.request, Code: uint32(r.code), Reason: r.reason,
	}
	w.phase, w.asked = wayAsking, w.queue.Front()
	w.conn.Send(&e.Env, e.Corrs.Open(ref(kindAsk, h)), e.Out.Cut(f.ask.Append(e.Out.Arena())))
	e.Timers.Set(&w.timer, e.Now.Add(e.Cfg.ReplyTimeout), ref(timerWay, h))
}

// opened handles the completion of the opening of a connection.
func (f *Source) opened(e *flow.Env, h table.Handle, ev *effects.Opened) {
	w := f.ways.Get(h)
	w.conn.Opened(&e.Env, ev, ref(kindOpen, h))
	w.phase = wayIdle
	if ev.Code != effects.OK {
		f.pause(e, h, w, ev.Code, effects.Why{Stage: effects.StageConnect, Field: "connection", Ours: ev.Code.String()})
		return
	}
	f.goOn(e, h)
}

// lost handles the loss of a connection without a message in flight. A message that was in flight ends by an
// event of its own.
func (f *Source) lost(e *flow.Env, h table.Handle) {
	w := f.ways.Get(h)
	w.conn.Close(&e.Env)
	f.goOn(e, h)
}

// unanswered handles a message to which no reply came: the message is sent again after a pause.
func (f *Source) unanswered(e *flow.Env, h table.Handle, code effects.Code) {
	w := f.ways.Get(h)
	e.Timers.Stop(&w.timer)
	w.conn.Close(&e.Env)
	w.phase, w.asked = wayIdle, 0
	f.pause(e, h, w, code, link.HungUp(code, e.Cfg.ReplyTimeout))
}

// pause stops sending to a receiver for a time that doubles with each consecutive failure, from BackoffMin to
// BackoffMax. During a drain there is no pause: the Ends that wait for such a receiver end at once.
func (f *Source) pause(e *flow.Env, h table.Handle, w *way, code effects.Code, why effects.Why) {
	e.Out.Mark(Marks.Again)
	w.fails++
	if r := f.rows.Get(w.queue.Front()); r != nil {
		r.cause, r.why = code, why
	}
	if e.Draining {
		f.giveUp(e, w)
	}
	if w.queue.Len() > 0 {
		w.phase = wayPausing
		delay := min(e.Cfg.BackoffMin<<min(w.fails-1, 20), e.Cfg.BackoffMax)
		e.Timers.Set(&w.timer, e.Now.Add(delay), ref(timerWay, h))
	}
	f.goOn(e, h)
}

// giveUp ends all Ends that wait for a way, in a drain.
func (f *Source) giveUp(e *flow.Env, w *way) {
	for h := w.queue.Front(); h != 0; h = w.queue.Front() {
		e.Work.Spend(1)
		f.over(e, h, effects.Draining, effects.Why{})
	}
}

// replied handles the receiver's confirmation.
func (f *Source) replied(e *flow.Env, h table.Handle, body []byte) {
	w := f.ways.Get(h)
	e.Timers.Stop(&w.timer)
	asked := w.asked
	w.phase, w.asked, w.fails = wayIdle, 0, 0
	if w.conn.ID() != 0 { // Otherwise the reply was in the mailbox when the connection was closed.
		w.conn.Answered(e.Now)
	}
	if r := f.rows.Get(asked); r != nil {
		code, why := f.answer(e, body)
		f.over(e, asked, code, why)
	}
	f.goOn(e, h)
}

// answer returns the outcome that the receiver's reply states.
func (f *Source) answer(e *flow.Env, body []byte) (effects.Code, effects.Why) {
	m := &f.reply
	if err := m.Decode(body, &e.Cfg.Wire); err != nil {
		e.Out.Mark(Marks.NotTaken)
		return effects.Unsupported, effects.Why{Field: "KvfEndResponse", Theirs: "none: a receiver that takes no ends"}
	}
	code := effects.CodeFromWire(m.Code)
	if code != effects.OK {
		e.Out.Mark(Marks.ToldOther)
	}
	return code, effects.Why{Said: effects.Words(m.Reason)}
}

// Command takes an End, and returns false for any other command.
func (f *Source) Command(e *flow.Env, x *effects.Command) bool {
	c, ok := x.Body.(*End)
	if ok {
		f.take(e, x.Ticket, c)
	}
	return ok
}

// Due handles a deadline.
func (f *Source) Due(e *flow.Env, of kernel.Ref) {
	h := of.Subject
	if of.Kind == kindEnd {
		r := f.rows.Get(h)
		r.timer = 0
		e.Out.Mark(Marks.Untold)
		at := r.way
		why := effects.Why{Field: "patience", Ours: r.patience.String(), Theirs: "no answer"}
		code := effects.Expired
		if r.cause != effects.OK {
			code, why = blame(r.cause), r.why
		}
		f.over(e, h, code, why)
		f.goOn(e, at)
		return
	}
	w := f.ways.Get(h)
	w.timer = 0
	if w.phase == wayAsking { // The message ends as unanswered because its connection is closed.
		w.conn.Close(&e.Env)
		return
	}
	w.phase = wayIdle
	f.goOn(e, h)
}

// blame returns the outcome of an End whose patience was over after attempts that failed with the given code.
// Closed means that this rank closed the connection because no reply arrived, so the outcome is Expired.
func blame(cause effects.Code) effects.Code {
	if cause == effects.Closed {
		return effects.Expired
	}
	return cause
}

// over delivers the outcome of an End and removes its row. A message of the End may still be in flight; its reply
// is then ignored.
func (f *Source) over(e *flow.Env, h table.Handle, code effects.Code, why effects.Why) {
	r := f.rows.Get(h)
	w := f.ways.Get(r.way)
	out := effects.Deliver{Ticket: r.ticket, Code: code}
	if code != effects.OK {
		why.Addr = w.where.Addr()
		if why.Stage == effects.StageNone {
			why.Stage = effects.StageEnd
		}
		out.Why = &why
	}
	e.Out.Deliver(out)
	e.Out.Observe(effects.Observe{Fact: effects.FactEndTold, Code: code, Count: uint32(r.code), ID: uint64(r.ticket),
		Why: out.Why})
	e.Timers.Stop(&r.timer)
	e.Tickets.Remove(r.ticket)
	f.rows.Unlink(&w.queue, h)
	r.request, r.reason = table.ShedBytes(r.request), table.ShedBytes(r.reason)
	f.rows.Remove(h)
}

// Abort ends an End early, and returns true. The receiver may have been notified already.
func (f *Source) Abort(e *flow.Env, of kernel.Ref) bool {
	at := f.rows.Get(of.Subject).way
	f.over(e, of.Subject, effects.Cancelled, effects.Why{})
	f.goOn(e, at)
	return true
}

// Signal panics: this flow uses no link.
func (f *Source) Signal(*flow.Env, kernel.Ref, flow.Signal) {
	kernel.Foreign("who tells how requests ended")
}

// Left returns the number of Ends that a drain waits for.
func (f *Source) Left(*flow.Env) int { return f.rows.Len() }

// Len returns the number of Ends without an outcome.
func (f *Source) Len() int { return f.rows.Len() }

// Tables visits the tables of the Source.
func (f *Source) Tables(visit table.Visit) {
	visit("ends to tell", f.rows.Len(), table.Empty)
	visit("connections for ends", f.ways.Len(), table.Bounded)
	visit("connections for ends in use", f.used.Len(), table.Empty)
}

// The states of a way, for State.
const (
	wayGone = iota
	wayFree
	wayConnecting
	wayTelling
	wayWaiting
)

// StateNames returns the names of the states, in order.
func StateNames() []string {
	return []string{"no end", "end idle", "end opening", "end telling", "end pausing"}
}

// State returns the state of the way that a Ref names, or of the way of the End that a Ref names.
func (f *Source) State(_ *flow.Rooms, of kernel.Ref) uint16 {
	h := of.Subject
	if of.Kind == kindEnd {
		r := f.rows.Get(h)
		if r == nil {
			return wayGone
		}
		h = r.way
	}
	if w := f.ways.Get(h); w != nil {
		return wayFree + uint16(w.phase)
	}
	return wayGone
}
