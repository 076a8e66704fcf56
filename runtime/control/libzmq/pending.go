//go:build cgo && linux

package libzmq

import (
	"syscall"
	"time"

	zmq4 "github.com/pebbe/zmq4"

	"github.com/kvferry/kvferry/effects"
)

// A pendingMessage is a Post that waits until the connection is up. Without ZMQ_IMMEDIATE libzmq would accept the
// message at once, and lose the message if the peer never comes back, although the Post had completed with OK.
type pendingMessage struct {
	corr effects.Corr
	body []byte
}

// postMessage carries out a Post. The message completes with OK once libzmq has the message for a connection that is
// up.
func (r *reactor) postMessage(corr effects.Corr, conn effects.Conn, body []byte) {
	c, found := r.conns[conn]
	code := effects.OK
	switch {
	case !found:
		code = effects.Closed
	case c.Channel.HasReplies():
		code = effects.Invalid
	default:
		taken, err := c.sendNow(body)
		if !taken && err == nil && len(c.pending) < r.config.HighWater && len(body) <= r.config.QueueBytes-r.pendingBytes {
			c.addPending(pendingMessage{corr, append([]byte(nil), body...)})
			return
		}
		if !taken {
			code = effects.Refused
		}
	}
	r.sink.Post(&effects.SendDone{Corr: corr, Code: code})
}

// sendNow gives libzmq a body. The call does nothing if earlier messages wait, or if no connection that is up has
// room.
func (c *client) sendNow(body []byte) (taken bool, err error) {
	if len(c.pending) > 0 {
		return false, nil
	}
	c.reactor.startMessage(body)
	err = c.sendFrames(c.reactor.frames)
	c.reactor.markDirty(c.socket)
	if isErrno(err, syscall.EAGAIN) {
		return false, nil
	}
	return err == nil, err
}

// addPending lets a message wait for the connection, for as long as an attempt to connect may take.
func (c *client) addPending(w pendingMessage) {
	r := c.reactor
	c.pending, c.wantsOut = append(c.pending, w), true
	r.pendingBytes += len(w.body)
	if len(c.pending) == 1 {
		conn := c.conn
		c.expiry = time.AfterFunc(r.config.ConnectTimeout, func() {
			if _, wake := r.queue.push(command{verb: verbExpire, conn: conn}, nil); wake {
				r.waiter.wakeUp()
			}
		})
	}
}

// flushPending hands over the messages that wait, if the connection is up by now.
func (c *client) flushPending() {
	state, err := c.GetEvents() // A PUSH receives nothing, but its signal stays on until its events are read.
	for err == nil && state&zmq4.POLLOUT != 0 && len(c.pending) > 0 {
		w := c.pending[0]
		c.reactor.startMessage(w.body)
		if err := c.sendFrames(c.reactor.frames); isErrno(err, syscall.EAGAIN) {
			return
		} else if err != nil {
			c.failPending(effects.Refused)
			return
		}
		c.pending = c.pending[1:]
		c.reactor.pendingBytes -= len(w.body)
		c.reactor.sink.Post(&effects.SendDone{Corr: w.corr, Code: effects.OK})
		state, err = c.GetEvents()
	}
	if len(c.pending) == 0 {
		c.failPending(effects.OK)
	}
}

// failPending completes the messages that wait with code, and stops their timer.
func (c *client) failPending(code effects.Code) {
	for _, w := range c.pending {
		c.reactor.pendingBytes -= len(w.body)
		c.reactor.sink.Post(&effects.SendDone{Corr: w.corr, Code: code})
	}
	c.pending = nil
	if c.socket != nil {
		c.wantsOut = false
	}
	if c.expiry != nil {
		c.expiry.Stop()
		c.expiry = nil
	}
}

// expirePending fails the messages that have waited too long.
func (r *reactor) expirePending(conn effects.Conn) {
	if c := r.conns[conn]; c != nil && c.expiry != nil {
		c.failPending(effects.Refused)
	}
}
