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
	cfg       Config `snap:"share"`
	rows      table.Slab[row]
	conns     table.Slab[peerConn]
	busyConns table.List // the ways with a message to send or in flight
	idleConns table.List // the idle ways, in the order in which they became idle

	request protocol.EndRequest  `snap:"scratch"`
	reply   protocol.EndResponse `snap:"scratch"`
}

// A row is one End, from its command to its outcome.
type row struct {
	ticket    effects.Ticket
	conn      table.Handle
	operation uint64
	request   []byte
	tenant    effects.Tenant
	code      effects.Code
	reason    []byte
	timeout   effects.Duration
	timer     kernel.TimerID `snap:"set"` // the end of the timeout
	cause     effects.Code   // the code of the latest failure
	why       effects.Why
}

// A peerConn is the connection to one receiver's alloc port. One message is in flight on a way at a time, that of the
// first End in the queue.
type peerConn struct {
	addr     link.PeerAddr
	conn     link.Conn
	queue    table.List // the Ends that have not been confirmed
	phase    connPhase
	failures uint32         // the number of consecutive attempts without a reply
	timer    kernel.TimerID `snap:"set"` // the time at which the reply is overdue, or at which the pause ends
	inFlight table.Handle   // the End of the message in flight; its row may be gone
	busy     bool           // the way is in Source.busyConns
}

// connPhase is the phase of a way.
type connPhase uint8

const (
	connIdle    connPhase = iota // nothing is in flight
	connOpening                  // the connection is being opened
	connSending                  // a reply is awaited
	connPausing                  // no message is sent until the pause ends
)

// The kinds of Refs of this flow.
const (
	kindEnd     uint8 = iota + 1 // an End: its ticket and the end of its timeout
	kindOpen                     // the connection of a way
	kindRequest                  // the reply to a message
	timerConn                    // the time at which the reply is overdue, or at which the pause ends
)

func sourceRef(kind uint8, h table.Handle) kernel.Ref {
	return kernel.Ref{Owner: kernel.OwnerEndSource, Kind: kind, Subject: h}
}

// Recycle returns a Source without Ends. The memory of f is reused, so f must not be used afterwards.
func (f *Source) Recycle(cfg Config) Source {
	return Source{
		cfg: cfg, rows: f.rows.Recycle(int(cfg.EndsMax)), conns: f.conns.Recycle(int(cfg.PeersMax)),
		request: f.request, reply: f.reply,
	}
}

// Step handles the completions of the effects that this flow requested.
func (f *Source) Step(e *flow.Env, of kernel.Ref, ev effects.Event) {
	switch ev := ev.(type) {
	case *effects.Opened:
		f.onOpened(e, of.Subject, ev)
	case *effects.ConnLost:
		f.onConnLost(e, of.Subject)
	case *effects.Replied:
		f.onReplied(e, of.Subject, ev.Body)
	case *effects.Unanswered:
		f.onUnanswered(e, of.Subject, ev.Code)
	default:
		kernel.PanicUnexpected("the source of ended requests")
	}
}

// startEnd starts an End, or refuses it at once.
func (f *Source) startEnd(e *flow.Env, t effects.Ticket, c *End) {
	if code, why := f.validateEnd(e, c); code != effects.OK {
		engine.RefuseCommand(&e.Env, t, code, &why)
		return
	}
	var at table.Handle
	if !f.rows.Full() { // If the table is full, no connection is closed for an End that is refused anyway.
		at = f.takeConn(e, link.PeerAddr(c.Peer))
	}
	if at == 0 {
		e.Out.Mark(Marks.Full)
		engine.RefuseCommand(&e.Env, t, effects.TooMany, &effects.Why{
			Field: "tables.commands", Ours: formatCount(f.rows.Max()) + ", and as many ends are told",
			Remedy: "retry when one has ended, or raise tables.commands",
		})
		return
	}
	h, r := f.rows.Add()
	*r = row{
		ticket: t, conn: at, operation: e.Commands.NextOperation(), request: append(r.request[:0], c.Request...), tenant: c.Tenant,
		code: c.Code, reason: append(r.reason[:0], c.Reason...), timeout: c.Timeout,
	}
	if r.timeout == 0 {
		r.timeout = f.cfg.Timeout
	}
	e.Tickets.Add(t, sourceRef(kindEnd, h))
	e.Timers.Set(&r.timer, e.Now.Add(r.timeout), sourceRef(kindEnd, h))
	f.rows.PushBack(&f.conns.Get(at).queue, h)
	f.sendQueued(e, at)
}

