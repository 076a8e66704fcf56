package zmq

import (
	"encoding/binary"

	"github.com/kvferry/kvferry/effects"
)

// route is the way back to who asked: a ROUTER, by its position among the servers, and the frame that
// names the client's connection to it.
type route struct {
	server int
	client []byte
}

// requests maps the requests that may still be answered to their routes. When it is full, the oldest
// one gives way: its asker most likely gave up before all that came later.
type requests struct {
	max    int
	routes map[effects.Request]route
	last   effects.Request // given most recently
	oldest effects.Request // nothing below it is in routes
}

func newRequests(limit int) requests {
	return requests{max: limit, routes: make(map[effects.Request]route), oldest: 1}
}

func (r *requests) add(way route) (id effects.Request, evicted bool) {
	if len(r.routes) >= r.max {
		r.evict()
		evicted = true
	}
	r.last++
	r.routes[r.last] = way
	return r.last, evicted
}

// evict drops the oldest request. The cursor passes each number once, so this costs constant time a request.
func (r *requests) evict() {
	for ; ; r.oldest++ {
		if _, found := r.routes[r.oldest]; found {
			delete(r.routes, r.oldest)
			return
		}
	}
}

func (r *requests) take(id effects.Request) (route, bool) {
	way, found := r.routes[id]
	delete(r.routes, id)
	return way, found
}

// clientKey names one connection to one ROUTER by the number that the ROUTER drew for it.
type clientKey struct {
	server int
	number uint32
}

// clients remembers which Conn stands for which client connection. It keeps two generations: at least
// the limit clients seen last are found, and never more than twice as many are kept.
type clients struct {
	limit      int
	young, old map[clientKey]effects.Conn
}

func newClients(limit int) clients {
	return clients{limit: limit, young: make(map[clientKey]effects.Conn)}
}

// conn returns the Conn of the client that frame names, or draws a new one. Only names that the ROUTER
// itself drew (a zero byte, then a number) are one connection for certain. A client that named itself may
// have connected anew under the same name, so each of its messages gets a Conn of its own.
func (c *clients) conn(server int, frame []byte, draw func() effects.Conn) effects.Conn {
	if len(frame) != 5 || frame[0] != 0 {
		return draw()
	}
	key := clientKey{server: server, number: binary.BigEndian.Uint32(frame[1:])}
	if conn, found := c.young[key]; found {
		return conn
	}
	conn, found := c.old[key]
	if !found {
		conn = draw()
	}
	if len(c.young) >= c.limit {
		c.old, c.young = c.young, make(map[clientKey]effects.Conn)
	}
	c.young[key] = conn
	return conn
}
