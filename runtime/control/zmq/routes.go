package zmq

import (
	"sync"

	"github.com/kvferry/kvferry/effects"
)

// route is the way back to who asked: a connection, and what goes in front of the answer.
type route struct {
	talk     *talk
	envelope [][]byte
}

// requests maps the requests that may still be answered to their routes. When it is full, the oldest one gives way: its
// asker most likely gave up before all that came later. One connection has at most unansweredMax of them.
type requests struct {
	mu     sync.Mutex
	max    int
	routes map[effects.Request]route
	last   effects.Request // given most recently
	oldest effects.Request // nothing below it is in routes
}

func newRequests(limit int) *requests {
	return &requests{max: limit, routes: make(map[effects.Request]route), oldest: 1}
}

// add returns the request's name, and the route that was forgotten for it, if any.
func (r *requests) add(way route) (id effects.Request, forgotten route) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.routes) >= r.max {
		forgotten = r.evict()
	}
	r.last++
	r.routes[r.last] = way
	return r.last, forgotten
}

// evict drops the oldest request. The cursor passes each number once, so this costs constant time a request.
func (r *requests) evict() route {
	for ; ; r.oldest++ {
		if way, found := r.routes[r.oldest]; found {
			delete(r.routes, r.oldest)
			return way
		}
	}
}

func (r *requests) take(id effects.Request) (route, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	way, found := r.routes[id]
	delete(r.routes, id)
	return way, found
}
