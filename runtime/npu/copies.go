//go:build cgo && linux

package npu

import (
	"sync"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/acl"
	"github.com/kvferry/kvferry/runtime/plane"
)

// copies carries out the Copies of a machine, whose Limits bound how many there are. One that the device
// has begun goes on to its end: that is sooner than any way of giving it up.
type copies struct {
	pools *pools
	yard  *yard

	mu      sync.Mutex
	waiting map[effects.Corr]*job // that may be cancelled still
}

func newCopies(p *pools, y *yard) *copies {
	return &copies{pools: p, yard: y, waiting: map[effects.Corr]*job{}}
}

// start begins one Copy, or queues it.
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
	c.yard.add(j)
}

func (c *copies) begun(corr effects.Corr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, corr)
}

func (c *copies) cancel(corr effects.Corr) {
	c.mu.Lock()
	j := c.waiting[corr]
	c.mu.Unlock()
	if j != nil && c.yard.remove(j) {
		c.begun(corr)
		c.done(corr, effects.Cancelled, true)
	}
}

// carryOut copies a batch, and reports whether the track is quiet.
func (c *copies) carryOut(k *track, corr effects.Corr, pairs []effects.CopyPair) bool {
	batch := make([]acl.Copy, len(pairs))
	onHost := true
	for i, pair := range pairs {
		batch[i] = acl.Copy{Dst: c.pools.of(pair.To), Src: c.pools.of(pair.From)}
		onHost = onHost && batch[i].Src.Memory.Place() == acl.OnHost && batch[i].Dst.Memory.Place() == acl.OnHost
	}
	if onHost { // No work for a device: AscendCL refuses it.
		for _, pair := range pairs {
			copy(c.pools.Bytes(pair.To), c.pools.Bytes(pair.From))
		}
		c.done(corr, effects.OK, true)
		return true
	}
	settled, err := k.run(func(t *acl.Thread, s *acl.Stream) error { return s.CopyAll(t, batch) }, c.pools.d.o.StuckAfter,
		c.yard.hurry.Done())
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
	completed, err := k.quieten(c.yard.stop)
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
