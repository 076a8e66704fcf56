//go:build cgo && linux

package libzmq

import (
	"encoding/binary"
	"net/netip"
	"sync"

	"github.com/kvferry/kvferry/effects"
)

// clientKey names a connection to a ROUTER by the number that the ROUTER drew for the connection.
type clientKey struct {
	server int
	number uint32
}

// clients records which Conn stands for which client connection, and the client's address. The table keeps two
// generations: at least the limit clients seen last are found, and never more than twice as many are kept.
type clients struct {
	limit int

	// held for a moment only, so that a machine may call Caller while the reactor waits for that machine
	mu         sync.Mutex
	young, old generation
}

type generation struct {
	conns   map[clientKey]effects.Conn
	callers map[effects.Conn]netip.Addr
}

func newGeneration() generation {
	return generation{conns: make(map[clientKey]effects.Conn), callers: make(map[effects.Conn]netip.Addr)}
}

func newClients(limit int) *clients {
	return &clients{limit: limit, young: newGeneration()}
}

// connFor returns the Conn of the client that frame names, or draws a new Conn. Only a name that the ROUTER itself drew
// (a zero byte, then a number) certainly means a single connection. A client with a self-chosen name may have
// connected anew under the same name, so each message of such a client gets a new Conn.
func (c *clients) connFor(server int, frame []byte, from netip.Addr, draw func() effects.Conn) effects.Conn {
	if len(frame) != 5 || frame[0] != 0 {
		return draw()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	key := clientKey{server: server, number: binary.BigEndian.Uint32(frame[1:])}
	if conn, found := c.young.conns[key]; found {
		return conn
	}
	conn, found := c.old.conns[key]
	if !found {
		conn = draw()
	}
	if len(c.young.conns) >= c.limit {
		c.old, c.young = c.young, newGeneration()
	}
	c.young.conns[key], c.young.callers[conn] = conn, from
	return conn
}

// callerAddr returns the address of the client behind a Conn, or the zero Addr.
func (c *clients) callerAddr(conn effects.Conn) netip.Addr {
	c.mu.Lock()
	defer c.mu.Unlock()
	if from, found := c.young.callers[conn]; found {
		return from
	}
	return c.old.callers[conn]
}
