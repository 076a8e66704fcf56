package proxy

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"sync"

	"github.com/kvferry/kvferry/runtime/internal/door"
)

// A gate is a net.Listener that gives an HTTP server the connections that a door.Door admits. The door accepts
// connections for the server and limits the connections of unknown clients.
type gate struct {
	listener net.Listener
	door     *door.Door
	admitted chan net.Conn // from the door to Accept
	closed   chan struct{} // closed by Close
	once     sync.Once
}

func newGate(l net.Listener, c door.Config) *gate {
	g := &gate{listener: l, door: door.New(c), admitted: make(chan net.Conn), closed: make(chan struct{})}
	g.door.Serve(l, "http", g.serveConn)
	return g
}

// serveConn hands over an admitted connection and returns when the connection is closed, because the door counts the
// connection until then.
func (g *gate) serveConn(conn *door.Conn) error {
	c := &client{Conn: conn, closed: make(chan struct{})}
	select {
	case g.admitted <- c:
		<-c.closed
	case <-g.closed:
	}
	return nil
}

// Accept implements net.Listener.
func (g *gate) Accept() (net.Conn, error) {
	select {
	case c := <-g.admitted:
		return c, nil
	case <-g.closed:
		return nil, net.ErrClosed
	}
}

// Addr implements net.Listener.
func (g *gate) Addr() net.Addr { return g.listener.Addr() }

// Close implements net.Listener. Accepted connections stay open.
func (g *gate) Close() error {
	g.once.Do(func() { close(g.closed) })
	return g.door.StopAccepting()
}

// A client is a connection of a client.
type client struct {
	*door.Conn
	closed chan struct{} // closed by Close, which the HTTP server calls
	once   sync.Once
}

// Close closes the connection and releases the slot at the door.
func (c *client) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { close(c.closed) })
	return err
}

type clientKey struct{}

func withClient(ctx context.Context, c net.Conn) context.Context {
	if secured, ok := c.(*tls.Conn); ok {
		c = secured.NetConn()
	}
	return context.WithValue(ctx, clientKey{}, c)
}

// markWorking records that a complete request has arrived and is being answered until the returned function is called.
// Meanwhile the connection is not evicted. A connection without a complete request may be evicted.
func markWorking(r *http.Request) (done func()) {
	c, ok := r.Context().Value(clientKey{}).(*client)
	if !ok {
		return func() {}
	}
	c.AddWork(1)
	return func() { c.AddWork(-1) }
}

// markKnown tells the door that a client speaks HTTP. Until then the door closes the connection after its handshake
// timeout; from then on only the HTTP server's timeouts apply.
func markKnown(r *http.Request) {
	if c, ok := r.Context().Value(clientKey{}).(*client); ok {
		c.MarkKnown()
	}
}

// addressOf returns the address of the client that sent a request, by which the proxy limits each client's share. It
// returns the zero prefix if the request did not come through a gate.
func addressOf(r *http.Request) netip.Prefix {
	if c, ok := r.Context().Value(clientKey{}).(*client); ok {
		return c.Address
	}
	return netip.Prefix{}
}
