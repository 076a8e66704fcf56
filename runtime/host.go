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
	"github.com/kvferry/kvferry/runtime/secure"
)

// HostConfig configures a Host.
type HostConfig struct {
	// NewMachine makes the machine, at the time now of the host's clock. The argument listens contains the channels of
	// Servers with the ports that were really bound.
	NewMachine func(now effects.Time, listens []control.Server) (effects.Machine, error)
	Servers    []control.Server
	Control    control.Opener // opens the control transport
	Guard      *secure.Guard  // authenticates peers; nil: connections are plain. The caller closes it after the host
	// CommandsMax is the maximum number of commands in progress; 0 means 1024.
	CommandsMax int
	// QueuedMax limits the messages of peers that wait for the machine, and QueuedBytesMax limits their total length.
	// At either limit the host reads no further messages. 0 means 1024 messages and 4 MiB.
	QueuedMax, QueuedBytesMax int
	// Drain is the command that Close submits first and waits for; nil means none.
	Drain effects.CommandBody
	// OnObserve receives what the machine observes, between steps. The function must not block. If nil, observations go
	// to the log only.
	OnObserve func(*effects.Observe)
	// Log is the logger; nil means slog.Default(). A single goroutine calls the handler, and no goroutine waits for
	// the handler.
	Log *slog.Logger
}

// A Host runs any machine that has no pages, in the way that a Node runs a rank: with one loop, a mailbox, a clock
// and a control transport. For example, a directory is run by a Host. A machine that emits an effect for a data plane
// has a defect, and the host panics. All methods are safe for concurrent use.
type Host struct {
	baseDriver
	loop       *loop
	logHandler *asynclog.Handler // the log's lines that have not been written yet
	drain      effects.CommandBody
	onObserve  func(*effects.Observe)
	done       chan struct{} // closed when the host has ended
	closeToken chan struct{} // holds a token until the first Close takes it
	err        error         // the result of the end; read after done is closed
}

// OpenHost starts a host and returns when the host serves. The call fails if the configuration is incomplete, if the
// control sockets cannot be opened, or if the machine cannot be made. Close ends the host.
func OpenHost(cfg HostConfig) (*Host, error) {
	if cfg.NewMachine == nil || cfg.Control == nil {
		return nil, argumentError("open", "NewMachine and Control", "nil", "both",
			"set NewMachine, and set Control to the opener of a transport, such as that of package zmq")
	}
	log := cfg.Log
	if log == nil {
		log = slog.Default()
	}
	lines := asynclog.New(log.Handler()) // The loop does not wait for log lines to be written.
	log = slog.New(lines)
	box := newMailbox(orDefault(cfg.QueuedMax, 1024), orDefault(cfg.QueuedBytesMax, 4<<20))
	transport, err := cfg.Control(control.Env{Servers: cfg.Servers, Sink: box, Log: log, Guard: cfg.Guard})
	if err != nil {
		return nil, openError("the control sockets", "free the named ports, or use other ports", err)
	}
	m, err := cfg.NewMachine(now(), transport.Servers())
	if err != nil {
		box.close()
		return nil, errors.Join(openError("the machine", "fix the cause", err), transport.Shutdown(bg))
	}
	h := &Host{baseDriver: baseDriver{control: transport, tickets: newTicketTable(orDefault(cfg.CommandsMax, 1024)), log: log},
		logHandler: lines, drain: cfg.Drain, onObserve: cfg.OnObserve, done: make(chan struct{}), closeToken: make(chan struct{}, 1)}
	h.facts.lines, h.facts.caller = loglimit.New(log), transport.Caller
	h.loop = newLoop(m, box, h)
	h.closeToken <- struct{}{}
	go h.loop.run()
	return h, nil
}

// orDefault returns v, or byDefault if v is 0.
func orDefault(v, byDefault int) int {
	if v == 0 {
		return byDefault
	}
	return v
}

// beforeStep is required of a driver; a host has no planes and ignores the event.
func (h *Host) beforeStep(effects.Event) {}

// carryOut implements driver.
func (h *Host) carryOut(e effects.Effect) {
	if o, ok := e.(*effects.Observe); ok && h.onObserve != nil {
		h.onObserve(o)
	}
	if !h.tryCarryOut(e) {
		panic(fmt.Sprintf("BUG: the machine emitted %T, but its host has no data plane", e))
	}
}

// Submit gives the machine a command. The returned ticket delivers the command's only outcome.
func (h *Host) Submit(body effects.CommandBody) (*Ticket, error) {
	t, err := h.tickets.beginTicket("submit", classWork)
	if err != nil {
		return nil, err
	}
	h.loop.mailbox.Post(&effects.Command{Ticket: t.id, Body: body})
	return t, nil
}

// RunBetweenSteps runs f between two steps of the machine, so that f may read the machine's state, and returns when f
// has run. The result is false if the host has ended and f did not run. f must not block, and must not call the host.
func (h *Host) RunBetweenSteps(f func()) bool { return h.loop.runBetween(f) }

// RunBetweenStepsUntil does the same, but waits at most until ctx ends. If the result is false because of ctx, f may run
// later.
func (h *Host) RunBetweenStepsUntil(ctx context.Context, f func()) bool {
	return h.loop.runBetweenUntil(ctx, f)
}

// Servers returns the channels that the host serves, with the ports that were really bound.
func (h *Host) Servers() []control.Server { return h.control.Servers() }

// Close ends the host. The machine drains first, if a Drain command is configured, for as long as ctx allows. Then the
// sockets are closed, and the commands still in progress end as Closed. If ctx ends before the host has ended, the
// shutdown continues in the background, and Close may be called again to wait for the end.
func (h *Host) Close(ctx context.Context) error {
	select {
	case <-h.closeToken:
		h.drainMachine(ctx)
		h.tickets.refuseNew(effects.Closed)
		go h.shutDown()
	default: // Another Close has begun.
	}
	select {
	case <-h.done:
		return h.err
	case <-ctx.Done():
		return &Error{Op: "close", Code: contextCode(ctx), Cause: ctx.Err(),
			Remedy: "the control sockets are still closing in the background; close again to wait"}
	}
}

// drainMachine gives the machine the configured Drain command, if any, and waits for the outcome or the end of ctx.
func (h *Host) drainMachine(ctx context.Context) {
	if h.drain == nil {
		return
	}
	t, err := h.tickets.beginTicket("drain", classEnding)
	if err != nil {
		return
	}
	h.tickets.refuseNew(effects.Draining)
	h.loop.mailbox.Post(&effects.Command{Ticket: t.id, Body: h.drain})
	select {
	case <-t.Done():
	case <-ctx.Done():
	}
}

// shutDown takes the host down. The loop continues until the sockets have posted all completions to the mailbox.
func (h *Host) shutDown() {
	h.err = h.control.Shutdown(bg)
	h.loop.shutDown()
	h.loop.mailbox.close()
	h.tickets.endAll(true) // a host has no pool
	h.facts.lines.FlushSkipped()
	h.logHandler.Flush(flushTimeout)
	close(h.done)
}
