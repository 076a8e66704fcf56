//go:build cgo && linux

package libzmq

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/control"
	"github.com/kvferry/kvferry/runtime/internal/door"
	"github.com/kvferry/kvferry/runtime/internal/loglimit"
	"github.com/kvferry/kvferry/runtime/internal/names"
)

// transport implements control.Transport: the transport resolves and probes peers, and fills the queue of the reactor.
type transport struct {
	config     Config
	sink       control.Sink
	servers    []control.Server
	stats      counters
	queue      queue
	reactor    *reactor
	limitedLog *loglimit.Log
	names      *names.Resolver

	dialing     context.Context // parent of all dials; canceled by Shutdown
	stopDialing context.CancelFunc
	dials       sync.WaitGroup
	opening     atomic.Int64 // Conns whose peers are being resolved and probed

	mu           sync.Mutex // held for a moment only
	shuttingDown bool       // Shutdown was called: no Conn is opened any more

	shutdownOnce sync.Once
	shutdownDone chan struct{} // closed when everything is freed
	shutdownErr  error         // result of Shutdown; read after shutdownDone is closed
}

// counters are the counts of control.Stats.
type counters struct {
	malformed, unrequested, repliesDropped, requestsEvicted atomic.Uint64
}

// Listen binds servers and starts a transport. The error is a *control.Error; nothing is left running after an error.
func Listen(config Config, servers []control.Server, sink control.Sink) (control.Transport, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	config.fitOpenFiles()
	t := &transport{config: config, sink: sink, shutdownDone: make(chan struct{}), limitedLog: loglimit.New(config.Log)}
	t.queue.maxCommands, t.queue.maxBytes = config.QueueCommands, config.QueueBytes
	t.dialing, t.stopDialing = context.WithCancel(context.Background())
	t.names = names.New(t.dialing, names.Config{Timeout: config.NameTimeout, TTL: config.NameTTL,
		FailureTTL: config.NameNegativeTTL, Lookup: config.Lookup})
	if t.reactor, err = newReactor(config, len(servers), t); err != nil {
		t.stopDialing()
		return nil, err
	}
	for i, server := range servers {
		bound, err := t.reactor.bindServer(i, server, t)
		if err != nil {
			// Return the bind error: the caller can act on that error.
			t.stopDialing()
			t.names.Wait()
			t.reactor.config.Linger = 0
			_ = t.reactor.shutDown()
			return nil, err
		}
		t.servers = append(t.servers, bound)
	}
	if len(servers) > 0 {
		config.Log.Warn("control over libzmq bounds neither inbound connections nor the memory of a message of many "+
			"frames", "remedy", "keep unknown hosts away from the control ports, or set control.transport: zmq")
	}
	go t.runReactor()
	return t, nil
}

// fitOpenFiles reduces the number of Conns if the process may not open enough files: each Conn has two, and half of all
// files are left to peers and to the rest of the process.
func (c *Config) fitOpenFiles() {
	limit, _, err := door.FileLimit()
	if err != nil {
		c.Log.Warn("cannot read the limit of open files; assuming 1024", "err", err)
		limit = 1024
	}
	if connLimit := max(limit/4, 1); c.MaxConns > connLimit {
		c.Log.Warn("this process may open too few files for its connections: their number is reduced",
			"files_max", limit, "connections_wanted", c.MaxConns, "connections_max", connLimit, "remedy",
			"raise the limit of open files (ulimit -n, LimitNOFILE), or lower tables.conns")
		c.MaxConns = connLimit
	}
}

// runReactor is the reactor's goroutine. At the end, everything is freed.
func (t *transport) runReactor() {
	defer close(t.shutdownDone)
	t.reactor.runTurns()
	t.dials.Wait()
	t.names.Wait()
	t.shutdownErr = t.reactor.shutDown()
	t.limitedLog.FlushSkipped()
}

// pushCommand queues c, or returns why that failed. A message is carried out right here if no command is before the
// message and the sockets are free; otherwise the reactor carries out the command.
func (t *transport) pushCommand(c command, body []byte) effects.Code {
	code, wake := t.queue.push(c, body)
	if done := c.verb.isMessage() && wake && t.reactor.tryCarryOut(); wake && !done {
		t.reactor.waiter.wakeUp()
	}
	return code
}

func (t *transport) Open(e *effects.Open) {
	code := effects.OK
	t.mu.Lock()
	switch {
	case t.shuttingDown:
		code = effects.Closed
	case t.opening.Load() >= int64(t.config.MaxConns):
		code = effects.TooMany
	default:
		t.opening.Add(1)
		open := *e
		t.dials.Go(func() { t.dialPeer(open) })
	}
	t.mu.Unlock()
	if code != effects.OK {
		t.sink.Post(&effects.Opened{Corr: e.Corr, Code: code})
	}
}

func (t *transport) Close(conn effects.Conn) {
	// Refused only after Shutdown, which closes every Conn.
	_ = t.pushCommand(command{verb: verbClose, conn: conn}, nil)
}

func (t *transport) Send(e *effects.Send) {
	code := effects.TooLarge
	if len(e.Body) <= t.config.MaxMessage {
		code = t.pushCommand(command{verb: verbSend, corr: e.Corr, conn: e.Conn}, e.Body)
	}
	if code != effects.OK {
		t.sink.Post(&effects.Unanswered{Corr: e.Corr, Code: code})
	}
}

func (t *transport) Post(e *effects.Post) {
	code := effects.TooLarge
	if len(e.Body) <= t.config.MaxMessage {
		code = t.pushCommand(command{verb: verbPost, corr: e.Corr, conn: e.Conn}, e.Body)
	}
	if code == effects.TooMany {
		code = effects.Refused // a full queue, as effects.Post defines it
	}
	if code != effects.OK {
		t.sink.Post(&effects.SendDone{Corr: e.Corr, Code: code})
	}
}

func (t *transport) Reply(e *effects.Reply) {
	if len(e.Body) > t.config.MaxMessage ||
		t.pushCommand(command{verb: verbReply, request: e.Request}, e.Body) != effects.OK {
		t.stats.repliesDropped.Add(1)
	}
}

// Caller implements control.Transport. A client that was last seen many clients ago may be forgotten.
func (t *transport) Caller(conn effects.Conn) netip.Addr { return t.reactor.clients.callerAddr(conn) }

func (t *transport) Servers() []control.Server { return slices.Clone(t.servers) }

func (t *transport) Stats() control.Stats {
	return control.Stats{
		Malformed:       t.stats.malformed.Load(),
		Unrequested:     t.stats.unrequested.Load(),
		RepliesDropped:  t.stats.repliesDropped.Load(),
		RequestsEvicted: t.stats.requestsEvicted.Load(),
	}
}

func (t *transport) Shutdown(ctx context.Context) error {
	t.shutdownOnce.Do(func() {
		t.mu.Lock()
		t.shuttingDown = true
		t.mu.Unlock()
		t.stopDialing()
		if t.queue.close() {
			t.reactor.waiter.wakeUp()
		}
	})
	select {
	case <-t.shutdownDone:
		return t.shutdownErr
	case <-ctx.Done():
		return fmt.Errorf("control over libzmq still shutting down: %w", ctx.Err())
	}
}
