package zmq

import (
	"context"
	"math/rand/v2"
	"net"
	"net/netip"
	"time"

	"github.com/kvferry/kvferry/runtime/control/internal/zeromq"
	"github.com/kvferry/kvferry/runtime/internal/door"
)

// keep serves the connection until it ends, and makes another one while something waits for it, pausing longer and
// longer. A Conn without a connection for which nothing waits costs nothing.
func (c *client) keep(conn net.Conn) {
	pause := c.config.Reconnect
	for conn != nil || c.wanted() {
		if conn == nil {
			conn = c.again()
		}
		if conn != nil && c.serve(conn) {
			pause = c.config.Reconnect
		}
		conn = nil
		if c.waits() {
			c.rest(pause)
			pause = min(2*pause, max(c.config.ReconnectMax, c.config.Reconnect))
		}
	}
}

// waits says whether anything waits for a connection.
func (c *client) waits() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.closed && len(c.waiting) > 0
}

// wanted is waits for the keeper, who ends if nothing does.
func (c *client) wanted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kept = !c.closed && len(c.waiting) > 0
	return c.kept
}

// rest lets up to a pause go by, so that not all come again at once.
func (c *client) rest(pause time.Duration) {
	timer := time.NewTimer(pause/2 + rand.N(pause/2+1))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.over.Done():
	}
}

// again connects to where the Conn was opened to.
func (c *client) again() net.Conn {
	ctx, cancel := context.WithTimeout(c.over, c.config.ConnectTimeout)
	defer cancel()
	conn, err := c.connect(ctx, c.at)
	if err != nil && c.over.Err() == nil {
		zeromq.Absent(c.seldom, c.Channel, c.addr, []netip.Addr{c.at.Addr()}, err)
	}
	return conn
}

// serve has a connection shake hands and reads it to its end.
func (c *client) serve(conn net.Conn) (shaken bool) {
	l := newLine(conn, &c.config, &c.keepers)
	l.out.left = func(sum uint64) { c.left(l, sum) }
	if !c.begins(l) {
		_ = conn.Close()
		return false
	}
	l.until = time.Now().Add(c.config.Handshake)
	err := l.shake(calling[c.asks])
	if shaken = err == nil; shaken {
		c.shaken()
		err = c.listen(l)
	}
	l.out.close()
	_ = conn.Close()
	if c.ended(err); !door.Ordinary(err) && c.over.Err() == nil {
		c.seldom.Warn("a connection to a peer is ended", c.at.String(), "channel", c.Channel.String(), "host", c.addr.Host,
			"port", c.addr.Port, "err", err, "remedy", "look whether host and port are those of a peer that serves this channel")
	}
	return shaken
}

// room takes or gives back what messages that wait take of what all Conns may have.
func (t *transport) room(messages, bytes int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if messages > 0 && (t.waitingMessages >= t.config.QueueCommands || bytes > t.config.QueueBytes-t.waitingBytes) {
		return false
	}
	t.waitingMessages += messages
	t.waitingBytes += bytes
	return true
}
