//go:build cgo && linux

package npu

import (
	"sync"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/acl"
	"github.com/kvferry/kvferry/runtime/plane"
)

// copies carries out the Copy effects of a machine. The machine's Limits bound the number of copies. A copy that the
// device has begun is not canceled, because every copy ends sooner than an abort would.
type copies struct {
	pools     *pools
	workQueue *workQueue

	mu      sync.Mutex
	waiting map[effects.Corr]*job // copies that have not begun and may still be canceled
}

func newCopies(p *pools, y *workQueue) *copies {
	return &copies{pools: p, workQueue: y, waiting: map[effects.Corr]*job{}}
}

// start begins a Copy, or queues the Copy.
func (c *copies) start(e *effects.Copy) {
	corr, pairs := e.Corr, append([]effects.CopyPair(nil), e.Pairs...)
	j := &job{refuse: func() {
		c.begun(corr)
		c.done(corr, effects.Closed, true)
	}}
	j.run = func(k *track) bool {
		c.begun(corr)
		return c.carryOut(k, corr, pairs)
	}
	c.mu.Lock()
	c.waiting[corr] = j
	c.mu.Unlock()
	c.workQueue.add(j)
}

// begun records that a copy can no longer be canceled.
func (c *copies) begun(corr effects.Corr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, corr)
}

// cancel ends a copy that has not begun.
func (c *copies) cancel(corr effects.Corr) {
	c.mu.Lock()
	j := c.waiting[corr]
	c.mu.Unlock()
	if j != nil && c.workQueue.remove(j) {
		c.begun(corr)
		c.done(corr, effects.Cancelled, true)
	}
}

// carryOut copies a batch. The result is true if the stream has no work left and can be used again.
func (c *copies) carryOut(k *track, corr effects.Corr, pairs []effects.CopyPair) bool {
	batch := make([]acl.Copy, len(pairs))
	onHost := true
	for i, pair := range pairs {
		batch[i] = acl.Copy{Dst: c.pools.rangeOf(pair.To), Src: c.pools.rangeOf(pair.From)}
		onHost = onHost && batch[i].Src.Memory.Place() == acl.OnHost && batch[i].Dst.Memory.Place() == acl.OnHost
	}
	if onHost { // AscendCL refuses a copy from host to host
		for _, pair := range pairs {
			copy(c.pools.PageBytes(pair.To), c.pools.PageBytes(pair.From))
		}
		c.done(corr, effects.OK, true)
		return true
	}
	settled, err := k.run(func(t *acl.Thread, s *acl.Stream) error { return s.CopyAll(t, batch) }, c.pools.d.o.StuckAfter,
		c.workQueue.hurry.Done())
	if err == nil {
		c.done(corr, effects.OK, true)
		return true
	}
	c.pools.log.Error("chunks could not be copied to host memory", "device", c.pools.Name(), "pages", len(pairs), "err",
		err)
	c.done(corr, effects.Faulted, settled)
	if settled {
		return true
	}
	completed, err := k.quieten(c.workQueue.stop)
	if err != nil {
		c.pools.log.Error("a stream could not be ended, so the pages of its copy stay in use", "device", c.pools.Name(),
			"pages", len(pairs), "err", err)
		return false
	}
	code := effects.Faulted
	if completed {
		code = effects.OK
	}
	c.pools.sink.Post(&effects.Settled{Corr: corr, Code: code})
	return true
}

func (c *copies) done(corr effects.Corr, code effects.Code, settled bool) {
	c.pools.sink.Post(&effects.CopyDone{Corr: corr, Code: code, Settled: settled, At: plane.Now()})
}
