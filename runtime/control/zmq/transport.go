package zmq

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/control"
	"github.com/kvferry/kvferry/runtime/control/internal/zeromq"
	"github.com/kvferry/kvferry/runtime/internal/door"
	"github.com/kvferry/kvferry/runtime/internal/loglimit"
	"github.com/kvferry/kvferry/runtime/internal/names"
	"github.com/kvferry/kvferry/runtime/internal/stepper"
)

// transport implements control.Transport. Inbound connections are admitted through a door (inbound); each outbound Conn
// is a client.
type transport struct {
	config     Config
	sink       control.Sink
	stepper    stepper.Stepper // of the sink
	servers    []control.Server
	stats      counters
	requests   *zeromq.Requests[route]
	names      *names.Resolver
	limitedLog *loglimit.Log
	inbound

	dialing     context.Context // parent of all dials; canceled by Shutdown
	stopDialing context.CancelFunc
	dials       sync.WaitGroup
	keepers     sync.WaitGroup // and writers of the clients' outboxes
	// replyBudget holds the budget for the bytes of replies that are arriving, by address.
	replyBudget *door.ByteBudget
	connSlots   atomic.Int64 // Conns in use, including those that are being opened
	lingering   atomic.Int64

	mu                            sync.Mutex // held for a moment only, never while writing or posting
	conns                         map[effects.Conn]*client
	shuttingDown                  bool // Shutdown was called: no Conn is opened any more
	pendingMessages, pendingBytes int

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
	if err := config.fitOpenFiles(); err != nil {
		return nil, err
	}
	t := &transport{config: config, sink: sink, stepper: stepper.ForSink(sink), shutdownDone: make(chan struct{}),
		requests:   zeromq.NewRequests[route](config.MaxRequests),
		limitedLog: loglimit.New(config.Log), replyBudget: door.NewByteBudget(config.IncomingBytes), conns: map[effects.Conn]*client{}}
	t.inbound = newInbound(&config)
	t.dialing, t.stopDialing = context.WithCancel(context.Background())
	t.names = names.New(t.dialing, names.Config{Timeout: config.NameTimeout, TTL: config.NameTTL,
		FailureTTL: config.NameNegativeTTL, Lookup: config.Lookup})
	for _, server := range servers {
		bound, err := t.startServer(server)
		if err != nil {
			// Return the bind error: the caller can act on that error.
			t.stopDialing()
			_ = t.close(0)
			return nil, err
		}
		t.servers = append(t.servers, bound)
	}
	return t, nil
}

func (t *transport) Open(e *effects.Open) {
	code := effects.OK
	t.mu.Lock()
	switch {
	case t.shuttingDown:
		code = effects.Closed
	case t.connSlots.Load() >= int64(t.config.MaxConns):
		code = effects.TooMany
	default:
		t.connSlots.Add(1)
		open := *e
		t.dials.Go(func() { t.dialPeer(open) })
	}
	t.mu.Unlock()
	if code != effects.OK {
		t.sink.Post(&effects.Opened{Corr: e.Corr, Code: code})
	}
}

func (t *transport) Close(conn effects.Conn) {
	t.mu.Lock()
	c := t.conns[conn]
	delete(t.conns, conn)
	t.mu.Unlock()
	if c != nil {
		c.close()
		t.connSlots.Add(-1)
	}
}

// clientOf returns the client of an open Conn, or nil.
func (t *transport) clientOf(conn effects.Conn) *client {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.conns[conn]
}

func (t *transport) Send(e *effects.Send) {
	code := effects.Closed
	if len(e.Body) > t.config.MaxMessage {
		code = effects.TooLarge
	} else if c := t.clientOf(e.Conn); c != nil {
		code = c.sendRequest(e.Corr, e.Body)
	}
	if code != effects.OK {
		t.sink.Post(&effects.Unanswered{Corr: e.Corr, Code: code})
	}
}

func (t *transport) Post(e *effects.Post) {
	code := effects.Closed
	if len(e.Body) > t.config.MaxMessage {
		code = effects.TooLarge
	} else if c := t.clientOf(e.Conn); c != nil {
		code = c.postMessage(e.Corr, e.Body)
	}
	if code == effects.TooMany {
		code = effects.Refused // a full queue, as effects.Post defines it
	}
	if code != effects.OK {
		t.sink.Post(&effects.SendDone{Corr: e.Corr, Code: code})
	}
}

func (t *transport) Reply(e *effects.Reply) {
	t.sendReply(e.Request, e.Body)
}

func (t *transport) Servers() []control.Server { return slices.Clone(t.servers) }

func (t *transport) Stats() control.Stats {
	d := t.door.Stats()
	return control.Stats{
		Malformed:       t.stats.malformed.Load(),
		Unrequested:     t.stats.unrequested.Load(),
		RepliesDropped:  t.stats.repliesDropped.Load(),
		RequestsEvicted: t.stats.requestsEvicted.Load(),
		InboundConns:    uint64(d.Open),
		InboundEvicted:  d.Evicted,
		InboundExpired:  d.Expired,
		InboundRefused:  d.Refused + d.FailedAccepts,
	}
}

func (t *transport) Shutdown(ctx context.Context) error {
	t.shutdownOnce.Do(func() {
		_ = t.door.StopAccepting()
		t.mu.Lock()
		t.shuttingDown = true
		t.mu.Unlock()
		t.stopDialing()
		go t.finishShutdown()
	})
	select {
	case <-t.shutdownDone:
		return t.shutdownErr
	case <-ctx.Done():
		return fmt.Errorf("control transport still shutting down: %w", ctx.Err())
	}
}

// finishShutdown completes what is outstanding and frees everything. The call takes as long as posted messages and
// replies need to leave, at most Config.Linger.
func (t *transport) finishShutdown() {
	defer close(t.shutdownDone)
	t.dials.Wait()
	t.names.Wait()
	t.mu.Lock()
	conns := slices.Collect(maps.Keys(t.conns))
	t.mu.Unlock()
	for _, conn := range conns {
		t.Close(conn)
	}
	t.shutdownErr = t.close(t.config.Linger)
	t.keepers.Wait()
	t.limitedLog.FlushSkipped()
}
