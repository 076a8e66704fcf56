//go:build cgo && linux

package zmq

import (
	"errors"
	"fmt"

	zmq4 "github.com/pebbe/zmq4"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/control"
)

// spareSockets are the sockets that ZeroMQ may need beside those of Conns and servers: closed ones that
// still linger.
const spareSockets = 1024

// reactor owns every socket. Only its goroutine touches it, once it runs.
type reactor struct {
	config Config
	sink   control.Sink
	stats  *counters
	queue  *queue
	waiter *waiter

	context   *zmq4.Context
	sockets   map[int]*socket // by their ZMQ_FD
	listening []*socket       // in the order of the servers
	conns     map[effects.Conn]*client
	lastConn  effects.Conn
	requests  requests
	clients   clients

	batch batch
	// dirty sockets may have messages that nothing will signal.
	dirty, looking []*socket
}

func newReactor(config Config, servers int, sink control.Sink, stats *counters, q *queue) (*reactor, error) {
	const what = "start zeromq"
	context, err := zmq4.NewContext()
	if err != nil {
		return nil, outOfSockets(what, err)
	}
	context.SetRetryAfterEINTR(true)
	err = errors.Join(
		context.SetIoThreads(config.IOThreads),
		context.SetMaxSockets(config.MaxConns+servers+spareSockets),
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
		sockets:  make(map[int]*socket),
		conns:    make(map[effects.Conn]*client),
		requests: newRequests(config.MaxRequests),
		clients:  newClients(config.MaxClients),
	}, nil
}

func (r *reactor) drawConn() effects.Conn {
	r.lastConn++
	return r.lastConn
}

// run works until the queue is closed and empty. Commands go before messages, so that a Close drops
// an answer that has not been looked at.
func (r *reactor) run() {
	for {
		r.waiter.forget()
		closed := r.queue.take(&r.batch)
		r.carryOut()
		if closed {
			return
		}
		r.look()
		ready := r.waiter.ready
		if len(r.dirty) == 0 {
			ready = r.waiter.wait
		}
		for _, event := range ready() {
			r.touch(r.sockets[int(event.Fd)])
		}
	}
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
		case verbSend:
			r.ask(c.corr, c.conn, body)
		case verbPost:
			r.tell(c.corr, c.conn, body)
		case verbReply:
			r.reply(c.request, body)
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

// end completes what is outstanding and frees everything. It takes as long as posted messages and replies
// take to leave, at most Config.Linger.
func (r *reactor) end() error {
	for conn := range r.conns {
		r.closeConn(conn)
	}
	for _, s := range r.listening {
		r.discard(s, r.config.Linger)
	}
	return errors.Join(r.waiter.close(), r.terminate())
}

func (r *reactor) terminate() error {
	if err := r.context.Term(); err != nil {
		return fmt.Errorf("terminate zeromq: %w", err)
	}
	return nil
}
