package zmq

import (
	"time"

	"github.com/kvferry/kvferry/effects"
)

// A word is a message that waits until a connection is up: a Post, or the question of a Send. To call it told before
// would be a lie where nobody ever comes.
type word struct {
	corr effects.Corr
	wire []byte
	size int // of its body
}

// expiry ends the wait of words. A timer that was stopped may still fire once: only the newest turn counts.
type expiry struct {
	timer *time.Timer
	turn  uint64
}

// wireMax is the longest message whose memory a Conn keeps for the next one.
const wireMax = 16 << 10

// tell carries out a Post: its completion says that a connection has it.
func (c *client) tell(corr effects.Corr, body []byte) effects.Code {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return effects.Closed
	case c.asks:
		return effects.Invalid
	}
	return c.hand(corr, body)
}

// hand gives one message to the connection, or lets it wait for one.
func (c *client) hand(corr effects.Corr, body []byte) effects.Code {
	if c.up && c.leaving == 0 && len(c.waiting) == 0 {
		message := wire(c.scratch[:0], c.Frames, c.lastID, body)
		if cap(message) <= wireMax {
			c.scratch = message
		}
		if c.push(corr, message) {
			return effects.OK
		}
	}
	if len(c.waiting) >= c.config.HighWater || !c.room(1, len(body)) {
		return effects.TooMany
	}
	c.waiting = append(c.waiting, word{corr, wire(nil, c.Frames, c.lastID, body), len(body)})
	if len(c.waiting) == 1 && c.leaving == 0 {
		c.patient()
	}
	if !c.kept {
		c.kept = true
		c.keepers.Go(func() { c.keep(nil) })
	}
	return effects.OK
}

// push gives a message to the connection, which may not be able to take it: then it is ending.
func (c *client) push(corr effects.Corr, wire []byte) bool {
	mark, gone, ok := c.line.out.push(wire)
	switch {
	case !ok:
		return false
	case gone:
		c.taken(corr)
	default:
		c.leaving, c.mark = corr, mark
		c.patient()
	}
	return true
}

// taken notes that the system has a whole message.
func (c *client) taken(corr effects.Corr) {
	if !c.asks {
		c.sink.Post(&effects.SendDone{Corr: corr, Code: effects.OK})
	}
}

// left is told what has left on a connection.
func (c *client) left(l *line, sum uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.line != l || c.leaving == 0 || sum < c.mark {
		return
	}
	corr := c.leaving
	c.leaving = 0
	c.taken(corr)
	c.flush()
}

// flush hands over what waits, one after the other, and looks how long the next one may take.
func (c *client) flush() {
	for c.leaving == 0 && len(c.waiting) > 0 {
		w := c.waiting[0]
		if !c.push(w.corr, w.wire) {
			return
		}
		c.pop()
	}
	c.patient()
}

// pop takes the first message that waits away.
func (c *client) pop() {
	w := c.waiting[0]
	if c.waiting = c.waiting[1:]; len(c.waiting) == 0 {
		c.waiting = nil
	}
	c.room(-1, -w.size)
}

// patient has the words that wait, or are leaving, end if the next one has not left after one ConnectTimeout. How long
// a question waits is its asker's to say.
func (c *client) patient() {
	c.expiry.turn++
	if c.expiry.timer != nil {
		c.expiry.timer.Stop()
		c.expiry.timer = nil
	}
	if c.asks || c.leaving == 0 && len(c.waiting) == 0 {
		return
	}
	turn := c.expiry.turn
	c.expiry.timer = time.AfterFunc(c.config.ConnectTimeout, func() { c.expire(turn) })
}

// expire gives up what has waited for too long, and a connection that takes nothing.
func (c *client) expire(turn uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.expiry.turn != turn {
		return
	}
	if c.leaving != 0 {
		_ = c.line.Close() // A part of it is with the peer: the rest must not follow.
	}
	c.giveUp(effects.Refused)
}

// giveUp completes the words that no connection has taken whole.
func (c *client) giveUp(code effects.Code) {
	if c.leaving != 0 {
		c.sink.Post(&effects.SendDone{Corr: c.leaving, Code: code})
	}
	for _, w := range c.waiting {
		c.sink.Post(&effects.SendDone{Corr: w.corr, Code: code})
	}
	c.forget()
}

// forget drops what no connection has taken whole.
func (c *client) forget() {
	c.leaving = 0
	for len(c.waiting) > 0 {
		c.pop()
	}
	c.patient()
}
