package proxy

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"sync"

	"github.com/kvferry/kvferry/runtime/internal/door"
)

// A gate gives an HTTP server the connections that a door admits.
type gate struct {
	listener net.Listener
	door     *door.Door
	admitted chan net.Conn
	closed   chan struct{}
	once     sync.Once
}

func newGate(l net.Listener, c door.Config) *gate {
	g := &gate{listener: l, door: door.New(c), admitted: make(chan net.Conn), closed: make(chan struct{})}
	g.door.Serve(l, "http", g.serve)
	return g
}

// serve lasts as long as the connection: meanwhile it has a place.
func (g *gate) serve(guest *door.Conn) error {
	c := &client{Conn: guest, gone: make(chan struct{})}
	select {
	case g.admitted <- c:
		<-c.gone
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

// Close implements net.Listener. Connections that were accepted stay.
func (g *gate) Close() error {
	g.once.Do(func() { close(g.closed) })
	return g.door.Shut()
}

// A client is one connection.
type client struct {
	*door.Conn
	gone chan struct{}
	once sync.Once
}

// Close gives its place back.
func (c *client) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { close(c.gone) })
	return err
}

type clientKey struct{}

func withClient(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, clientKey{}, c)
}

// working says that a whole request came, and is answered until the function it returns is called: the connection keeps
// its place meanwhile. One whose request never comes does not.
func working(r *http.Request) (done func()) {
	c, ok := r.Context().Value(clientKey{}).(*client)
	if !ok {
		return func() {}
	}
	c.AddWork(1)
	return func() { c.AddWork(-1) }
}

// known says that a client speaks HTTP: the server's limits of time are its now.
func known(r *http.Request) {
	if c, ok := r.Context().Value(clientKey{}).(*client); ok {
		c.MarkKnown()
	}
}

// addressOf returns the address of the client that a request came from, for shares.
func addressOf(r *http.Request) netip.Prefix {
	if c, ok := r.Context().Value(clientKey{}).(*client); ok {
		return c.Address
	}
	return netip.Prefix{}
}
