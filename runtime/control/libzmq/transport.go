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

// transport is what others see: it looks peers up and fills the queue of the reactor.
type transport struct {
	config  Config
	sink    control.Sink
	servers []control.Server
	stats   counters
	queue   queue
	reactor *reactor
	seldom  *loglimit.Log
	names   *names.Resolver

	dialing     context.Context // of all dials; over at Shutdown
	stopDialing context.CancelFunc
	dials       sync.WaitGroup
	opening     atomic.Int64 // Conns whose peers are looked up and knocked at

	mu   sync.Mutex // held for a look only
	over bool       // nothing is opened any more

	ending sync.Once
	ended  chan struct{} // closed when everything is freed
	err    error         // of the end; read after ended
}

// counters are control.Stats while they are counted.
type counters struct {
	malformed, unrequested, repliesDropped, requestsEvicted atomic.Uint64
}

// Listen binds servers and starts a transport. The error is a *control.Error; nothing is left running after one.
func Listen(config Config, servers []control.Server, sink control.Sink) (control.Transport, error) {
	config, err := config.complete()
	if err != nil {
		return nil, err
	}
	config.fit()
	t := &transport{config: config, sink: sink, ended: make(chan struct{}), seldom: loglimit.New(config.Log)}
	t.queue.maxCommands, t.queue.maxBytes = config.QueueCommands, config.QueueBytes
	t.dialing, t.stopDialing = context.WithCancel(context.Background())
	t.names = names.New(t.dialing, names.Config{Timeout: config.NameTimeout, TTL: config.NameTTL,
		Negative: config.NameNegativeTTL, Lookup: config.Lookup})
	if t.reactor, err = newReactor(config, len(servers), t); err != nil {
		t.stopDialing()
		return nil, err
	}
	for i, server := range servers {
		bound, err := t.reactor.serve(i, server, t)
		if err != nil {
			// The bind error is what the caller can act on.
			t.stopDialing()
			t.names.Wait()
			t.reactor.config.Linger = 0
			_ = t.reactor.end()
			return nil, err
		}
		t.servers = append(t.servers, bound)
	}
	if len(servers) > 0 {
		config.Log.Warn("control over libzmq bounds neither the connections of peers nor the memory of a message of many "+
			"frames", "remedy", "keep unknown hosts away from the control ports, or set control.transport: zmq")
	}
	go t.run()
	return t, nil
}

// fit makes Conns fewer where the process may not open as many files: each has two, and half of all are left to peers
// and to whatever else the process does.
func (c *Config) fit() {
	limit, _, err := door.FileLimit()
	if err != nil {
		c.Log.Warn("the limit of open files is not known", "err", err)
		limit = 1024
	}
	if may := max(limit/4, 1); c.MaxConns > may {
		c.Log.Warn("this process may open fewer files than its connections would need: there are fewer connections",
			"files_max", limit, "connections_wanted", c.MaxConns, "connections_max", may, "remedy",
			"raise the limit of open files (ulimit -n, LimitNOFILE), or lower tables.conns")
		c.MaxConns = may
	}
}

// run is the reactor's goroutine, and frees everything at its end.
func (t *transport) run() {
	defer close(t.ended)
	t.reactor.run()
	t.dials.Wait()
	t.names.Wait()
	t.err = t.reactor.end()
	t.seldom.End()
}

// push queues c, and returns why it could not. What is quickly done and somebody waits for is done here and now, if
// nothing goes before it; the reactor does the rest.
func (t *transport) push(c command, body []byte) effects.Code {
	code, wake := t.queue.push(c, body)
	if done := c.verb.isMessage() && wake && t.reactor.help(); wake && !done {
		t.reactor.waiter.wake()
	}
	return code
}

func (t *transport) Open(e *effects.Open) {
	code := effects.OK
	t.mu.Lock()
	switch {
	case t.over:
		code = effects.Closed
	case t.opening.Load() >= int64(t.config.MaxConns):
		code = effects.TooMany
	default:
		t.opening.Add(1)
		open := *e
		t.dials.Go(func() { t.dial(open) })
	}
	t.mu.Unlock()
	if code != effects.OK {
		t.sink.Post(&effects.Opened{Corr: e.Corr, Code: code})
	}
}

func (t *transport) Close(conn effects.Conn) {
	// Refused only after Shutdown, which closes every Conn.
	_ = t.push(command{verb: verbClose, conn: conn}, nil)
}

func (t *transport) Send(e *effects.Send) {
	code := effects.TooLarge
	if len(e.Body) <= t.config.MaxMessage {
		code = t.push(command{verb: verbSend, corr: e.Corr, conn: e.Conn}, e.Body)
	}
	if code != effects.OK {
		t.sink.Post(&effects.Unanswered{Corr: e.Corr, Code: code})
	}
}

func (t *transport) Post(e *effects.Post) {
	code := effects.TooLarge
	if len(e.Body) <= t.config.MaxMessage {
		code = t.push(command{verb: verbPost, corr: e.Corr, conn: e.Conn}, e.Body)
	}
	if code == effects.TooMany {
		code = effects.Refused // a full queue, as effects.Post says
	}
	if code != effects.OK {
		t.sink.Post(&effects.SendDone{Corr: e.Corr, Code: code})
	}
}

func (t *transport) Reply(e *effects.Reply) {
	if len(e.Body) > t.config.MaxMessage ||
		t.push(command{verb: verbReply, request: e.Request}, e.Body) != effects.OK {
		t.stats.repliesDropped.Add(1)
	}
}

// Caller implements control.Transport. A client that came last a long time ago may be forgotten.
func (t *transport) Caller(conn effects.Conn) netip.Addr { return t.reactor.clients.caller(conn) }

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
	t.ending.Do(func() {
		t.mu.Lock()
		t.over = true
		t.mu.Unlock()
		t.stopDialing()
		if t.queue.close() {
			t.reactor.waiter.wake()
		}
	})
	select {
	case <-t.ended:
		return t.err
	case <-ctx.Done():
		return fmt.Errorf("control over libzmq still shutting down: %w", ctx.Err())
	}
}
