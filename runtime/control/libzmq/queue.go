//go:build cgo && linux

package libzmq

import (
	"net/netip"
	"sync"

	"github.com/kvferry/kvferry/effects"
)

// verb says which call a command carries to the reactor.
type verb uint8

const (
	verbOpen verb = iota
	verbClose
	verbExpire
	verbSend
	verbPost
	verbReply
)

// isMessage reports whether the command sends a message, as opposed to making or closing sockets.
func (v verb) isMessage() bool { return v >= verbSend }

// command describes a call for the reactor. The body is bytes[from:to] of the batch.
type command struct {
	verb     verb
	channel  effects.Channel
	corr     effects.Corr
	conn     effects.Conn
	request  effects.Request
	window   uint16
	at       netip.AddrPort
	from, to int
}

// batch holds the commands that were queued since the reactor last looked, with all bodies in a common buffer.
type batch struct {
	commands []command
	bytes    []byte
}

// keptBytesMax is the largest buffer that an emptied batch keeps.
const keptBytesMax = 1 << 20

func (b *batch) reset() {
	clear(b.commands) // releases the zones of addresses
	b.commands = b.commands[:0]
	b.bytes = b.bytes[:0]
	if cap(b.bytes) > keptBytesMax {
		b.bytes = nil
	}
}

func (b *batch) bodyOf(c *command) []byte { return b.bytes[c.from:c.to:c.to] }

// queue carries commands from any goroutine to the reactor. Two batches are exchanged, so that a steady state allocates
// nothing.
type queue struct {
	maxCommands, maxBytes int

	mu      sync.Mutex
	filling batch
	woken   bool // a goroutine has woken the reactor, or is about to
	closed  bool
}

// push appends c with a copy of body. wake says that the caller must wake the reactor.
func (q *queue) push(c command, body []byte) (code effects.Code, wake bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return effects.Closed, false
	}
	// A Close and an Expire are never refused: without a completion, a refusal could not be reported. MaxConns bounds
	// their number.
	full := len(q.filling.commands) >= q.maxCommands || len(body) > q.maxBytes-len(q.filling.bytes)
	if full && c.verb != verbClose && c.verb != verbExpire {
		return effects.TooMany, false
	}
	c.from = len(q.filling.bytes)
	q.filling.bytes = append(q.filling.bytes, body...)
	c.to = len(q.filling.bytes)
	q.filling.commands = append(q.filling.commands, c)
	return effects.OK, q.claimWake()
}

// close refuses further commands. Queued commands are still carried out.
func (q *queue) close() (wake bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	q.closed = true
	return q.claimWake()
}

func (q *queue) claimWake() bool {
	wake := !q.woken
	q.woken = true
	return wake
}

// swapBatch exchanges the reactor's emptied batch for the filled batch. If closed is true, no command follows.
func (q *queue) swapBatch(b *batch) (closed bool) {
	b.reset()
	q.mu.Lock()
	defer q.mu.Unlock()
	*b, q.filling = q.filling, *b
	q.woken = false
	return q.closed
}