// validateEnd returns OK if an End is valid, or else the code and the reason for refusing it.
func (f *Source) validateEnd(e *flow.Env, c *End) (effects.Code, effects.Why) {
	limit := e.Commands.RequestIDMax()
	switch {
	case e.Draining:
		return effects.Draining, effects.Why{}
	case len(c.Request) == 0:
		return effects.Invalid, *flow.NoRequestReason()
	case len(c.Request) > limit:
		return effects.TooLarge, effects.Why{
			Field: "Request", Theirs: formatCount(len(c.Request)) + " bytes", Ours: "at most " + formatCount(limit) + " (limits.request_bytes)",
		}
	case len(c.Reason) > effects.PeerTextMax:
		return effects.TooLarge, effects.Why{
			Field: "Reason", Theirs: formatCount(len(c.Reason)) + " bytes", Ours: "at most " + formatCount(effects.PeerTextMax),
		}
	case c.Code >= effects.CodeCount:
		return effects.Invalid, effects.Why{
			Field: "Code", Theirs: formatCount(uint32(c.Code)), Ours: "a code below " + formatCount(uint32(effects.CodeCount)),
		}
	case c.Timeout < 0:
		return effects.Invalid, effects.Why{Field: "Timeout", Theirs: c.Timeout.String(), Ours: "0 or more"}
	case c.Peer.Host == "" || c.Peer.InitPort == 0 || c.Peer.AllocPort == 0:
		return effects.Invalid, effects.Why{Field: "Peer", Theirs: effects.SanitizeText([]byte(c.Peer.Host)),
			Ours: "a host and two ports"}
	}
	if code, why := e.CheckOwnTenant(c.Tenant); code != effects.OK {
		return code, *why
	}
	return effects.OK, effects.Why{}
}

// takeConn returns the way to a receiver, and inserts a new way if necessary, in place of the longest idle way if
// the table is full. It returns 0 if all ways are in use.
func (f *Source) takeConn(e *flow.Env, to link.PeerAddr) table.Handle {
	for slot := range f.conns.Slots() {
		h := f.conns.At(slot)
		if w := f.conns.Get(h); w != nil && w.addr == to {
			return h
		}
	}
	if f.conns.Full() {
		h := f.idleConns.Front()
		if h == 0 {
			return 0
		}
		f.conns.Get(h).conn.Close(&e.Env)
		f.conns.Unlink(&f.idleConns, h)
		f.conns.Remove(h)
	}
	h, w := f.conns.Add()
	*w = peerConn{addr: to}
	f.conns.PushBack(&f.idleConns, h)
	return h
}

// sendQueued sends the message of the first End in a way's queue if nothing is in flight on the way, and moves the way
// to the list of used or of idle ways. A way is idle, and may be replaced, when its queue is empty and no
// completion or timer of the way is outstanding.
func (f *Source) sendQueued(e *flow.Env, h table.Handle) {
	w := f.conns.Get(h)
	if w.phase == connIdle && w.queue.Len() > 0 {
		if w.conn.ID() == 0 {
			w.phase = connOpening
			w.conn.OpenSingle(&e.Env, e.Corrs.Open(sourceRef(kindOpen, h)), effects.ChannelAlloc,
				effects.Addr{Host: w.addr.Host, Port: w.addr.AllocPort}, 0) // It names no chunk.
		} else {
			f.sendEnd(e, h, w)
		}
	}
	f.conns.Unlink(w.currentList(f), h)
	if w.busy = w.phase != connIdle || w.queue.Len() > 0; w.busy {
		f.conns.PushBack(&f.busyConns, h)
	} else {
		f.conns.PushBack(&f.idleConns, h)
	}
}

// currentList returns the list that contains the way.
func (w *peerConn) currentList(f *Source) *table.List {
	if w.busy {
		return &f.busyConns
	}
	return &f.idleConns
}

