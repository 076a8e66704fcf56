package zmq

import (
	"context"
	"math/rand/v2"
	"net"
	"net/netip"
	"time"

	"github.com/kvferry/kvferry/runtime/control/internal/zeromq"
	"github.com/kvferry/kvferry/runtime/internal/door"
	"github.com/kvferry/kvferry/runtime/secure"
)

// runKeeper serves the connection until the end, and connects again while messages wait, with growing pauses. A Conn
// without a connection and without waiting messages has no keeper and costs nothing.
func (c *client) runKeeper(conn net.Conn, server secure.Peer) {
	pause := c.config.Reconnect
	for conn != nil || c.keepsRunning() {
		if conn == nil {
			conn, server = c.reconnect()
		}
		if conn != nil && c.serveConn(conn, &server) {
			pause = c.config.Reconnect
		}
		conn = nil
		if c.hasPending() {
			c.pauseReconnect(pause)
			pause = min(2*pause, max(c.config.ReconnectMax, c.config.Reconnect))
		}
	}
}

// hasPending reports whether messages wait for a connection.
func (c *client) hasPending() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.closed && len(c.pending) > 0
}

// keepsRunning is hasPending for the keeper itself, which ends on false.
func (c *client) keepsRunning() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keeperRunning = !c.closed && len(c.pending) > 0
	return c.keeperRunning
}

// pauseReconnect sleeps for a random part of pause, so that the clients of a server do not all connect at once.
func (c *client) pauseReconnect(pause time.Duration) {
	timer := time.NewTimer(pause/2 + rand.N(pause/2+1))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.ctx.Done():
	}
}

// reconnect connects to the address that the Conn was opened to, or logs why that fails.
func (c *client) reconnect() (net.Conn, secure.Peer) {
	ctx, cancel := context.WithTimeout(c.ctx, c.config.ConnectTimeout)
	defer cancel()
	conn, server, err := c.connectPeer(ctx, c.at, c.Channel, c.principal)
	if err != nil && c.ctx.Err() == nil {
		zeromq.LogUnreachable(c.limitedLog, c.Channel, c.addr, []netip.Addr{c.at.Addr()}, err)
	}
	return conn, server
}

// serveConn completes the handshake on a connection to a server, and reads to the end.
func (c *client) serveConn(conn net.Conn, server *secure.Peer) (ready bool) {
	l := newWireConn(conn, &c.config, &c.keepers)
	l.out.onWritten = func(sum uint64) { c.onWritten(l, sum) }
	if !c.attachConn(l) {
		_ = conn.Close()
		return false
	}
	l.deadline = time.Now().Add(c.config.Handshake)
	err := l.handshake(clientKinds[c.wantsReplies])
	if ready = err == nil; ready {
		c.onHandshake()
		err = c.readReplies(l, server)
	}
	l.out.close()
	_ = conn.Close()
	if c.detachConn(err); !door.IsOrdinaryEnd(err) && c.ctx.Err() == nil {
		c.limitedLog.Warn("a connection to a peer has ended", c.at.String(), "channel", c.Channel.String(), "host", c.addr.Host,
			"port", c.addr.Port, "err", err, "remedy", "check that host and port are those of a peer that serves this channel")
	}
	return ready
}

// reservePending adds to, or with negative numbers takes from, the messages of all Conns that wait. The result is
// false if the bounds do not allow that.
func (t *transport) reservePending(messages, bytes int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if messages > 0 && (t.pendingMessages >= t.config.QueueCommands || bytes > t.config.QueueBytes-t.pendingBytes) {
		return false
	}
	t.pendingMessages += messages
	t.pendingBytes += bytes
	return true
}
