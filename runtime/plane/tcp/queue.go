package tcp

import (
	"slices"
	"sync"

	"github.com/kvferry/kvferry/effects"
)

// A batch is pages to write: a transfer that we push, or a read of a peer.
type batch interface {
	comparable
	Pairs() []effects.Pair
}

// A queue holds batches with pages left to write, oldest first; the plane bounds their number.
type queue[B batch] struct {
	mu     sync.Mutex
	ready  sync.Cond
	jobs   []*job[B]
	closed bool
}

type job[B batch] struct {
	batch B
	next  int
}

func newQueue[B batch]() *queue[B] {
	q := &queue[B]{}
	q.ready.L = &q.mu
	return q
}

func (q *queue[B]) add(b B) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed {
		q.jobs = append(q.jobs, &job[B]{batch: b})
		q.ready.Broadcast()
	}
}

// take waits for the next page of the oldest batch; not ok when the queue is closed.
func (q *queue[B]) take() (b B, pair int, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.jobs) == 0 && !q.closed {
		q.ready.Wait()
	}
	if q.closed {
		return b, 0, false
	}
	j := q.jobs[0]
	pair = j.next
	if j.next++; j.next == len(j.batch.Pairs()) {
		q.jobs = append(q.jobs[:0], q.jobs[1:]...)
	}
	return j.batch, pair, true
}

// remove takes out a batch of which no page is wanted any more, if it is there.
func (q *queue[B]) remove(b B) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.jobs = slices.DeleteFunc(q.jobs, func(j *job[B]) bool { return j.batch == b })
}

func (q *queue[B]) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed, q.jobs = true, nil
	q.ready.Broadcast()
}
