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

// Beside opens the transport that open makes, and has the log be kept by a server.
func Beside(open control.Opener, c Config) control.Opener {
	return func(env control.Env) (control.Transport, error) {
		other, err := open(env)
		if err != nil {
			return nil, err
		}
		log := env.Log
		if log == nil {
			log = slog.Default()
		}
		ctx, cancel := context.WithCancel(context.Background())
		return &transport{
			Transport: other, config: c, sink: env.Sink, lines: loglimit.New(log), ctx: ctx, cancel: cancel,
			conns: map[effects.Conn]*conn{},
		}, nil
	}
}

// transport is another one for all channels but one.
type transport struct {
	control.Transport
	config Config
	sink   control.Sink
	lines  *loglimit.Log
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup // a goroutine for each connection

	mu    sync.Mutex
	ended bool
	conns map[effects.Conn]*conn
	last  effects.Conn
}

// ours is where our connections' numbers begin. Those of the other transport are counted from 1.
const ours effects.Conn = 1 << 62

// conn is a connection as the machine knows it: one question at a time.
type conn struct {
	asked  effects.Corr // without an answer; 0: nothing is
	bodies chan []byte  // of questions
	ctx    context.Context
	cancel context.CancelFunc
}

// Open implements control.Transport. Nothing connects before there is a question.
func (t *transport) Open(e *effects.Open) {
	if e.Channel != effects.ChannelLog {
		t.Transport.Open(e)
		return
	}
	done := &effects.Opened{Corr: e.Corr, Code: effects.Closed}
	t.mu.Lock()
	if !t.ended {
		at := net.JoinHostPort(e.Addr.Host, strconv.Itoa(int(e.Addr.Port)))
		t.last++
		done.Code, done.Conn = effects.OK, ours+t.last
		c := &conn{bodies: make(chan []byte, 1)}
		c.ctx, c.cancel = context.WithCancel(t.ctx)
		t.conns[done.Conn] = c
		t.work.Add(1)
		go t.serve(c, &server{config: t.config, at: at})
	}
	t.mu.Unlock()
	t.sink.Post(done)
}

// Close implements control.Transport.
func (t *transport) Close(id effects.Conn) {
	if id < ours {
		t.Transport.Close(id)
		return
	}
	t.mu.Lock()
	c := t.conns[id]
	delete(t.conns, id)
	t.mu.Unlock()
	if c != nil {
		t.over(c, effects.Closed)
	}
}

// over ends what was asked on a connection that is none any more.
func (t *transport) over(c *conn, code effects.Code) {
	t.mu.Lock()
	asked := c.asked
	c.asked = 0
	c.cancel()
	t.mu.Unlock()
	if asked != 0 {
		t.sink.Post(&effects.Unanswered{Corr: asked, Code: code})
	}
}

// Send implements control.Transport.
func (t *transport) Send(e *effects.Send) {
	if e.Conn < ours {
		t.Transport.Send(e)
		return
	}
	t.mu.Lock()
	c := t.conns[e.Conn]
	if c == nil || t.ended || c.asked != 0 {
		t.mu.Unlock()
		t.sink.Post(&effects.Unanswered{Corr: e.Corr, Code: effects.Closed})
		return
	}
	c.asked = e.Corr
	c.bodies <- append([]byte(nil), e.Body...) // There is room: what was asked before has its answer.
	t.mu.Unlock()
}

// serve carries out what is asked on a connection, until it is closed.
func (t *transport) serve(c *conn, s *server) {
	defer t.work.Done()
	defer s.close()
	for {
		select {
		case <-c.ctx.Done():
			return
		case body := <-c.bodies:
			t.ask(c, s, body)
		}
	}
}

// ask carries a question out, and says what came of it if that is still wanted.
func (t *transport) ask(c *conn, s *server, body []byte) {
	answer, err := s.carryOut(t.ctx, c.ctx, body)
	t.mu.Lock()
	corr := c.asked
	wanted := corr != 0
	c.asked = 0
	ended := t.ended
	t.mu.Unlock()
	if err != nil && (wanted || !ended && !errors.Is(err, context.Canceled)) {
		// Also what nobody waits for any more: a server that hears TLS and says nothing is found out later than that.
		t.lines.Warn("the log does not do what is asked", s.at, remedy(err, s.at)...)
	}
	switch {
	case !wanted:
	case err != nil:
		t.sink.Post(&effects.Unanswered{Corr: corr, Code: codeOf(err)})
	default:
		t.sink.Post(&effects.Replied{Corr: corr, Body: answer})
	}
}

// Shutdown implements control.Transport.
func (t *transport) Shutdown(ctx context.Context) error {
	t.mu.Lock()
	t.ended = true
	all := t.conns
	t.conns = map[effects.Conn]*conn{}
	t.mu.Unlock()
	for _, c := range all {
		t.over(c, effects.Closed)
	}
	t.cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		t.work.Wait()
		t.lines.End()
	}()
	err := t.Transport.Shutdown(ctx)
	select {
	case <-ended:
	case <-ctx.Done():
		err = errors.Join(err, ctx.Err())
	}
	return err
}
