package shm

import (
	"slices"
	"sync"

	"github.com/kvferry/kvferry/effects"
)

// A batch is a set of pages to copy out of a peer's memory into ours: a push of that peer, or a read of ours.
type batch interface {
	Pairs() []effects.Pair
	// copyPage copies the page of pair i, and returns false if no further page of the batch is wanted.
	copyPage(i int) (wanted bool)
}

// A job is a batch in progress. Pairs before next have been begun.
type job struct {
	batch
	next int
}

// copiers are the copy threads. Each thread takes a page of each batch in turn, so that a large batch delays a small
// batch as little as possible.
type copiers struct {
	wg      sync.WaitGroup
	mu      sync.Mutex
	changed sync.Cond
	// jobs are the batches with pages left to begin. Their number is bounded by the plane's bounds on links and
	// transfers.
	jobs   []*job
	closed bool
}

func startCopiers(n int) *copiers {
	c := &copiers{}
	c.changed.L = &c.mu
	for range n {
		c.wg.Go(c.copyPages)
	}
	return c
}

func (c *copiers) addBatch(b batch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.jobs = append(c.jobs, &job{batch: b})
	if len(b.Pairs()) == 1 {
		c.changed.Signal()
	} else {
		c.changed.Broadcast()
	}
}

// takePage waits for the next page to copy, and returns false when the copiers are closed.
func (c *copiers) takePage() (b batch, pair int, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.jobs) == 0 && !c.closed {
		c.changed.Wait()
	}
	if c.closed {
		return nil, 0, false
	}
	j := c.jobs[0]
	c.jobs = append(c.jobs[:0], c.jobs[1:]...)
	pair = j.next
	if j.next++; j.next < len(j.Pairs()) {
		c.jobs = append(c.jobs, j)
	}
	return j.batch, pair, true
}

// dropBatch removes a batch, so that batches that end early do not pile up.
func (c *copiers) dropBatch(b batch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.jobs = slices.DeleteFunc(c.jobs, func(j *job) bool { return j.batch == b })
}

func (c *copiers) copyPages() {
	for {
		b, pair, ok := c.takePage()
		if !ok {
			return
		}
		if !b.copyPage(pair) {
			c.dropBatch(b)
		}
	}
}

func (c *copiers) close() {
	c.mu.Lock()
	c.closed, c.jobs = true, nil
	c.changed.Broadcast()
	c.mu.Unlock()
	c.wg.Wait()
}
