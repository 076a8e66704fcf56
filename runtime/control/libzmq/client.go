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

// client represents a Conn that the machine opened: a DEALER on a channel with requests, a PUSH on a one-way channel.
type client struct {
	*socket // nil if the socket was closed and no new one could be made
	zeromq.Frames
	reactor *reactor
	conn    effects.Conn
	at      netip.AddrPort
	window  int
	// inFlight holds the Sends without a reply, oldest first. Ids of requests count from 1.
	inFlight []inFlightSend
	lastID   uint64
	// pending holds the posted messages that the PUSH has not accepted; expiry ends their wait.
	pending []pendingMessage
	expiry  *time.Timer
}

// inFlightSend is a Send that has no reply yet, with the id of the expected reply.
type inFlightSend struct {
	id   uint64
	corr effects.Corr
}

func (c *client) socketType() zmq4.Type {
	if c.Channel.HasReplies() {
		return zmq4.DEALER
	}
	return zmq4.PUSH
}

// openConn makes a Conn to a peer that has just accepted a connection (probe). libzmq connects in the background, so OK
// means that messages can be queued.
func (r *reactor) openConn(command *command) {
	c := &client{reactor: r, at: command.at, window: max(int(command.window), 1),
		Frames: zeromq.FramesOf(command.channel, command.window)}
	code := effects.TooMany
	if len(r.conns) < r.config.MaxConns {
		code = c.connectSocket()
	}
	if code == effects.OK {
		c.conn = r.nextConn()
		r.conns[c.conn] = c
	}
	r.sink.Post(&effects.Opened{Corr: command.corr, Conn: c.conn, Code: code})
}

// connectSocket gives a client a socket.
func (c *client) connectSocket() effects.Code {
	r := c.reactor
	s, err := r.newSocket(c.socketType(), c.at.Addr().Is6())
	if err != nil {
		return effects.TooMany
	}
	if err = s.Connect("tcp://" + c.at.String()); err == nil {
		err = r.watchSocket(s, c)
	}
	switch {
	case err == nil:
		c.socket = s
		return effects.OK
	case isErrno(err, syscall.EMFILE), errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENOSPC):
		r.closeSocket(s, 0)
		return effects.TooMany
	}
	r.closeSocket(s, 0)
	return effects.Unreachable
}

// reconnect drops the connection, with everything that the peer still sends, and makes a new connection.
func (c *client) reconnect() {
	c.reactor.closeSocket(c.socket, 0)
	c.socket = nil
	if code := c.connectSocket(); code != effects.OK {
		c.reactor.limitedLog.Warn("a connection to a peer cannot be made again", c.at.String(), "channel", c.Channel.String(),
			"code", code, "remedy", "raise the limit of open files")
	}
}

func (c *client) receiveMessages() (more bool) {
	if !c.Channel.HasReplies() {
		c.flushPending()
		return false
	}
	for range receiveBudget {
		m, ok := c.nextMessage(c.MaxReplyFrames(), c.reactor.config.MaxMessage, false)
		if !ok {
			return false
		}
		if !c.takeReply(m) {
			return false // the reactor looks at the new socket by itself
		}
	}
	return true
}

var errUnrequested = errors.New("the reply belongs to no request in flight")

// takeReply takes a message from the server. The result is false if the connection was replaced: after a malformed
// reply and, in lockstep, after a reply without a request, because no later reply could be told apart from that reply.
func (c *client) takeReply(m message) bool {
	r := c.reactor
	id, body, err := c.CutReply(m.frames)
	if m.fault != nil {
		err = m.fault
	}
	i := 0 // In lockstep there is one request.
	if c.HasIDs {
		i = slices.IndexFunc(c.inFlight, func(q inFlightSend) bool { return q.id == id })
	}
	switch {
	case len(c.inFlight) == 0 && !c.HasIDs:
		r.stats.unrequested.Add(1)
		err = errUnrequested
	case err != nil:
		r.stats.malformed.Add(1)
		for _, q := range c.inFlight {
			r.sink.Post(&effects.Unanswered{Corr: q.corr, Code: effects.Malformed})
		}
		c.inFlight = nil
	case i < 0:
		r.stats.unrequested.Add(1)
		r.limitedLog.Warn("a reply is dropped", c.at.String(), "channel", c.Channel.String(), "id", id, "err", errUnrequested)
		return true
	default:
		corr := c.inFlight[i].corr
		c.inFlight = slices.Delete(c.inFlight, i, i+1)
		r.sink.Post(&effects.Replied{Corr: corr, Body: body})
		return true
	}
	r.limitedLog.Warn("a connection to a peer has ended", c.at.String(), "channel", c.Channel.String(), "err", err,
		"remedy", "check that host and port are those of a peer that serves this channel")
	c.reconnect()
	return false
}

// closeConn ends a Conn and the connection. No reply that the server still sends arrives.
func (r *reactor) closeConn(conn effects.Conn) {
	c, found := r.conns[conn]
	if !found {
		return
	}
	delete(r.conns, conn)
	for _, q := range c.inFlight {
		r.sink.Post(&effects.Unanswered{Corr: q.corr, Code: effects.Closed})
	}
	c.failPending(effects.Closed)
	if c.socket != nil {
		linger := r.config.Linger
		if c.Channel.HasReplies() {
			linger = 0 // No goroutine waits for the reply, so the request need not leave.
		}
		r.closeSocket(c.socket, linger)
	}
}

// sendRequest carries out a Send.
func (r *reactor) sendRequest(corr effects.Corr, conn effects.Conn, body []byte) effects.Code {
	c, found := r.conns[conn]
	switch {
	case !found:
		return effects.Closed
	case !c.Channel.HasReplies(), len(c.inFlight) >= c.window, !zeromq.IsBody(c.Channel, body):
		return effects.Invalid
	}
	// A message that has already arrived is not the reply to a request that has not yet left. A peer that sends without
	// end gets no request.
	if c.socket != nil && !c.HasIDs && c.receiveMessages() {
		return effects.Refused
	}
	if c.socket == nil && c.connectSocket() != effects.OK {
		return effects.Refused
	}
	c.lastID++
	r.startMessage()
	if c.HasIDs {
		r.addFrame(binary.BigEndian.AppendUint64(make([]byte, 0, zeromq.IDBytes), c.lastID))
	}
	if c.HasDelimiter() {
		r.addFrame(nil)
	}
	r.addBody(c.Channel, body)
	err := c.sendFrames(r.frames)
	r.markDirty(c.socket)
	if err != nil {
		return effects.Refused
	}
	c.inFlight = append(c.inFlight, inFlightSend{c.lastID, corr})
	return effects.OK
}
