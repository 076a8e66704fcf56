package zmq

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/control/zmq/zmtp"
)

const (
	// answerFrames are those of an answer: the empty one that a REP puts before the body, and the body.
	answerFrames = 2
	// lingerMax is how many connections may linger. Beyond, what is with the system has to find its way alone.
	lingerMax = 1024
)

// client is one Conn that the machine opened: it asks in lockstep, or only tells. Whoever calls hands a message to the
// connection itself; a goroutine, its keeper, reads the connection, and makes another one where something waits.
type client struct {
	*transport
	conn    effects.Conn
	channel effects.Channel
	asks    bool
	addr    effects.Addr // as the machine has it
	at      netip.AddrPort
	over    context.Context // at Close
	end     context.CancelFunc

	// mu is held while the machine is told, so that nothing comes of a Conn after its Close.
	mu     sync.Mutex
	closed bool
	kept   bool         // there is a keeper
	line   *line        // the connection; nil while there is none
	up     bool         // it has shaken hands
	asked  effects.Corr // the Send without an answer, or zero
	// waiting has what no connection has any of. leaving is what the connection has a part of, or zero: the rest is in its
	// outbox, and gone with mark.
	waiting []word
	leaving effects.Corr
	mark    uint64
	expiry  expiry
	scratch []byte
}

// errUnasked is the end of a peer that answers what nobody asked: in lockstep, no later answer of it can be told from
// this one.
var errUnasked = errors.New("an answer that nobody asked for")

// ask carries out a Send.
func (c *client) ask(corr effects.Corr, body []byte) effects.Code {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return effects.Closed
	case !c.asks, c.asked != 0:
		return effects.Invalid
	}
	code := c.hand(corr, body)
	if code == effects.OK {
		c.asked = corr
	}
	return code
}

// listen takes what the peer sends until the connection ends, or says what it must not.
func (c *client) listen(l *line) error {
	limits := zmtp.Limits{Frames: answerFrames, Bytes: c.config.MaxMessage}
	r := l.reader(limits, c.answers, netip.PrefixFrom(c.at.Addr(), c.at.Addr().BitLen()))
	defer r.Release()
	for {
		m, err := r.Next()
		if errors.Is(err, zmtp.ErrEndless) { // Nothing is skipped: it is over.
			c.stats.malformed.Add(1)
			return fmt.Errorf("%w: %w", errMalformed, fault(m, limits, err))
		}
		if err == nil {
			err = c.answered(m)
		}
		if err != nil {
			return err
		}
	}
}

var errMalformed = errors.New("an answer that cannot be taken")

// answered takes one message from the peer.
func (c *client) answered(m zmtp.Message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return net.ErrClosed
	case c.asked == 0, len(c.waiting) > 0:
		c.stats.unrequested.Add(1)
		return errUnasked
	case len(m.Frames) != answerFrames || len(m.Frames[0]) != 0:
		c.stats.malformed.Add(1)
		return fmt.Errorf("%w: %d frames instead of an empty one and a body", errMalformed, len(m.Frames))
	}
	corr := c.asked
	c.asked = 0
	c.sink.Post(&effects.Replied{Corr: corr, Body: m.Frames[1]})
	return nil
}

// begins notes a connection that was made, unless nobody wants it any more.
func (c *client) begins(l *line) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.line = l
	}
	return !c.closed
}

// shaken notes that the peer has shaken hands, and hands it what waits.
func (c *client) shaken() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.up = true
		c.flush()
	}
}

// ended completes what went with the connection. Of what it had a part of nobody knows whether the peer has it, so that
// is never sent again.
func (c *client) ended(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.line, c.up = nil, false
	if c.leaving != 0 && !c.asks {
		c.sink.Post(&effects.SendDone{Corr: c.leaving, Code: effects.Refused})
	}
	c.leaving = 0
	if c.asked != 0 && len(c.waiting) == 0 {
		c.sink.Post(&effects.Unanswered{Corr: c.asked, Code: codeOf(err)})
		c.asked = 0
	}
	if len(c.waiting) == 0 {
		c.patient()
	}
}

func codeOf(err error) effects.Code {
	if errors.Is(err, errMalformed) || errors.Is(err, zmtp.ErrProtocol) {
		return effects.Malformed
	}
	return effects.PeerLost
}

// close drops a Conn with its connection. Nothing that its peer still sends arrives, and a question that waits need not
// leave. What was told is in the system's hands: it has Linger to get to the peer, which says so by ending the
// connection, too.
func (c *client) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.end()
	switch {
	case !c.asks:
		c.giveUp(effects.Closed)
	case c.asked != 0:
		c.sink.Post(&effects.Unanswered{Corr: c.asked, Code: effects.Closed})
	}
	c.forget()
	if c.line == nil {
		return
	}
	c.line.out.close()
	tcp, ok := c.line.Conn.(*net.TCPConn)
	if !ok || c.asks || !c.up || c.lingering.Load() >= lingerMax || tcp.CloseWrite() != nil {
		_ = c.line.Close()
		return
	}
	c.lingering.Add(1)
	time.AfterFunc(c.config.Linger, func() {
		c.lingering.Add(-1)
		_ = tcp.Close()
	})
}
