//go:build cgo && linux

package npu

import (
	"sync"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/acl"
	"github.com/kvferry/kvferry/runtime/plane"
)

// copyRunner carries out the Copy effects of a machine. The machine's Limits bound the number of copies. A copy that
// the device has begun is not canceled, because every copy ends sooner than an abort would.
type copyRunner struct {
	pools     *nodeMemory
	workQueue *workQueue

	mu         sync.Mutex
	cancelable map[effects.Corr]*job // copies that have not begun and may still be canceled
}

func newCopyRunner(p *nodeMemory, queue *workQueue) *copyRunner {
	return &copyRunner{pools: p, workQueue: queue, cancelable: map[effects.Corr]*job{}}
}

// startCopy begins a Copy, or queues the Copy.
func (c *copyRunner) startCopy(e *effects.Copy) {
	corr, pairs := e.Corr, append([]effects.CopyPair(nil), e.Pairs...)
	j := &job{refuse: func() {
		c.markBegun(corr)
		c.postDone(corr, effects.Closed, true)
	}}
	j.run = func(k *workStream) bool {
		c.markBegun(corr)
		return c.runCopy(k, corr, pairs)
	}
	c.mu.Lock()
	c.cancelable[corr] = j
	c.mu.Unlock()
	c.workQueue.addJob(j)
}

// markBegun records that a copy can no longer be canceled.
func (c *copyRunner) markBegun(corr effects.Corr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.cancelable, corr)
}

// cancelCopy ends a copy that has not begun.
func (c *copyRunner) cancelCopy(corr effects.Corr) {
	c.mu.Lock()
	j := c.cancelable[corr]
	c.mu.Unlock()
	if j != nil && c.workQueue.removeJob(j) {
		c.markBegun(corr)
		c.postDone(corr, effects.Cancelled, true)
	}
}

// runCopy copies a batch. The result is true if the stream has no work left and can be used again.
func (c *copyRunner) runCopy(k *workStream, corr effects.Corr, pairs []effects.CopyPair) bool {
	batch := make([]acl.Copy, len(pairs))
	onHost := true
	for i, pair := range pairs {
		batch[i] = acl.Copy{Dst: c.pools.pageRange(pair.To), Src: c.pools.pageRange(pair.From)}
		onHost = onHost && batch[i].Src.Memory.Place() == acl.OnHost && batch[i].Dst.Memory.Place() == acl.OnHost
	}
	if onHost { // AscendCL refuses a copy from host to host
		for _, pair := range pairs {
			copy(c.pools.PageBytes(pair.To), c.pools.PageBytes(pair.From))
		}
		c.postDone(corr, effects.OK, true)
		return true
	}
	settled, err := k.runWork(func(t *acl.Thread, s *acl.Stream) error { return s.CopyAll(t, batch) }, c.pools.device.options.StuckAfter,
		c.workQueue.abandoned.Done())
	if err == nil {
		c.postDone(corr, effects.OK, true)
		return true
	}
	c.pools.log.Error("chunks could not be copied to host memory", "device", c.pools.Name(), "pages", len(pairs), "err",
		err)
	c.postDone(corr, effects.Faulted, settled)
	if settled {
		return true
	}
	completed, err := k.endWork(c.workQueue.stop)
	if err != nil {
		c.pools.log.Error("a stream could not be destroyed, so the pages of the copy stay in use", "device", c.pools.Name(),
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

func (c *copyRunner) postDone(corr effects.Corr, code effects.Code, settled bool) {
	c.pools.sink.Post(&effects.CopyDone{Corr: corr, Code: code, Settled: settled, At: plane.Now()})
}
