//go:build cgo && linux

package libzmq

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"syscall"
	"time"

	zmq4 "github.com/pebbe/zmq4"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/control/internal/zeromq"
)

// client is one Conn that the machine opened. A DEALER asks, a PUSH only tells.
type client struct {
	*socket // nil where none could be made again
	zeromq.Frames
	reactor *reactor
	conn    effects.Conn
	at      netip.AddrPort
	window  int
	// asked are the Sends without an answer, in their order; the ids of questions count from 1.
	asked  []asked
	lastID uint64
	// waiting has what a PUSH has not taken, until expiry.
	waiting []word
	expiry  *time.Timer
}

// asked is a Send that has no answer, under the id that tells its answer from others.
type asked struct {
	id   uint64
	corr effects.Corr
}

func (c *client) kind() zmq4.Type {
	if c.Channel.Asks() {
		return zmq4.DEALER
	}
	return zmq4.PUSH
}

// open makes a Conn to a peer at which somebody took a connection. libzmq connects in the background, so OK says that
// bytes can be queued.
func (r *reactor) open(command *command) {
	c := &client{reactor: r, at: command.at, window: max(int(command.window), 1),
		Frames: zeromq.FramesOf(command.channel, command.window)}
	code := effects.TooMany
	if len(r.conns) < r.config.MaxConns {
		code = c.connect()
	}
	if code == effects.OK {
		c.conn = r.drawConn()
		r.conns[c.conn] = c
	}
	r.sink.Post(&effects.Opened{Corr: command.corr, Conn: c.conn, Code: code})
}

// connect gives a client its socket.
func (c *client) connect() effects.Code {
	r := c.reactor
	s, err := r.newSocket(c.kind(), c.at.Addr().Is6())
	if err != nil {
		return effects.TooMany
	}
	if err = s.Connect("tcp://" + c.at.String()); err == nil {
		err = r.watch(s, c)
	}
	switch {
	case err == nil:
		c.socket = s
		return effects.OK
	case isErrno(err, syscall.EMFILE), errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENOSPC):
		r.discard(s, 0)
		return effects.TooMany
	}
	r.discard(s, 0)
	return effects.Unreachable
}

// again drops the connection with everything that its peer still sends, and connects anew.
func (c *client) again() {
	c.reactor.discard(c.socket, 0)
	c.socket = nil
	if code := c.connect(); code != effects.OK {
		c.reactor.seldom.Warn("a connection to a peer cannot be made again", c.at.String(), "channel", c.Channel.String(),
			"code", code, "remedy", "raise the limit of open files")
	}
}

func (c *client) receive() (more bool) {
	if !c.Channel.Asks() {
		c.flush()
		return false
	}
	for range budget {
		m, ok := c.next(c.MostOfAnswer(), c.reactor.config.MaxMessage, false)
		if !ok {
			return false
		}
		if !c.answered(m) {
			return false // The new socket is looked at by itself.
		}
	}
	return true
}

var errUnasked = errors.New("an answer that nobody asked for")

// answered takes one message from the server, and reports whether the connection goes on. After an answer that cannot be
// taken it does not, nor in lockstep after one that nobody asked for: no later answer could be told from that one.
func (c *client) answered(m message) bool {
	r := c.reactor
	id, body, err := c.Answer(m.frames)
	if m.fault != nil {
		err = m.fault
	}
	i := 0 // In lockstep there is one.
	if c.Matched {
		i = slices.IndexFunc(c.asked, func(q asked) bool { return q.id == id })
	}
	switch {
	case len(c.asked) == 0 && !c.Matched:
		r.stats.unrequested.Add(1)
		err = errUnasked
	case err != nil:
		r.stats.malformed.Add(1)
		for _, q := range c.asked {
			r.sink.Post(&effects.Unanswered{Corr: q.corr, Code: effects.Malformed})
		}
		c.asked = nil
	case i < 0:
		r.stats.unrequested.Add(1)
		r.seldom.Warn("a peer's answer is dropped", c.at.String(), "channel", c.Channel.String(), "id", id, "err", errUnasked)
		return true
	default:
		corr := c.asked[i].corr
		c.asked = slices.Delete(c.asked, i, i+1)
		r.sink.Post(&effects.Replied{Corr: corr, Body: body})
		return true
	}
	r.seldom.Warn("a connection to a peer is ended", c.at.String(), "channel", c.Channel.String(), "err", err,
		"remedy", "look whether host and port are those of a peer that serves this channel")
	c.again()
	return false
}

// closeConn drops a Conn with its connection. Nothing that its server still sends can arrive.
func (r *reactor) closeConn(conn effects.Conn) {
	c, found := r.conns[conn]
	if !found {
		return
	}
	delete(r.conns, conn)
	for _, q := range c.asked {
		r.sink.Post(&effects.Unanswered{Corr: q.corr, Code: effects.Closed})
	}
	c.giveUp(effects.Closed)
	if c.socket != nil {
		linger := r.config.Linger
		if c.Channel.Asks() {
			linger = 0 // Nobody waits for the answer, so the question need not leave.
		}
		r.discard(c.socket, linger)
	}
}

// ask carries out a Send.
func (r *reactor) ask(corr effects.Corr, conn effects.Conn, body []byte) effects.Code {
	c, found := r.conns[conn]
	switch {
	case !found:
		return effects.Closed
	case !c.Channel.Asks(), len(c.asked) >= c.window, !zeromq.IsBody(c.Channel, body):
		return effects.Invalid
	}
	// What already arrived answers nothing that was not yet asked. A peer that sends without end is not asked.
	if c.socket != nil && !c.Matched && c.receive() {
		return effects.Refused
	}
	if c.socket == nil && c.connect() != effects.OK {
		return effects.Refused
	}
	c.lastID++
	r.message()
	if c.Matched {
		r.append(binary.BigEndian.AppendUint64(make([]byte, 0, zeromq.IDBytes), c.lastID))
	}
	if c.Delimited() {
		r.append(nil)
	}
	r.body(c.Channel, body)
	err := c.send(r.frames)
	r.touch(c.socket)
	if err != nil {
		return effects.Refused
	}
	c.asked = append(c.asked, asked{c.lastID, corr})
	return effects.OK
}
