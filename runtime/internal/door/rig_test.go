package door

import (
	"net"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A conn is a connection of an address that sends nothing.
type conn struct {
	net.Conn // nil
	from     net.TCPAddr
	once     sync.Once
	closed   chan struct{}
}

func connFrom(ip string) *conn {
	return &conn{from: net.TCPAddr{IP: net.ParseIP(ip), Port: 1}, closed: make(chan struct{})}
}

func (c *conn) RemoteAddr() net.Addr { return &c.from }

func (c *conn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return nil
}

func (c *conn) isClosed() bool {
	select {
	case <-c.closed:
		return true
	default:
		return false
	}
}

// A listener accepts the connections that the test gives it.
type listener struct {
	net.Listener // nil
	comes        chan func() (net.Conn, error)
	once         sync.Once
	closed       chan struct{}
}

func newListener() *listener {
	return &listener{comes: make(chan func() (net.Conn, error)), closed: make(chan struct{})}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case f := <-l.comes:
		return f()
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}