// sendEnd sends the message of the first End in the queue. The message names the incarnation that the receiver
// knows, if the two nodes have ever shaken hands.
func (f *Source) sendEnd(e *flow.Env, h table.Handle, w *peerConn) {
	r := f.rows.Get(w.queue.Front())
	selfID, peer := e.Links.HelloIDs(w.addr)
	f.request = protocol.EndRequest{
		Version: link.VersionMax, Incarnation: protocol.UUID(selfID), To: protocol.UUID(peer), Operation: r.operation,
		Request: r.request, Code: uint32(r.code), Reason: r.reason, Tenant: uint64(r.tenant),
	}
	w.phase, w.inFlight = connSending, w.queue.Front()
	w.conn.Send(&e.Env, e.Corrs.Open(sourceRef(kindRequest, h)), e.Out.Cut(f.request.Append(e.Out.Arena())))
	e.Timers.Set(&w.timer, e.Now.Add(e.Cfg.ReplyTimeout), sourceRef(timerConn, h))
}

// onOpened handles the completion of the opening of a connection.
func (f *Source) onOpened(e *flow.Env, h table.Handle, ev *effects.Opened) {
	w := f.conns.Get(h)
	w.conn.OnOpened(&e.Env, ev, sourceRef(kindOpen, h))
	w.phase = connIdle
	if ev.Code != effects.OK {
		f.pauseConn(e, h, w, ev.Code, effects.Why{Stage: effects.StageConnect, Field: "connection", Ours: ev.Code.String()})
		return
	}
	f.sendQueued(e, h)
}

// onConnLost handles the loss of a connection without a message in flight. A message that was in flight ends by an
// event of its own.
func (f *Source) onConnLost(e *flow.Env, h table.Handle) {
	w := f.conns.Get(h)
	w.conn.Close(&e.Env)
	f.sendQueued(e, h)
}

// onUnanswered handles a message to which no reply came: the message is sent again after a pause.
func (f *Source) onUnanswered(e *flow.Env, h table.Handle, code effects.Code) {
	w := f.conns.Get(h)
	e.Timers.Stop(&w.timer)
	w.conn.Close(&e.Env)
	w.phase, w.inFlight = connIdle, 0
	f.pauseConn(e, h, w, code, link.ConnEndedReason(code, e.Cfg.ReplyTimeout))
}

// pauseConn stops sending to a receiver for a time that doubles with each consecutive failure, from BackoffMin to
// BackoffMax. During a drain there is no pause: the Ends that wait for such a receiver end at once.
func (f *Source) pauseConn(e *flow.Env, h table.Handle, w *peerConn, code effects.Code, why effects.Why) {
	e.Out.Mark(Marks.Again)
	w.failures++
	if r := f.rows.Get(w.queue.Front()); r != nil {
		r.cause, r.why = code, why
	}
	if e.Draining {
		f.failQueued(e, w)
	}
	if w.queue.Len() > 0 {
		w.phase = connPausing
		delay := min(e.Cfg.BackoffMin<<min(w.failures-1, 20), e.Cfg.BackoffMax)
		e.Timers.Set(&w.timer, e.Now.Add(delay), sourceRef(timerConn, h))
	}
	f.sendQueued(e, h)
}

// failQueued ends all Ends that wait for a way, in a drain.
func (f *Source) failQueued(e *flow.Env, w *peerConn) {
	for h := w.queue.Front(); h != 0; h = w.queue.Front() {
		e.Work.SpendRows(1)
		f.deliverOutcome(e, h, effects.Draining, effects.Why{})
	}
}

// onReplied handles the receiver's confirmation.
func (f *Source) onReplied(e *flow.Env, h table.Handle, body []byte) {
	w := f.conns.Get(h)
	e.Timers.Stop(&w.timer)
	sent := w.inFlight
	w.phase, w.inFlight, w.failures = connIdle, 0, 0
	if w.conn.ID() != 0 { // Otherwise the reply was in the mailbox when the connection was closed.
		w.conn.OnReplied(e.Now)
	}
	if r := f.rows.Get(sent); r != nil {
		code, why := f.decodeReply(e, body)
		f.deliverOutcome(e, sent, code, why)
	}
	f.sendQueued(e, h)
}

