package shm

import (
	"sync"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/internal/link"
)

// A receiver stores one peer's pushes.
type receiver struct {
	in      *link.Incoming
	mapping *plane.Mapping
	permits *plane.PeerPermits
	copiers *copiers
	movers  movers
}

// movers are how pages are copied.
type movers struct {
	small, large plane.Mover
	// largeBytes is the size of a push from which on large copies its pages.
	largeBytes uint64
}

func (r *receiver) Receive(p *link.Push) {
	r.copiers.add(&job{push: p, mapping: r.mapping, permit: r.permits.Permit(p.Permit()), move: r.movers.of(p.Pairs())})
}

// Permits implements link.Receiver.
func (r *receiver) Permits(slot uint32) bool { return r.permits.Has(slot) }

// of chooses how the pages of a push are copied.
func (m movers) of(pairs []effects.Pair) plane.Mover {
	var bytes uint64
	for _, pair := range pairs {
		bytes += uint64(pair.Local.Length)
	}
	if bytes < m.largeBytes {
		return m.small
	}
	return m.large
}

// Close unmaps the peer. Jobs that are still queued find that their push has ended.
func (r *receiver) Close() {
	r.in.Still()
	_, _ = r.mapping.Unmap(), r.permits.Unmap() // They were mapped, and are unmapped once.
}

// A job is one push, copied from its first pair on.
type job struct {
	push    *link.Push
	mapping *plane.Mapping
	permit  plane.Permit
	move    plane.Mover
	next    int
}

// copiers are the threads that copy. They take one page of each push in turn, so that a large push
// delays no other beyond its share.
type copiers struct {
	wg    sync.WaitGroup
	mu    sync.Mutex
	ready sync.Cond
	// jobs have pages left to begin. The planes' bounds on links and transfers bound them.
	jobs   []*job
	closed bool
}

func startCopiers(n int) *copiers {
	c := &copiers{}
	c.ready.L = &c.mu
	for range n {
		c.wg.Go(c.run)
	}
	return c
}

func (c *copiers) add(j *job) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.jobs = append(c.jobs, j)
	c.ready.Broadcast()
}

// take returns the next page to copy.
func (c *copiers) take() (j *job, pair int, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.jobs) == 0 && !c.closed {
		c.ready.Wait()
	}
	if c.closed {
		return nil, 0, false
	}
	j = c.jobs[0]
	c.jobs = append(c.jobs[:0], c.jobs[1:]...)
	pair = j.next
	if j.next++; j.next < len(j.push.Pairs()) {
		c.jobs = append(c.jobs, j)
	}
	return j, pair, true
}

func (c *copiers) run() {
	for {
		j, pair, ok := c.take()
		if !ok {
			return
		}
		if j.push.Begin(pair) {
			j.push.End(pair, j.copy(pair))
		}
	}
}

// copy stores one page. The link checked that the pair lies within both pools.
func (j *job) copy(i int) effects.Code {
	pair, claim := j.push.Pairs()[i], j.push.Claim()
	dst := claim.Hold(i)
	if dst == nil {
		return effects.Withdrawn
	}
	defer claim.Unhold(i)
	// If not OK the peer took its page back, and what is in ours is garbage.
	return j.mapping.Copy(dst, pair.Local.Index, pair.Local.Generation, j.permit, j.move)
}

func (c *copiers) close() {
	c.mu.Lock()
	c.closed, c.jobs = true, nil
	c.ready.Broadcast()
	c.mu.Unlock()
	c.wg.Wait()
}
