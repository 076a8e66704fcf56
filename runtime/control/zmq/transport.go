//go:build cgo && linux

package zmq

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/control"
)

// transport is what others see: it only fills the queue of the reactor.
type transport struct {
	config  Config
	sink    control.Sink
	servers []control.Server
	stats   counters
	queue   queue
	reactor *reactor

	ended chan struct{} // closed when the reactor's goroutine has freed everything
	err   error         // of the end; read after ended
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
	t := &transport{config: config, sink: sink, ended: make(chan struct{})}
	t.queue.maxCommands, t.queue.maxBytes = config.QueueCommands, config.QueueBytes
	r, err := newReactor(config, len(servers), sink, &t.stats, &t.queue)
	if err != nil {
		return nil, err
	}
	t.reactor = r
	for i, server := range servers {
		bound, err := r.serve(i, server)
		if err != nil {
			// The bind error is what the caller can act on.
			_ = r.end()
			return nil, err
		}
		t.servers = append(t.servers, bound)
	}
	go func() {
		defer close(t.ended)
		r.run()
		t.err = r.end()
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
	code := t.push(command{verb: verbOpen, corr: e.Corr, channel: e.Channel, addr: e.Addr}, nil)
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
	if t.queue.close() {
		t.reactor.waiter.wake()
	}
	select {
	case <-t.ended:
		return t.err
	case <-ctx.Done():
		return fmt.Errorf("zeromq still shutting down: %w", ctx.Err())
	}
}
