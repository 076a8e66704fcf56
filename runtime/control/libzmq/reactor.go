//go:build cgo && linux

package libzmq

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"

	zmq4 "github.com/pebbe/zmq4"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/control"
	"github.com/kvferry/kvferry/runtime/control/internal/zeromq"
	"github.com/kvferry/kvferry/runtime/internal/loglimit"
)

// spareSockets are the sockets that libzmq may need beside the sockets of Conns and servers: closed sockets that still
// linger.
const spareSockets = 1024

// reactor owns every socket. The reactor's goroutine receives. Commands are carried out by the goroutine that holds
// mu.
type reactor struct {
	config     Config
	sink       control.Sink
	stats      *counters
	queue      *queue
	waiter     *waiter
	limitedLog *loglimit.Log
	requests   *zeromq.Requests[route]
	clients    *clients

	// mu guards the sockets and all fields below.
	mu        sync.Mutex
	context   *zmq4.Context
	sockets   map[int]*socket // by their ZMQ_FD
	listening []*socket       // in the order of the servers
	conns     map[effects.Conn]*client
	lastConn  effects.Conn

	batch batch
	// dirty holds the sockets on which an operation may have consumed the signal: messages may be there that nothing
	// will signal.
	dirty, receiving []*socket
	frames           [][]byte // of the message that is sent next
	pendingBytes     int      // of posted messages that wait
}

func newReactor(config Config, servers int, t *transport) (*reactor, error) {
	const what = "start libzmq"
	context, err := zmq4.NewContext()
	if err != nil {
		return nil, zeromq.OutOfSocketsError(what, err)
	}
	context.SetRetryAfterEINTR(true)
	err = errors.Join(
		context.SetIoThreads(config.IOThreads),
		context.SetMaxSockets(config.MaxConns+servers+spareSockets),
	)
	if err != nil {
		_ = context.Term()
		return nil, zeromq.OutOfSocketsError(what, err)
	}
	waiter, err := newWaiter()
	if err != nil {
		_ = context.Term()
		return nil, zeromq.OutOfSocketsError(what, err)
	}
	return &reactor{
		config: config, sink: t.sink, stats: &t.stats, queue: &t.queue, waiter: waiter, limitedLog: t.limitedLog, context: context,
		requests: zeromq.NewRequests[route](config.MaxRequests), clients: newClients(config.MaxClients),
		sockets: make(map[int]*socket),
		conns:   make(map[effects.Conn]*client),
	}, nil
}

// nextConn returns a Conn that was never used.
func (r *reactor) nextConn() effects.Conn {
	r.lastConn++
	return r.lastConn
}

// runTurns works until the queue is closed and empty. Commands go before received messages, so that a Close drops a
// reply that has not been read.
func (r *reactor) runTurns() {
	var ready []syscall.EpollEvent
	for {
		more, closed := r.runTurn(ready)
		switch {
		case closed:
			return
		case more:
			ready = r.waiter.readyNow()
		default:
			ready = r.waiter.awaitReady()
		}
	}
}

// runTurn carries out the queued commands and receives the messages that are there. more says that some sockets had
// more messages than their budget.
func (r *reactor) runTurn(ready []syscall.EpollEvent) (more, closed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, event := range ready {
		if s := r.sockets[int(event.Fd)]; s != nil { // otherwise the socket was closed since
			r.markDirty(s)
		}
	}
	r.waiter.resetWake()
	closed = r.queue.swapBatch(&r.batch)
	r.carryOut()
	if !closed {
		r.receiveDirty()
	}
	return len(r.dirty) > 0, closed
}

// tryCarryOut carries out the queued commands in the caller's goroutine, which saves a message the switch to the
// reactor's. The call does not wait for the lock, and receives nothing: posting a Received may wait for the very
// goroutine that calls. done says that nothing is left for the reactor.
func (r *reactor) tryCarryOut() (done bool) {
	if !r.mu.TryLock() {
		return false
	}
	defer r.mu.Unlock()
	closed := r.queue.swapBatch(&r.batch)
	r.carryOut()
	return r.clearIdleDirty() && !closed
}

// clearIdleDirty reports whether no message waits in the dirty sockets, and clears the list of dirty sockets if so. If
// the result is false, the reactor must look at the dirty sockets, because the signals may be consumed.
func (r *reactor) clearIdleDirty() bool {
	if slices.ContainsFunc(r.dirty, func(s *socket) bool { return !s.closed && s.hasWork() }) {
		return false
	}
	for _, s := range r.dirty {
		s.dirty = false
	}
	clear(r.dirty)
	r.dirty = r.dirty[:0]
	return true
}

// carryOut carries out the commands of the batch in their order.
func (r *reactor) carryOut() {
	for i := range r.batch.commands {
		c := &r.batch.commands[i]
		body := r.batch.bodyOf(c)
		switch c.verb {
		case verbOpen:
			r.openConn(c)
		case verbClose:
			r.closeConn(c.conn)
		case verbExpire:
			r.expirePending(c.conn)
		case verbSend:
			if code := r.sendRequest(c.corr, c.conn, body); code != effects.OK {
				r.sink.Post(&effects.Unanswered{Corr: c.corr, Code: code})
			}
		case verbPost:
			r.postMessage(c.corr, c.conn, body)
		case verbReply:
			r.sendReply(c.request, body)
		}
	}
}

// receiveDirty receives from every dirty socket. A socket with more messages than the budget stays dirty.
func (r *reactor) receiveDirty() {
	r.receiving, r.dirty = r.dirty, r.receiving[:0]
	for _, s := range r.receiving {
		s.dirty = false
		if !s.closed && s.owner.receiveMessages() {
			r.markDirty(s)
		}
	}
	clear(r.receiving)
}

// addFrame adds a frame to the message that is sent next.
func (r *reactor) addFrame(frame []byte) { r.frames = append(r.frames, frame) }

// startMessage starts a new message with these frames.
func (r *reactor) startMessage(frames ...[]byte) {
	clear(r.frames)
	r.frames = append(r.frames[:0], frames...)
}

// addBody adds a body to the message that is sent next.
func (r *reactor) addBody(ch effects.Channel, body []byte) {
	zeromq.ForEachFrame(ch, body, func(frame []byte, _ bool) { r.addFrame(frame) })
}

// shutDown completes what is outstanding and frees everything. The call takes as long as posted messages and replies
// need to leave, at most Config.Linger.
func (r *reactor) shutDown() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for conn := range r.conns {
		r.closeConn(conn)
	}
	for _, s := range r.listening {
		r.closeSocket(s, r.config.Linger)
	}
	err := r.waiter.close()
	if stop := r.context.Term(); stop != nil {
		err = errors.Join(err, fmt.Errorf("end libzmq: %w", stop))
	}
	return err
}
