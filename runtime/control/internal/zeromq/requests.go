package zeromq

import (
	"sync"

	"github.com/kvferry/kvferry/effects"
)

// Requests maps the requests that may still be answered to the way back to their askers. When it is full, the oldest one
// gives way: its asker most likely gave up before all that came later. It is safe for concurrent use.
type Requests[Way any] struct {
	mu     sync.Mutex
	max    int
	ways   map[effects.Request]Way
	last   effects.Request // given most recently
	oldest effects.Request // nothing below it is in ways
}

// NewRequests returns an empty table of at most limit requests.
func NewRequests[Way any](limit int) *Requests[Way] {
	return &Requests[Way]{max: limit, ways: make(map[effects.Request]Way), oldest: 1}
}

// Add returns the name of a new request, and the way of the request that was forgotten for it, if there was one.
func (r *Requests[Way]) Add(way Way) (id effects.Request, forgotten Way, evicted bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.ways) >= r.max {
		forgotten, evicted = r.evict(), true
	}
	r.last++
	r.ways[r.last] = way
	return r.last, forgotten, evicted
}

// evict drops the oldest request. The cursor passes each number once, so this costs constant time a request.
func (r *Requests[Way]) evict() Way {
	for ; ; r.oldest++ {
		if way, found := r.ways[r.oldest]; found {
			delete(r.ways, r.oldest)
			return way
		}
	}
}

// Take removes a request, which then cannot be answered again, and returns the way to its asker.
func (r *Requests[Way]) Take(id effects.Request) (Way, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	way, found := r.ways[id]
	delete(r.ways, id)
	return way, found
}