// decodeReply returns the outcome that the receiver's reply states.
func (f *Source) decodeReply(e *flow.Env, body []byte) (effects.Code, effects.Why) {
	m := &f.reply
	if err := m.Decode(body, &e.Cfg.Wire); err != nil {
		e.Out.Mark(Marks.NotTaken)
		return effects.Unsupported, effects.Why{Field: "KvfEndResponse", Theirs: "missing: the receiver accepts no end-of-request messages"}
	}
	code := effects.CodeFromWire(m.Code)
	if code != effects.OK {
		e.Out.Mark(Marks.ToldOther)
	}
	return code, effects.Why{Said: effects.SanitizeText(m.Reason)}
}

// OnCommand takes an End, and returns false for any other command.
func (f *Source) OnCommand(e *flow.Env, x *effects.Command) bool {
	c, ok := x.Body.(*End)
	if ok {
		f.startEnd(e, x.Ticket, c)
	}
	return ok
}

// OnTimer handles a deadline.
func (f *Source) OnTimer(e *flow.Env, of kernel.Ref) {
	h := of.Subject
	if of.Kind == kindEnd {
		r := f.rows.Get(h)
		r.timer = 0
		e.Out.Mark(Marks.Untold)
		at := r.conn
		why := effects.Why{Field: "Timeout", Ours: r.timeout.String(), Theirs: "no answer"}
		code := effects.Expired
		if r.cause != effects.OK {
			code, why = timeoutCode(r.cause), r.why
		}
		f.deliverOutcome(e, h, code, why)
		f.sendQueued(e, at)
		return
	}
	w := f.conns.Get(h)
	w.timer = 0
	if w.phase == connSending { // The message ends as unanswered because its connection is closed.
		w.conn.Close(&e.Env)
		return
	}
	w.phase = connIdle
	f.sendQueued(e, h)
}

// timeoutCode returns the outcome of an End whose timeout was over after attempts that failed with the given code.
// Closed means that this rank closed the connection because no reply arrived, so the outcome is Expired.
func timeoutCode(cause effects.Code) effects.Code {
	if cause == effects.Closed {
		return effects.Expired
	}
	return cause
}

// deliverOutcome delivers the outcome of an End and removes its row. A message of the End may still be in flight; its
// reply is then ignored.
func (f *Source) deliverOutcome(e *flow.Env, h table.Handle, code effects.Code, why effects.Why) {
	r := f.rows.Get(h)
	w := f.conns.Get(r.conn)
	out := effects.Deliver{Ticket: r.ticket, Code: code}
	if code != effects.OK {
		why.Addr = w.addr.InitAddr()
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
	r.request, r.reason = table.TrimBytes(r.request), table.TrimBytes(r.reason)
	f.rows.Remove(h)
}

// AbortCommand ends an End early, and returns true. The receiver may have been notified already.
func (f *Source) AbortCommand(e *flow.Env, of kernel.Ref) bool {
	at := f.rows.Get(of.Subject).conn
	f.deliverOutcome(e, of.Subject, effects.Cancelled, effects.Why{})
	f.sendQueued(e, at)
	return true
}

// OnSignal panics: this flow uses no link.
func (f *Source) OnSignal(*flow.Env, kernel.Ref, flow.Signal) {
	kernel.PanicUnexpected("the source of ended requests")
}

// CountUnfinished returns the number of Ends that a drain waits for.
func (f *Source) CountUnfinished(*flow.Env) int { return f.rows.Len() }

// Len returns the number of Ends without an outcome.
func (f *Source) Len() int { return f.rows.Len() }

// VisitTables visits the tables of the Source.
func (f *Source) VisitTables(visit table.VisitFunc) {
	visit("ends to tell", f.rows.Len(), table.Empty)
	visit("connections for ends", f.conns.Len(), table.Bounded)
	visit("connections for ends in use", f.busyConns.Len(), table.Empty)
}

// The states of a way, for RowState.
const (
	stateNone = iota
	stateIdle
	stateOpening
	stateSending
	statePausing
)

// StateNames returns the names of the states, in order.
func StateNames() []string {
	return []string{"no end", "end idle", "end opening", "end sending", "end pausing"}
}

// RowState returns the state of the way that a Ref names, or of the way of the End that a Ref names.
func (f *Source) RowState(_ *flow.Rooms, of kernel.Ref) uint16 {
	h := of.Subject
	if of.Kind == kindEnd {
		r := f.rows.Get(h)
		if r == nil {
			return stateNone
		}
		h = r.conn
	}
	if w := f.conns.Get(h); w != nil {
		return stateIdle + uint16(w.phase)
	}
	return stateNone
}
