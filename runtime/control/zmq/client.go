//go:build cgo && linux

package zmq

import (
	"syscall"
	"time"

	zmq4 "github.com/pebbe/zmq4"

	"github.com/kvferry/kvferry/effects"
)

// client is one Conn that the machine opened. A DEALER asks in lockstep, a PUSH only tells.
type client struct {
	*socket
	reactor *reactor
	oneWay  bool
	// waiting is the Send without an answer, or zero.
	waiting effects.Corr
	// unsent waits for the connection of a PUSH, until expiry.
	unsent []word
	expiry *time.Timer
}

func (c *client) receive() (more bool) {
	if c.oneWay {
		c.flush()
		return false
	}
	var parts [2][]byte
	for range budget {
		n, ok := c.frames(parts[:])
		if !ok {
			return false
		}
		c.answered(n, parts)
	}
	return true
}

// answered takes one message of n frames from the server, of which the first two are in parts.
func (c *client) answered(n int, parts [2][]byte) {
	corr := c.waiting
	c.waiting = 0
	malformed := n != 2 || len(parts[0]) != 0
	if malformed {
		c.reactor.stats.malformed.Add(1)
	}
	switch {
	case corr == 0:
		if !malformed {
			c.reactor.stats.unrequested.Add(1)
		}
	case malformed:
		// In lockstep this was the answer; no better one will come.
		c.reactor.sink.Post(&effects.Unanswered{Corr: corr, Code: effects.Malformed})
	default:
		c.reactor.sink.Post(&effects.Replied{Corr: corr, Body: parts[1]})
	}
}

// socketOf is the kind of socket that speaks on a channel.
func socketOf(channel effects.Channel) (kind zmq4.Type, ok bool) {
	switch channel {
	case effects.ChannelInit, effects.ChannelAlloc:
		return zmq4.DEALER, true
	case effects.ChannelProxy, effects.ChannelDone:
		return zmq4.PUSH, true
	}
	return 0, false
}

// open makes a Conn. ZeroMQ connects in the background, so OK says that bytes can be queued.
func (r *reactor) open(corr effects.Corr, channel effects.Channel, addr effects.Addr) {
	conn, code := r.connect(channel, addr)
	r.sink.Post(&effects.Opened{Corr: corr, Conn: conn, Code: code})
}

func (r *reactor) connect(channel effects.Channel, addr effects.Addr) (effects.Conn, effects.Code) {
	endpoint, ok := connectEndpoint(addr)
	if !ok {
		return 0, effects.Invalid
	}
	kind, ok := socketOf(channel)
	if !ok {
		return 0, effects.Invalid
	}
	if len(r.conns) >= r.config.MaxConns {
		return 0, effects.TooMany
	}
	s, err := r.newSocket(kind, r.config.IPv6 || isIPv6(addr.Host))
	if err != nil {
		return 0, effects.TooMany
	}
	if kind == zmq4.PUSH { // Only a connection that is up takes messages.
		if err := s.SetImmediate(true); err != nil {
			r.discard(s, 0)
			return 0, effects.Unsupported
		}
	}
	if err := s.Connect(endpoint); err != nil {
		r.discard(s, 0)
		if isErrno(err, syscall.EMFILE) {
			return 0, effects.TooMany
		}
		return 0, effects.Unreachable
	}
	c := &client{socket: s, reactor: r, oneWay: kind == zmq4.PUSH}
	if err := r.watch(s, c); err != nil {
		r.discard(s, 0)
		return 0, effects.TooMany
	}
	conn := r.draw()
	r.conns[conn] = c
	return conn, effects.OK
}

// closeConn drops a Conn with its connection. Nothing that its server still sends can arrive.
func (r *reactor) closeConn(conn effects.Conn) {
	c, found := r.conns[conn]
	if !found {
		return
	}
	delete(r.conns, conn)
	if c.waiting != 0 {
		r.sink.Post(&effects.Unanswered{Corr: c.waiting, Code: effects.Closed})
	}
	c.giveUp(effects.Closed)
	linger := r.config.Linger
	if !c.oneWay {
		linger = 0 // nobody waits for the answer, so the question need not leave
	}
	r.discard(c.socket, linger)
}

// ask carries out a Send.
func (r *reactor) ask(corr effects.Corr, conn effects.Conn, body []byte) {
	if code := r.tryAsk(corr, conn, body); code != effects.OK {
		r.sink.Post(&effects.Unanswered{Corr: corr, Code: code})
	}
}

func (r *reactor) tryAsk(corr effects.Corr, conn effects.Conn, body []byte) effects.Code {
	c, found := r.conns[conn]
	switch {
	case !found:
		return effects.Closed
	case c.oneWay, c.waiting != 0:
		return effects.Invalid
	}
	// What already arrived answers nothing that was not yet asked. A peer that sends without end is not asked.
	if c.receive() {
		return effects.Refused
	}
	// The empty frame is what a REQ socket would send before the body.
	if err := c.send(nil, body); err != nil {
		return effects.Refused
	}
	c.waiting = corr
	r.touch(c.socket)
	return effects.OK
}
