//go:build cgo && linux

package zmq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/control"
	"github.com/kvferry/kvferry/runtime/internal/names"
	"github.com/kvferry/kvferry/runtime/internal/seldom"
)

// transport is what others see. Connections of peers come in through the door; our own are ZeroMQ's, in the reactor's
// hands.
type transport struct {
	config   Config
	sink     control.Sink
	servers  []control.Server
	stats    counters
	requests *requests
	names    *names.Resolver
	seldom   *seldom.Log
	doors

	queue       queue
	reactor     *reactor
	dialing     context.Context // of all dials; over at Shutdown
	stopDialing context.CancelFunc
	dials       sync.WaitGroup
	opening     atomic.Int64

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
	t := &transport{config: config, sink: sink, ended: make(chan struct{}), requests: newRequests(config.MaxRequests),
		seldom: seldom.New(config.Log)}
	t.doors = newDoors(&config)
	t.dialing, t.stopDialing = context.WithCancel(context.Background())
	t.names = names.New(t.dialing, names.Config{Timeout: config.NameTimeout, TTL: config.NameTTL, Negative: config.NameNegativeTTL, Lookup: config.Lookup})
	t.queue.maxCommands, t.queue.maxBytes = config.QueueCommands, config.QueueBytes
	r, err := newReactor(config, sink, &t.stats, &t.queue, t.drawConn)
	if err != nil {
		t.stopDialing()
		return nil, err
	}
	t.reactor = r
	for _, server := range servers {
		bound, err := t.listen(server)
		if err != nil {
			// The bind error is what the caller can act on.
			t.stopDialing()
			_ = t.close(0)
			_ = r.end()
			return nil, err
		}
		t.servers = append(t.servers, bound)
	}
	go func() {
		defer close(t.ended)
		r.run()
		t.err = errors.Join(t.close(config.Linger), r.end())
		t.seldom.End()
	}()
	return t, nil
}

// push queues c, and returns why it could not. What is quickly done and somebody waits for is done here
// and now, if nothing goes before it; the reactor does the rest.
func (t *transport) push(c command, body []byte) effects.Code {
	code, wake := t.queue.push(c, body)
	if done := c.verb.isMessage() && wake && t.reactor.help(); wake && !done {
		t.reactor.waiter.wake()
	}
	return code
}

func (t *transport) Open(e *effects.Open) {
	code := effects.OK
	switch {
	case t.dialing.Err() != nil:
		code = effects.Closed
	case t.opening.Add(1) > int64(t.config.MaxConns):
		t.opening.Add(-1)
		code = effects.TooMany
	}
	if code != effects.OK {
		t.sink.Post(&effects.Opened{Corr: e.Corr, Code: code})
		return
	}
	open := *e
	t.dials.Go(func() { t.dial(open) })
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
		Guests:          uint64(d.Guests),
		GuestsEvicted:   d.Evicted,
		GuestsExpired:   d.Expired,
		GuestsRefused:   d.Refused + d.NoFiles,
	}
}

func (t *transport) Shutdown(ctx context.Context) error {
	t.ending.Do(func() {
		_ = t.door.Shut()
		t.stopDialing()
		go func() {
			t.dials.Wait() // They complete into the queue, or as Closed.
			t.names.Wait()
			if t.queue.close() {
				t.reactor.waiter.wake()
			}
		}()
	})
	select {
	case <-t.ended:
		return t.err
	case <-ctx.Done():
		return fmt.Errorf("zeromq still shutting down: %w", ctx.Err())
	}
}
