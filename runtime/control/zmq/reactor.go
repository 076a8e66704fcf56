//go:build cgo && linux

package zmq

import (
	"errors"
	"fmt"
	"sync"
	"syscall"

	zmq4 "github.com/pebbe/zmq4"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/control"
)

// spareSockets are the sockets that ZeroMQ may need beside those of Conns: closed ones that
// still linger.
const spareSockets = 1024

// reactor owns every socket. Its goroutine receives; commands are carried out by whoever holds mu.
type reactor struct {
	config Config
	sink   control.Sink
	stats  *counters
	queue  *queue
	waiter *waiter

	// mu is held by whoever touches the sockets, and all that follows.
	mu      sync.Mutex
	context *zmq4.Context
	sockets map[int]*socket // by their ZMQ_FD
	conns   map[effects.Conn]*client
	draw    func() effects.Conn

	batch batch
	// dirty sockets may have messages that nothing will signal.
	dirty, looking []*socket
}

func newReactor(config Config, sink control.Sink, stats *counters, q *queue, draw func() effects.Conn) (*reactor, error) {
	const what = "start zeromq"
	context, err := zmq4.NewContext()
	if err != nil {
		return nil, outOfSockets(what, err)
	}
	context.SetRetryAfterEINTR(true)
	err = errors.Join(
		context.SetIoThreads(config.IOThreads),
		context.SetMaxSockets(config.MaxConns+spareSockets),
	)
	if err != nil {
		_ = context.Term()
		return nil, outOfSockets(what, err)
	}
	waiter, err := newWaiter()
	if err != nil {
		_ = context.Term()
		return nil, outOfSockets(what, err)
	}
	return &reactor{
		config: config, sink: sink, stats: stats, queue: q, waiter: waiter, context: context,
		sockets: make(map[int]*socket),
		conns:   make(map[effects.Conn]*client),
		draw:    draw,
	}, nil
}

// run works until the queue is closed and empty. Commands go before messages, so that a Close drops
// an answer that has not been looked at.
func (r *reactor) run() {
	var ready []syscall.EpollEvent
	for {
		more, closed := r.turn(ready)
		switch {
		case closed:
			return
		case more:
			ready = r.waiter.ready()
		default:
			ready = r.waiter.wait()
		}
	}
}

// turn carries out what is queued and receives what is there. more says that some sockets had more than
// their budget.
func (r *reactor) turn(ready []syscall.EpollEvent) (more, closed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, event := range ready {
		if s := r.sockets[int(event.Fd)]; s != nil { // Else it was closed since.
			r.touch(s)
		}
	}
	r.waiter.forget()
	closed = r.queue.take(&r.batch)
	r.carryOut()
	if !closed {
		r.look()
	}
	return len(r.dirty) > 0, closed
}

// help carries out what is queued in the caller's goroutine, which saves a message the way to the
// reactor's. It does not wait for the sockets and receives nothing, because to post what was received may
// wait for the very caller. done says that nothing is left to the reactor.
func (r *reactor) help() (done bool) {
	if !r.mu.TryLock() {
		return false
	}
	defer r.mu.Unlock()
	closed := r.queue.take(&r.batch)
	r.carryOut()
	return r.quiet() && !closed
}

// quiet says whether nothing waits in the sockets to which something was done. Their signals may be
// consumed, so those of which it does not say so must be looked at.
func (r *reactor) quiet() bool {
	for _, s := range r.dirty {
		if !s.closed && s.mayGoOn() {
			return false
		}
	}
	for _, s := range r.dirty {
		s.dirty = false
	}
	clear(r.dirty)
	r.dirty = r.dirty[:0]
	return true
}

func (r *reactor) carryOut() {
	for i := range r.batch.commands {
		c := &r.batch.commands[i]
		body := r.batch.body(c)
		switch c.verb {
		case verbOpen:
			r.open(c.corr, c.channel, c.addr)
		case verbClose:
			r.closeConn(c.conn)
		case verbExpire:
			r.expire(c.conn)
		case verbSend:
			r.ask(c.corr, c.conn, body)
		case verbPost:
			r.tell(c.corr, c.conn, body)
		}
	}
}

// look receives from every socket that may have something. Those with more than their budget stay dirty.
func (r *reactor) look() {
	r.looking, r.dirty = r.dirty, r.looking[:0]
	for _, s := range r.looking {
		s.dirty = false
		if !s.closed && s.owner.receive() {
			r.touch(s)
		}
	}
	clear(r.looking)
}

// end completes what is outstanding and frees everything. It takes as long as posted messages
// take to leave, at most Config.Linger.
func (r *reactor) end() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for conn := range r.conns {
		r.closeConn(conn)
	}
	return errors.Join(r.waiter.close(), r.terminate())
}

func (r *reactor) terminate() error {
	if err := r.context.Term(); err != nil {
		return fmt.Errorf("terminate zeromq: %w", err)
	}
	return nil
}
