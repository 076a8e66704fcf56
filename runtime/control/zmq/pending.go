package zmq

import (
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/secure"
)

// A pendingMessage is a Post, or the request of a Send, that waits for a connection with a complete handshake. A Post
// must not complete with OK before that: the peer may never come back.
type pendingMessage struct {
	corr   effects.Corr
	frames []byte
	size   int // of its body
}

// expiry is the timer that ends the wait of posted messages. A stopped timer may still fire once, so only a timer of
// the newest generation counts.
type expiry struct {
	timer      *time.Timer
	generation uint64
}

// wireMax is the longest message for which a Conn keeps the buffer for the next message.
const wireMax = 16 << 10

// postMessage carries out a Post. The message completes with OK once the system has the whole message.
func (c *client) postMessage(corr effects.Corr, body []byte) effects.Code {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return effects.Closed
	case c.wantsReplies:
		return effects.Invalid
	}
	return c.submitMessage(corr, body)
}

// submitMessage writes a message to the connection, or lets the message wait for a connection. The call fails with
// TooMany if too many messages wait.
func (c *client) submitMessage(corr effects.Corr, body []byte) effects.Code {
	if c.ready && c.writingCorr == 0 && len(c.pending) == 0 {
		message := appendRequest(c.scratch[:0], c.Frames, c.lastID, body)
		if cap(message) <= wireMax {
			c.scratch = message
		}
		if c.writeNow(corr, message) {
			return effects.OK
		}
	}
	if len(c.pending) >= c.config.HighWater || !c.reservePending(1, len(body)) {
		return effects.TooMany
	}
	c.pending = append(c.pending, pendingMessage{corr, appendRequest(nil, c.Frames, c.lastID, body), len(body)})
	if len(c.pending) == 1 && c.writingCorr == 0 {
		c.restartExpiry()
	}
	if !c.keeperRunning {
		c.keeperRunning = true
		c.keepers.Go(func() { c.runKeeper(nil, secure.Peer{}) })
	}
	return effects.OK
}

// writeNow writes a message to the connection. The result is false if the connection cannot take the message, which
// means that the connection is ending.
func (c *client) writeNow(corr effects.Corr, frames []byte) bool {
	end, written, ok := c.wireConn.out.sendTracked(frames)
	switch {
	case !ok:
		return false
	case written:
		c.completePost(corr)
	default:
		c.writingCorr, c.writingEnd = corr, end
		c.restartExpiry()
	}
	return true
}

// completePost notes that the system has a whole message. A Post is complete by that; a request waits for a reply.
func (c *client) completePost(corr effects.Corr) {
	if !c.wantsReplies {
		c.sink.Post(&effects.SendDone{Corr: corr, Code: effects.OK})
	}
}

// onWritten is called by the outbox of connection l: the first total bytes of everything that was sent have left.
func (c *client) onWritten(l *wireConn, sum uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wireConn != l || c.writingCorr == 0 || sum < c.writingEnd {
		return
	}
	corr := c.writingCorr
	c.writingCorr = 0
	c.completePost(corr)
	c.flushPending()
}

// flushPending writes the messages that wait, in order, until a message does not leave at once.
func (c *client) flushPending() {
	for c.writingCorr == 0 && len(c.pending) > 0 {
		w := c.pending[0]
		if !c.writeNow(w.corr, w.frames) {
			return
		}
		c.dropFirstPending()
	}
	c.restartExpiry()
}

// dropFirstPending removes the first message that waits.
func (c *client) dropFirstPending() {
	w := c.pending[0]
	if c.pending = c.pending[1:]; len(c.pending) == 0 {
		c.pending = nil
	}
	c.reservePending(-1, -w.size)
}

// restartExpiry gives the next posted message, written or waiting, a ConnectTimeout from now to leave. If that time
// expires, all posted messages fail. Requests have no expiry here: the sender has a separate timeout.
func (c *client) restartExpiry() {
	c.expiry.generation++
	if c.expiry.timer != nil {
		c.expiry.timer.Stop()
		c.expiry.timer = nil
	}
	if c.wantsReplies || c.writingCorr == 0 && len(c.pending) == 0 {
		return
	}
	generation := c.expiry.generation
	c.expiry.timer = time.AfterFunc(c.config.ConnectTimeout, func() { c.expirePending(generation) })
}

// expirePending fails the posted messages that have waited too long, and ends a connection that takes no bytes.
func (c *client) expirePending(generation uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.expiry.generation != generation {
		return
	}
	if c.writingCorr != 0 {
		_ = c.wireConn.Close() // The peer has a part of the message; the rest must not follow.
	}
	c.failPending(effects.Refused)
}

// failPending completes, with code, the posted messages that no connection has taken whole.
func (c *client) failPending(code effects.Code) {
	if c.writingCorr != 0 {
		c.sink.Post(&effects.SendDone{Corr: c.writingCorr, Code: code})
	}
	for _, w := range c.pending {
		c.sink.Post(&effects.SendDone{Corr: w.corr, Code: code})
	}
	c.dropPending()
}

// dropPending drops the messages that no connection has taken whole.
func (c *client) dropPending() {
	c.writingCorr = 0
	for len(c.pending) > 0 {
		c.dropFirstPending()
	}
	c.restartExpiry()
}
