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
	"github.com/kvferry/kvferry/runtime/secure"
)

// lingerMax limits the number of closed connections that linger at a time. Beyond that number a connection is closed
// at once, and the bytes that the system already has must arrive without the connection.
const lingerMax = 1024

// client represents a Conn that the machine opened: of a channel with requests, or of a one-way channel. The goroutine
// that calls Send or Post writes the message itself. Another goroutine, the keeper, reads the connection, and connects
// again while messages wait.
type client struct {
	*transport
	zeromq.Frames
	conn         effects.Conn
	wantsReplies bool
	window       int          // largest number of requests in flight
	addr         effects.Addr // as the machine named the peer
	at           netip.AddrPort
	principal    effects.Principal // only a server with this identity is sent anything; 0: any server
	ctx          context.Context   // canceled by close
	cancel       context.CancelFunc

	// mu is held while events are posted, so that no event of a Conn is posted after the Close.
	mu            sync.Mutex
	closed        bool
	keeperRunning bool      // a keeper goroutine exists
	wireConn      *wireConn // the current connection, or nil
	ready         bool      // the handshake is complete
	// inFlight holds the Sends without a reply, oldest first. Ids of requests count from 1.
	inFlight []inFlightSend
	lastID   uint64
	// pending holds the messages that no connection has any part of; their requests are the last requests of inFlight.
	//
	// writingCorr names the message of which the connection has a part, or is zero. The rest of the message is in the
	// outbox, and has left when the outbox's total reaches writingEnd. Invariant: while writingCorr is set, nothing of
	// pending is written.
	pending     []pendingMessage
	writingCorr effects.Corr
	writingEnd  uint64
	expiry      expiry
	scratch     []byte
}

// inFlightSend is a Send that has no reply yet, with the id of the expected reply.
type inFlightSend struct {
	id   uint64
	corr effects.Corr
}

// errUnrequested ends the connection to a peer that sends a reply without a request. In lockstep no later reply of
// that peer could be told apart from the unrequested reply. On a Conn with ids an unrequested reply is only dropped.
var errUnrequested = errors.New("the reply belongs to no request in flight")

// sendRequest carries out a Send. The code is OK if the request was written or waits for a connection.
func (c *client) sendRequest(corr effects.Corr, body []byte) effects.Code {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return effects.Closed
	case !c.wantsReplies, len(c.inFlight) >= c.window, !zeromq.IsBody(c.Channel, body):
		return effects.Invalid
	}
	c.lastID++
	code := c.submitMessage(corr, body)
	if code == effects.OK {
		c.inFlight = append(c.inFlight, inFlightSend{c.lastID, corr})
	}
	return code
}

// sentRequests returns the requests in flight that a connection has at least a part of: replies may arrive.
func (c *client) sentRequests() []inFlightSend { return c.inFlight[:len(c.inFlight)-len(c.pending)] }

// readReplies reads replies until the connection ends, or until the peer sends a message that ends the connection.
func (c *client) readReplies(l *wireConn, server *secure.Peer) error {
	limits := zmtp.Limits{Frames: c.MaxReplyFrames(), Bytes: c.config.MaxMessage}
	r := l.newReader(limits, c.replyBudget, netip.PrefixFrom(c.at.Addr(), c.at.Addr().BitLen()))
	defer r.Release()
	for {
		m, err := r.Next()
		if errors.Is(err, zmtp.ErrUnbounded) { // The rest of the message is not read: the connection ends here.
			c.stats.malformed.Add(1)
			return fmt.Errorf("%w: %w", errMalformed, faultError(m, limits, err))
		}
		if err == nil {
			c.stepper.Hold()
			err = c.takeReply(m, server)
			c.stepper.Step()
		}
		if err != nil {
			return err
		}
	}
}

// errMalformed is wrapped by the errors of replies that cannot be used.
var errMalformed = errors.New("the reply is malformed")

// takeReply finds the request of a reply and completes the request.
func (c *client) takeReply(m zmtp.Message, server *secure.Peer) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	sent := c.sentRequests()
	if len(sent) == 0 && !c.HasIDs {
		c.stats.unrequested.Add(1)
		return errUnrequested
	}
	id, body, err := c.CutReply(m.Frames)
	if err != nil {
		c.stats.malformed.Add(1)
		return fmt.Errorf("%w: %w", errMalformed, err)
	}
	i := 0 // In lockstep there is one request.
	if c.HasIDs {
		i = slices.IndexFunc(sent, func(q inFlightSend) bool { return q.id == id })
	}
	if i < 0 {
		c.stats.unrequested.Add(1)
		c.limitedLog.Warn("a reply is dropped", c.at.String(), "channel", c.Channel.String(), "host", c.addr.Host,
			"port", c.addr.Port, "id", id, "err", errUnrequested)
		return nil
	}
	corr := sent[i].corr
	c.inFlight = slices.Delete(c.inFlight, i, i+1)
	c.sink.Post(&effects.Replied{Corr: corr, Principal: server.Principal, Tenants: server.Tenants, Realm: server.Realm, Body: body})
	return nil
}

// attachConn makes l the current connection. The result is false if the Conn was closed meanwhile.
func (c *client) attachConn(l *wireConn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.wireConn = l
	}
	return !c.closed
}

// onHandshake notes that the handshake is complete and writes the messages that wait.
func (c *client) onHandshake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.ready = true
		c.flushPending()
	}
}

// detachConn completes the requests of a connection that ended with err. The peer may or may not have received a
// message of which the connection had a part, so the message is never sent again.
func (c *client) detachConn(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.wireConn, c.ready = nil, false
	if c.writingCorr != 0 && !c.wantsReplies {
		c.sink.Post(&effects.SendDone{Corr: c.writingCorr, Code: effects.Refused})
	}
	c.writingCorr = 0
	if c.wantsReplies {
		sent := c.sentRequests()
		for _, q := range sent {
			c.sink.Post(&effects.Unanswered{Corr: q.corr, Code: codeOf(err)})
		}
		c.inFlight = slices.Delete(c.inFlight, 0, len(sent))
	}
	if len(c.pending) == 0 {
		c.restartExpiry()
	}
}

// codeOf returns the code by which requests end when their connection ended with err.
func codeOf(err error) effects.Code {
	if errors.Is(err, errMalformed) || errors.Is(err, zmtp.ErrProtocol) {
		return effects.Malformed
	}
	return effects.PeerLost
}

// close ends a Conn and the connection. No reply that the peer still sends arrives, and requests that wait are
// dropped. Posted messages that the system already has get Linger to arrive; the peer ends the connection when all
// bytes have been read.
func (c *client) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.cancel()
	if !c.wantsReplies {
		c.failPending(effects.Closed)
	}
	for _, q := range c.inFlight {
		c.sink.Post(&effects.Unanswered{Corr: q.corr, Code: effects.Closed})
	}
	c.inFlight = nil
	c.dropPending()
	if c.wireConn == nil {
		return
	}
	c.wireConn.out.close()
	conn := c.wireConn.Conn
	half, ok := conn.(interface{ CloseWrite() error })
	if !ok || c.wantsReplies || !c.ready || c.lingering.Load() >= lingerMax || half.CloseWrite() != nil {
		_ = conn.Close()
		return
	}
	c.lingering.Add(1)
	time.AfterFunc(c.config.Linger, func() {
		c.lingering.Add(-1)
		_ = conn.Close()
	})
}
