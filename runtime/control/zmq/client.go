package zmq

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/control/internal/zeromq"
	"github.com/kvferry/kvferry/runtime/control/zmq/zmtp"
)

// lingerMax is how many connections may linger. Beyond, what is with the system has to find its way alone.
const lingerMax = 1024

// client is one Conn that the machine opened: it asks, or only tells. Whoever calls hands a message to the connection
// itself; a goroutine, its keeper, reads the connection, and makes another one where something waits.
type client struct {
	*transport
	zeromq.Frames
	conn   effects.Conn
	asks   bool
	window int          // the most questions without an answer
	addr   effects.Addr // as the machine has it
	at     netip.AddrPort
	over   context.Context // at Close
	end    context.CancelFunc

	// mu is held while the machine is told, so that nothing comes of a Conn after its Close.
	mu     sync.Mutex
	closed bool
	kept   bool  // there is a keeper
	line   *line // the connection; nil while there is none
	up     bool  // it has shaken hands
	// asked are the Sends without an answer, in their order; the ids of questions count from 1.
	asked  []asked
	lastID uint64
	// waiting has what no connection has any of: of questions the last ones of asked. leaving is what the connection has
	// a part of, or zero: the rest is in its outbox, and gone with mark.
	waiting []word
	leaving effects.Corr
	mark    uint64
	expiry  expiry
	scratch []byte
}

// asked is a Send that has no answer, under the id that tells its answer from others.
type asked struct {
	id   uint64
	corr effects.Corr
}

// errUnasked is the end of a peer that answers what nobody asked: in lockstep, no later answer of it can be told from
// this one. Where questions have ids it is only dropped.
var errUnasked = errors.New("an answer that nobody asked for")

// ask carries out a Send.
func (c *client) ask(corr effects.Corr, body []byte) effects.Code {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return effects.Closed
	case !c.asks, len(c.asked) >= c.window, !zeromq.IsBody(c.Channel, body):
		return effects.Invalid
	}
	c.lastID++
	code := c.hand(corr, body)
	if code == effects.OK {
		c.asked = append(c.asked, asked{c.lastID, corr})
	}
	return code
}

// sent are the questions that a connection has: the peer may answer them.
func (c *client) sent() []asked { return c.asked[:len(c.asked)-len(c.waiting)] }

// listen takes what the peer sends until the connection ends, or says what it must not.
func (c *client) listen(l *line) error {
	limits := zmtp.Limits{Frames: c.MostOfAnswer(), Bytes: c.config.MaxMessage}
	r := l.reader(limits, c.answers, netip.PrefixFrom(c.at.Addr(), c.at.Addr().BitLen()))
	defer r.Release()
	for {
		m, err := r.Next()
		if errors.Is(err, zmtp.ErrEndless) { // Nothing is skipped: it is over.
			c.stats.malformed.Add(1)
			return fmt.Errorf("%w: %w", errMalformed, fault(m, limits, err))
		}
		if err == nil {
			c.stepper.Hold()
			err = c.answered(m)
			c.stepper.Step()
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
	if c.closed {
		return net.ErrClosed
	}
	sent := c.sent()
	if len(sent) == 0 && !c.Matched {
		c.stats.unrequested.Add(1)
		return errUnasked
	}
	id, body, err := c.Answer(m.Frames)
	if err != nil {
		c.stats.malformed.Add(1)
		return fmt.Errorf("%w: %w", errMalformed, err)
	}
	i := 0 // In lockstep there is one.
	if c.Matched {
		i = slices.IndexFunc(sent, func(q asked) bool { return q.id == id })
	}
	if i < 0 {
		c.stats.unrequested.Add(1)
		c.seldom.Warn("a peer's answer is dropped", c.at.String(), "channel", c.Channel.String(), "host", c.addr.Host,
			"port", c.addr.Port, "id", id, "err", errUnasked)
		return nil
	}
	corr := sent[i].corr
	c.asked = slices.Delete(c.asked, i, i+1)
	c.sink.Post(&effects.Replied{Corr: corr, Body: body})
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
	if c.asks {
		sent := c.sent()
		for _, q := range sent {
			c.sink.Post(&effects.Unanswered{Corr: q.corr, Code: codeOf(err)})
		}
		c.asked = slices.Delete(c.asked, 0, len(sent))
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
	if !c.asks {
		c.giveUp(effects.Closed)
	}
	for _, q := range c.asked {
		c.sink.Post(&effects.Unanswered{Corr: q.corr, Code: effects.Closed})
	}
	c.asked = nil
	c.forget()
	if c.line == nil {
		return
	}
	c.line.out.close()
	conn := c.line.Conn
	half, ok := conn.(interface{ CloseWrite() error })
	if !ok || c.asks || !c.up || c.lingering.Load() >= lingerMax || half.CloseWrite() != nil {
		_ = conn.Close()
		return
	}
	c.lingering.Add(1)
	time.AfterFunc(c.config.Linger, func() {
		c.lingering.Add(-1)
		_ = conn.Close()
	})
}
