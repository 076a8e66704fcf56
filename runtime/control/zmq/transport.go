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

// transport is what others see. Connections of peers come in through the door; each of our own is a client.
type transport struct {
	config   Config
	sink     control.Sink
	stepper  stepper.Stepper // the sink's
	servers  []control.Server
	stats    counters
	requests *zeromq.Requests[route]
	names    *names.Resolver
	seldom   *loglimit.Log
	doors

	dialing     context.Context // of all dials; over at Shutdown
	stopDialing context.CancelFunc
	dials       sync.WaitGroup
	keepers     sync.WaitGroup // and writers of clients
	answers     *door.ByteBudget
	slots       atomic.Int64 // of Conns, and of those that are being opened
	lingering   atomic.Int64

	mu                            sync.Mutex // held for a look only
	conns                         map[effects.Conn]*client
	over                          bool // nothing is opened any more
	waitingMessages, waitingBytes int

	ending sync.Once
	ended  chan struct{} // closed when everything is freed
	err    error         // of the end; read after ended
}

// counters are control.Stats while they are counted.
type counters struct {
	malformed, unrequested, repliesDropped, requestsEvicted atomic.Uint64
}

// Listen binds servers and starts a transport. The error is a *control.Error; nothing is left
// running after one.
func Listen(config Config, servers []control.Server, sink control.Sink) (control.Transport, error) {
	config, err := config.complete()
	if err != nil {
		return nil, err
	}
	if err := config.fit(); err != nil {
		return nil, err
	}
	t := &transport{config: config, sink: sink, stepper: stepper.Of(sink), ended: make(chan struct{}),
		requests: zeromq.NewRequests[route](config.MaxRequests),
		seldom:   loglimit.New(config.Log), answers: door.NewByteBudget(config.IncomingBytes), conns: map[effects.Conn]*client{}}
	t.doors = newDoors(&config)
	t.dialing, t.stopDialing = context.WithCancel(context.Background())
	t.names = names.New(t.dialing, names.Config{Timeout: config.NameTimeout, TTL: config.NameTTL,
		Negative: config.NameNegativeTTL, Lookup: config.Lookup})
	for _, server := range servers {
		bound, err := t.listen(server)
		if err != nil {
			// The bind error is what the caller can act on.
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
	case t.over:
		code = effects.Closed
	case t.slots.Load() >= int64(t.config.MaxConns):
		code = effects.TooMany
	default:
		t.slots.Add(1)
		open := *e
		t.dials.Go(func() { t.dial(open) })
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
		t.slots.Add(-1)
	}
}

// client is an open Conn, or nil.
func (t *transport) client(conn effects.Conn) *client {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.conns[conn]
}

func (t *transport) Send(e *effects.Send) {
	code := effects.Closed
	if len(e.Body) > t.config.MaxMessage {
		code = effects.TooLarge
	} else if c := t.client(e.Conn); c != nil {
		code = c.ask(e.Corr, e.Body)
	}
	if code != effects.OK {
		t.sink.Post(&effects.Unanswered{Corr: e.Corr, Code: code})
	}
}

func (t *transport) Post(e *effects.Post) {
	code := effects.Closed
	if len(e.Body) > t.config.MaxMessage {
		code = effects.TooLarge
	} else if c := t.client(e.Conn); c != nil {
		code = c.tell(e.Corr, e.Body)
	}
	if code == effects.TooMany {
		code = effects.Refused // a full queue, as effects.Post says
	}
	if code != effects.OK {
		t.sink.Post(&effects.SendDone{Corr: e.Corr, Code: code})
	}
}

func (t *transport) Reply(e *effects.Reply) {
	t.reply(e.Request, e.Body)
}

func (t *transport) Servers() []control.Server { return slices.Clone(t.servers) }

func (t *transport) Stats() control.Stats {
	d := t.door.Stats()
	return control.Stats{
		Malformed:       t.stats.malformed.Load(),
		Unrequested:     t.stats.unrequested.Load(),
		RepliesDropped:  t.stats.repliesDropped.Load(),
		RequestsEvicted: t.stats.requestsEvicted.Load(),
		Guests:          uint64(d.Open),
		GuestsEvicted:   d.Evicted,
		GuestsExpired:   d.Expired,
		GuestsRefused:   d.Refused + d.NoFiles,
	}
}

func (t *transport) Shutdown(ctx context.Context) error {
	t.ending.Do(func() {
		_ = t.door.Shut()
		t.mu.Lock()
		t.over = true
		t.mu.Unlock()
		t.stopDialing()
		go t.finish()
	})
	select {
	case <-t.ended:
		return t.err
	case <-ctx.Done():
		return fmt.Errorf("control transport still shutting down: %w", ctx.Err())
	}
}

// finish completes what is outstanding and frees everything. It takes as long as what was told and answered takes to
// leave, at most Config.Linger.
func (t *transport) finish() {
	defer close(t.ended)
	t.dials.Wait()
	t.names.Wait()
	t.mu.Lock()
	conns := slices.Collect(maps.Keys(t.conns))
	t.mu.Unlock()
	for _, conn := range conns {
		t.Close(conn)
	}
	t.err = t.close(t.config.Linger)
	t.keepers.Wait()
	t.seldom.End()
}
