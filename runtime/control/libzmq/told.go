//go:build cgo && linux

package libzmq

import (
	"syscall"
	"time"

	zmq4 "github.com/pebbe/zmq4"

	"github.com/kvferry/kvferry/effects"
)

// A word is one Post that waits until its connection is up. Without ZMQ_IMMEDIATE libzmq would take it at once, and lose
// it if nobody ever comes; then it would have been called told.
type word struct {
	corr effects.Corr
	body []byte
}

// tell carries out a Post: its completion says that libzmq has it for a connection that is up.
func (r *reactor) tell(corr effects.Corr, conn effects.Conn, body []byte) {
	c, found := r.conns[conn]
	code := effects.OK
	switch {
	case !found:
		code = effects.Closed
	case c.Channel.Asks():
		code = effects.Invalid
	default:
		taken, err := c.hand(body)
		if !taken && err == nil && len(c.waiting) < r.config.HighWater && len(body) <= r.config.QueueBytes-r.waitingBytes {
			c.wait(word{corr, append([]byte(nil), body...)})
			return
		}
		if !taken {
			code = effects.Refused
		}
	}
	r.sink.Post(&effects.SendDone{Corr: corr, Code: code})
}

// hand gives libzmq a body, unless others wait, or no connection is up that has room for it.
func (c *client) hand(body []byte) (taken bool, err error) {
	if len(c.waiting) > 0 {
		return false, nil
	}
	c.reactor.message(body)
	err = c.send(c.reactor.frames)
	c.reactor.touch(c.socket)
	if isErrno(err, syscall.EAGAIN) {
		return false, nil
	}
	return err == nil, err
}

// wait lets a word wait for the connection, for as long as one attempt to connect may take.
func (c *client) wait(w word) {
	r := c.reactor
	c.waiting, c.wantsOut = append(c.waiting, w), true
	r.waitingBytes += len(w.body)
	if len(c.waiting) == 1 {
		conn := c.conn
		c.expiry = time.AfterFunc(r.config.ConnectTimeout, func() {
			if _, wake := r.queue.push(command{verb: verbExpire, conn: conn}, nil); wake {
				r.waiter.wake()
			}
		})
	}
}

// flush hands over what waits, if the connection is up by now.
func (c *client) flush() {
	state, err := c.GetEvents() // A PUSH receives nothing, but its signal stays on until something looks at it.
	for err == nil && state&zmq4.POLLOUT != 0 && len(c.waiting) > 0 {
		w := c.waiting[0]
		c.reactor.message(w.body)
		if err := c.send(c.reactor.frames); isErrno(err, syscall.EAGAIN) {
			return
		} else if err != nil {
			c.giveUp(effects.Refused)
			return
		}
		c.waiting = c.waiting[1:]
		c.reactor.waitingBytes -= len(w.body)
		c.reactor.sink.Post(&effects.SendDone{Corr: w.corr, Code: effects.OK})
		state, err = c.GetEvents()
	}
	if len(c.waiting) == 0 {
		c.giveUp(effects.OK)
	}
}

// giveUp completes what waits, and expects nothing any more.
func (c *client) giveUp(code effects.Code) {
	for _, w := range c.waiting {
		c.reactor.waitingBytes -= len(w.body)
		c.reactor.sink.Post(&effects.SendDone{Corr: w.corr, Code: code})
	}
	c.waiting = nil
	if c.socket != nil {
		c.wantsOut = false
	}
	if c.expiry != nil {
		c.expiry.Stop()
		c.expiry = nil
	}
}

// expire gives up what has waited for too long.
func (r *reactor) expire(conn effects.Conn) {
	if c := r.conns[conn]; c != nil && c.expiry != nil {
		c.giveUp(effects.Refused)
	}
}
