//go:build cgo && linux

package zmq

import (
	"syscall"
	"time"

	zmq4 "github.com/pebbe/zmq4"

	"github.com/kvferry/kvferry/effects"
)

// unsentMax bounds what waits for one connection that is not up. Machines tell one word at a time.
const unsentMax = 16

// A word is one Post that waits until its connection is up. ZeroMQ would take it at once, and lose it if nobody
// ever comes; then it would have been called told.
type word struct {
	corr effects.Corr
	body []byte
}

// tell carries out a Post: its completion says that a connection has it.
func (r *reactor) tell(corr effects.Corr, conn effects.Conn, body []byte) {
	c, found := r.conns[conn]
	code := effects.OK
	switch {
	case !found:
		code = effects.Closed
	case !c.oneWay:
		code = effects.Invalid
	default:
		r.touch(c.socket)
		if len(c.unsent) == 0 {
			err := c.send(body)
			if err == nil {
				break
			}
			if !isErrno(err, syscall.EAGAIN) {
				code = effects.Refused
				break
			}
		}
		if len(c.unsent) >= unsentMax {
			code = effects.Refused
			break
		}
		c.keep(conn, word{corr, append([]byte(nil), body...)})
		return
	}
	r.sink.Post(&effects.SendDone{Corr: corr, Code: code})
}

// keep lets a word wait for the connection, for as long as one attempt to connect may take.
func (c *client) keep(conn effects.Conn, w word) {
	c.unsent, c.wantsOut = append(c.unsent, w), true
	if len(c.unsent) == 1 {
		r := c.reactor
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
	for err == nil && state&zmq4.POLLOUT != 0 && len(c.unsent) > 0 {
		w := c.unsent[0]
		if err := c.send(w.body); isErrno(err, syscall.EAGAIN) {
			return
		} else if err != nil {
			c.giveUp(effects.Refused)
			return
		}
		c.unsent = c.unsent[1:]
		c.reactor.sink.Post(&effects.SendDone{Corr: w.corr, Code: effects.OK})
		state, err = c.GetEvents()
	}
	if len(c.unsent) == 0 {
		c.giveUp(effects.OK)
	}
}

// giveUp completes what waits, and expects nothing any more.
func (c *client) giveUp(code effects.Code) {
	for _, w := range c.unsent {
		c.reactor.sink.Post(&effects.SendDone{Corr: w.corr, Code: code})
	}
	c.unsent, c.wantsOut = nil, false
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
