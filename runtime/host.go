package runtime

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/control"
	"github.com/kvferry/kvferry/runtime/internal/asynclog"
	"github.com/kvferry/kvferry/runtime/internal/loglimit"
)

// HostConfig says what a Host runs.
type HostConfig struct {
	// Machine makes it, at what its clock shows now. Listens are the channels of Servers, with the ports really bound.
	Machine func(now effects.Time, listens []control.Server) (effects.Machine, error)
	Servers []control.Server
	Control control.Opener // how messages travel
	// Commands is how many may be in progress; 0: 1024.
	Commands int
	// Waiting is how many messages of peers may wait for the machine, and WaitingBytes of what length together: then
	// nothing more is read of them. 0: 1024, and 4 MiB.
	Waiting, WaitingBytes int
	// Drain is the command that Close gives first, and waits for; nil: none.
	Drain effects.CommandBody
	// Observed hears what the machine observes, between its steps; nil: the log alone. It must not block.
	Observed func(*effects.Observe)
	// Log's handler is called by one goroutine, which nothing waits for; nil: slog.Default().
	Log *slog.Logger
}

// A Host runs one machine of anybody's that has no pages, as a Node runs a rank: one loop, its mailbox, its clock and a
// control transport. A machine that wants a data plane has a defect, and panics. All methods are safe for concurrent
// use.
type Host struct {
	hands
	loop     *loop
	lines    *asynclog.Handler // of the log, on their way
	drain    effects.CommandBody
	observed func(*effects.Observe)
	over     chan struct{} // closed when it has ended
	begun    chan struct{} // holds a token until a Close takes it down
	err      error         // of that; read after over
}

// OpenHost starts a host and returns when it serves. Close ends it.
func OpenHost(cfg HostConfig) (*Host, error) {
	if cfg.Machine == nil || cfg.Control == nil {
		return nil, wrong("open", "Machine and Control", "nil", "both",
			"give what makes the machine, and an opener of package zmq or another transport")
	}
	log := cfg.Log
	if log == nil {
		log = slog.Default()
	}
	lines := asynclog.New(log.Handler()) // The loop does not wait for them.
	log = slog.New(lines)
	box := newMailbox(orElse(cfg.Waiting, 1024), orElse(cfg.WaitingBytes, 4<<20))
	transport, err := cfg.Control(control.Env{Servers: cfg.Servers, Sink: box, Log: log})
	if err != nil {
		return nil, openFailed("the control sockets", "free the ports that are named, or give others", err)
	}
	m, err := cfg.Machine(now(), transport.Servers())
	if err != nil {
		box.close()
		return nil, errors.Join(openFailed("the machine", "mend what it says", err), transport.Shutdown(bg))
	}
	h := &Host{hands: hands{control: transport, tickets: newTicketTable(orElse(cfg.Commands, 1024)), log: log},
		lines: lines, drain: cfg.Drain, observed: cfg.Observed, over: make(chan struct{}), begun: make(chan struct{}, 1)}
	h.facts.lines, h.facts.caller = loglimit.New(log), transport.Caller
	h.loop = newLoop(m, box, h)
	h.begun <- struct{}{}
	go h.loop.run()
	return h, nil
}

func orElse(v, standard int) int {
	if v == 0 {
		return standard
	}
	return v
}

// before is for drivers with planes.
func (h *Host) before(effects.Event) {}

func (h *Host) carryOut(e effects.Effect) {
	if o, ok := e.(*effects.Observe); ok && h.observed != nil {
		h.observed(o)
	}
	if !h.hands.carryOut(e) {
		panic(fmt.Sprintf("BUG: the machine wants %T, and its host has no data plane", e))
	}
}

// Submit gives the machine a command. Its one outcome comes by the ticket.
func (h *Host) Submit(body effects.CommandBody) (*Ticket, error) {
	t, err := h.tickets.begin("submit", work)
	if err != nil {
		return nil, err
	}
	h.loop.mailbox.Post(&effects.Command{Ticket: t.id, Body: body})
	return t, nil
}

// Between runs f between two steps of the machine, so that f may look at it, and returns when it has run. false: the
// host has ended, and f did not run. f must not block, and must not call the host.
func (h *Host) Between(f func()) bool { return h.loop.call(f) }

// Servers are the channels that the host serves, with the ports really bound.
func (h *Host) Servers() []control.Server { return h.control.Servers() }

// Close ends the host: the machine drains, if it has a command for that, for as long as ctx allows; then sockets close,
// and what is still in progress ends as Closed. If ctx is over before all has ended, that goes on by itself, and Close
// may be called again to wait for it.
func (h *Host) Close(ctx context.Context) error {
	select {
	case <-h.begun:
		h.drained(ctx)
		h.tickets.refuse(effects.Closed)
		go h.end()
	default: // Another Close has begun.
	}
	select {
	case <-h.over:
		return h.err
	case <-ctx.Done():
		return &Error{Op: "close", Code: waitedOut(ctx), Cause: ctx.Err(),
			Remedy: "the control sockets are still ending; that goes on by itself; close again to wait for it"}
	}
}

// drained gives the machine its command to drain, and waits.
func (h *Host) drained(ctx context.Context) {
	if h.drain == nil {
		return
	}
	t, err := h.tickets.begin("drain", ending)
	if err != nil {
		return
	}
	h.tickets.refuse(effects.Draining)
	h.loop.mailbox.Post(&effects.Command{Ticket: t.id, Body: h.drain})
	select {
	case <-t.Done():
	case <-ctx.Done():
	}
}

// end takes it down: the loop goes on until the sockets have completed everything into it.
func (h *Host) end() {
	h.err = h.control.Shutdown(bg)
	h.loop.end()
	h.loop.mailbox.close()
	h.tickets.abandon()
	h.facts.lines.End()
	h.lines.Flush(flushPatience)
	close(h.over)
}
