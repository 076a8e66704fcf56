package tcp

import (
	"slices"
	"sync"

	"github.com/kvferry/kvferry/effects"
)

// A batch is a set of pages to write: a push of ours, or a read of a peer.
type batch interface {
	comparable
	Pairs() []effects.Pair
}

// A queue holds the batches with pages left to write, oldest first. The plane's bounds limit their number.
type queue[B batch] struct {
	mu     sync.Mutex
	ready  sync.Cond
	jobs   []*job[B]
	closed bool
}

type job[B batch] struct {
	batch     B
	next      int
	bytesLeft uint64 // bytes of the pages from next on
}

// A pageRun is a range of consecutive pages of a batch, to be written with a single call.
type pageRun struct{ first, pages int }

const (
	// maxRunBytes is the size of a run of several pages at most. A cancel waits for the run that is being written.
	maxRunBytes = 512 << 10
	// minRunBytes is the size below which a run is not split further among streams.
	minRunBytes = 64 << 10
	// maxRunPages is the number of pages of a run that fit into a single system call together with the headers.
	maxRunPages = 256
)

func newQueue[B batch]() *queue[B] {
	q := &queue[B]{}
	q.ready.L = &q.mu
	return q
}

func (q *queue[B]) addBatch(b B) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed {
		j := &job[B]{batch: b}
		for _, pair := range b.Pairs() {
			j.bytesLeft += uint64(pair.Local.Length)
		}
		q.jobs = append(q.jobs, j)
		if len(b.Pairs()) == 1 {
			q.ready.Signal() // for one stream
		} else {
			q.ready.Broadcast()
		}
	}
}

// takeRun waits for the next run of the oldest batch, and returns false when the queue is closed. A run has at least
// one page, and at most half of the bytes that are left, so that several streams share a batch.
func (q *queue[B]) takeRun() (b B, r pageRun, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.jobs) == 0 && !q.closed {
		q.ready.Wait()
	}
	if q.closed {
		return b, r, false
	}
	j := q.jobs[0]
	r = j.nextRun()
	if j.next == len(j.batch.Pairs()) {
		q.jobs = append(q.jobs[:0], q.jobs[1:]...)
	}
	return j.batch, r, true
}

func (j *job[B]) nextRun() pageRun {
	pairs, most := j.batch.Pairs()[j.next:], min(max(j.bytesLeft/2, minRunBytes), maxRunBytes)
	r, bytes := pageRun{first: j.next}, uint64(0)
	for r.pages < min(len(pairs), maxRunPages) {
		length := uint64(pairs[r.pages].Local.Length)
		if r.pages > 0 && bytes+length > most {
			break
		}
		bytes += length
		r.pages++
	}
	j.next, j.bytesLeft = j.next+r.pages, j.bytesLeft-bytes
	return r
}

// removeBatch removes a batch of which no page is wanted any more, if the batch is in the queue.
func (q *queue[B]) removeBatch(b B) {
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
