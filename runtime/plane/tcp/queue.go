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
	left  uint64 // bytes of the pages from next on
}

// A run is pages of one batch that follow each other, to be written with one call.
type run struct{ first, pages int }

const (
	// runBytes is the most that a run of several pages has. A cancel waits for the run that is being written.
	runBytes = 512 << 10
	// runBytesLeast is the least that is left for another stream.
	runBytesLeast = 64 << 10
	// runPages is the most pages of a run: with their heads they fit into one system call.
	runPages = 256
)

func newQueue[B batch]() *queue[B] {
	q := &queue[B]{}
	q.ready.L = &q.mu
	return q
}

func (q *queue[B]) add(b B) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed {
		j := &job[B]{batch: b}
		for _, pair := range b.Pairs() {
			j.left += uint64(pair.Local.Length)
		}
		q.jobs = append(q.jobs, j)
		if len(b.Pairs()) == 1 {
			q.ready.Signal() // For one stream.
		} else {
			q.ready.Broadcast()
		}
	}
}

// take waits for the next pages of the oldest batch; not ok when the queue is closed. It gives no more than half of what
// is left, so that several streams share a batch, and one page at least.
func (q *queue[B]) take() (b B, r run, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.jobs) == 0 && !q.closed {
		q.ready.Wait()
	}
	if q.closed {
		return b, r, false
	}
	j := q.jobs[0]
	r = j.run()
	if j.next == len(j.batch.Pairs()) {
		q.jobs = append(q.jobs[:0], q.jobs[1:]...)
	}
	return j.batch, r, true
}

func (j *job[B]) run() run {
	pairs, most := j.batch.Pairs()[j.next:], min(max(j.left/2, runBytesLeast), runBytes)
	r, bytes := run{first: j.next}, uint64(0)
	for r.pages < min(len(pairs), runPages) {
		length := uint64(pairs[r.pages].Local.Length)
		if r.pages > 0 && bytes+length > most {
			break
		}
		bytes += length
		r.pages++
	}
	j.next, j.left = j.next+r.pages, j.left-bytes
	return r
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
