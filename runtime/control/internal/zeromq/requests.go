package zeromq

import (
	"sync"

	"github.com/kvferry/kvferry/effects"
)

// Requests maps the requests that may still be answered to the route back to the peer that sent each. When the table
// is full, the oldest request is evicted, because the peer most likely gave up before all peers with later requests.
// Requests is safe for concurrent use.
//
// Invariant: len(routes) <= max, and no key of routes is below oldest.
type Requests[Route any] struct {
	mu     sync.Mutex
	max    int
	routes map[effects.Request]Route
	last   effects.Request // the id given most recently
	oldest effects.Request // no smaller id is in routes
}

// NewRequests returns an empty table of at most limit requests.
func NewRequests[Route any](limit int) *Requests[Route] {
	return &Requests[Route]{max: limit, routes: make(map[effects.Request]Route), oldest: 1}
}

// Add inserts a request and returns the id. If the table was full, evicted is true and old is the route of the request
// that was dropped.
func (r *Requests[Route]) Add(route Route) (id effects.Request, old Route, evicted bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.routes) >= r.max {
		old, evicted = r.evictOldest(), true
	}
	r.last++
	r.routes[r.last] = route
	return r.last, old, evicted
}

// evictOldest drops the oldest request. The cursor passes each id once, so eviction costs constant time per request.
func (r *Requests[Route]) evictOldest() Route {
	for ; ; r.oldest++ {
		if route, found := r.routes[r.oldest]; found {
			delete(r.routes, r.oldest)
			return route
		}
	}
}

// Take removes a request, so that a second answer is impossible, and returns the route to the peer.
func (r *Requests[Route]) Take(id effects.Request) (Route, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	route, found := r.routes[id]
	delete(r.routes, id)
	return route, found
}
