package valkey

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strconv"
	"sync"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/control"
	"github.com/kvferry/kvferry/runtime/internal/loglimit"
)

// WithLog returns an opener of the transport that open makes, except that a Valkey server carries the channel
// ChannelLog. If c.TLS lacks authorities or a client certificate, those of env.Guard are used.
func WithLog(open control.Opener, c Config) control.Opener {
	return func(env control.Env) (control.Transport, error) {
		wrapped, err := open(env)
		if err != nil {
			return nil, err
		}
		if c.TLS != nil {
			c.TLS = env.Guard.CompleteClient(c.TLS)
		}
		log := env.Log
		if log == nil {
			log = slog.Default()
		}
		ctx, cancel := context.WithCancel(context.Background())
		return &transport{
			Transport: wrapped, config: c, sink: env.Sink, log: loglimit.New(log), ctx: ctx, cancel: cancel,
			conns: map[effects.Conn]*connState{},
		}, nil
	}
}

// transport implements control.Transport: the transport handles ChannelLog itself and passes everything else to the
// wrapped transport.
type transport struct {
	control.Transport
	config Config
	sink   control.Sink
	log    *loglimit.Log
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup // one goroutine for each connection

	mu       sync.Mutex
	shutDown bool
	conns    map[effects.Conn]*connState
	last     effects.Conn
}

// firstConn is the first number of connections for the log. The wrapped transport counts connections from 1.
const firstConn effects.Conn = 1 << 62

// connState represents a Conn to the log, with one request at a time.
type connState struct {
	inFlight effects.Corr // the request in flight; 0: none
	bodies   chan []byte  // of requests, for the connection's goroutine
	ctx      context.Context
	cancel   context.CancelFunc
}

// Open implements control.Transport. The server is contacted when the first request is sent.
func (t *transport) Open(e *effects.Open) {
	if e.Channel != effects.ChannelLog {
		t.Transport.Open(e)
		return
	}
	done := &effects.Opened{Corr: e.Corr, Code: effects.Closed}
	t.mu.Lock()
	if !t.shutDown {
		at := net.JoinHostPort(e.Addr.Host, strconv.Itoa(int(e.Addr.Port)))
		t.last++
		done.Code, done.Conn = effects.OK, firstConn+t.last
		c := &connState{bodies: make(chan []byte, 1)}
		c.ctx, c.cancel = context.WithCancel(t.ctx)
		t.conns[done.Conn] = c
		t.work.Add(1)
		go t.serveConn(c, &server{config: t.config, at: at})
	}
	t.mu.Unlock()
	t.sink.Post(done)
}

// Close implements control.Transport.
func (t *transport) Close(id effects.Conn) {
	if id < firstConn {
		t.Transport.Close(id)
		return
	}
	t.mu.Lock()
	c := t.conns[id]
	delete(t.conns, id)
	t.mu.Unlock()
	if c != nil {
		t.endConn(c, effects.Closed)
	}
}

// endConn cancels a connection and completes the request in flight.
func (t *transport) endConn(c *connState, code effects.Code) {
	t.mu.Lock()
	corr := c.inFlight
	c.inFlight = 0
	c.cancel()
	t.mu.Unlock()
	if corr != 0 {
		t.sink.Post(&effects.Unanswered{Corr: corr, Code: code})
	}
}

// Send implements control.Transport.
func (t *transport) Send(e *effects.Send) {
	if e.Conn < firstConn {
		t.Transport.Send(e)
		return
	}
	t.mu.Lock()
	c := t.conns[e.Conn]
	if c == nil || t.shutDown || c.inFlight != 0 {
		t.mu.Unlock()
		t.sink.Post(&effects.Unanswered{Corr: e.Corr, Code: effects.Closed})
		return
	}
	c.inFlight = e.Corr
	c.bodies <- append([]byte(nil), e.Body...) // This never blocks: the previous request is complete.
	t.mu.Unlock()
}

// serveConn carries out the requests of a connection until the connection is closed.
func (t *transport) serveConn(c *connState, s *server) {
	defer t.work.Done()
	defer s.close()
	for {
		select {
		case <-c.ctx.Done():
			return
		case body := <-c.bodies:
			t.carryOutRequest(c, s, body)
		}
	}
}

// carryOutRequest carries out a request, and posts the result unless the request has been completed meanwhile.
func (t *transport) carryOutRequest(c *connState, s *server, body []byte) {
	answer, err := s.handleRequest(t.ctx, c.ctx, body)
	t.mu.Lock()
	corr := c.inFlight
	inFlight := corr != 0
	c.inFlight = 0
	ended := t.shutDown
	t.mu.Unlock()
	if err != nil && (inFlight || !ended && !errors.Is(err, context.Canceled)) {
		// Log this even if the request is complete: a server that accepts TLS connections and stays silent fails only
		// after the machine has given up.
		t.log.Warn("a request to the shared log failed", s.at, logAttrs(err, s.at)...)
	}
	switch {
	case !inFlight:
	case err != nil:
		t.sink.Post(&effects.Unanswered{Corr: corr, Code: codeOf(err)})
	default:
		t.sink.Post(&effects.Replied{Corr: corr, Body: answer})
	}
}

// Shutdown implements control.Transport.
func (t *transport) Shutdown(ctx context.Context) error {
	t.mu.Lock()
	t.shutDown = true
	all := t.conns
	t.conns = map[effects.Conn]*connState{}
	t.mu.Unlock()
	for _, c := range all {
		t.endConn(c, effects.Closed)
	}
	t.cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		t.work.Wait()
		t.log.FlushSkipped()
	}()
	err := t.Transport.Shutdown(ctx)
	select {
	case <-ended:
	case <-ctx.Done():
		err = errors.Join(err, ctx.Err())
	}
	return err
}
