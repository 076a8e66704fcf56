package runtime

import (
	"context"
	"sync"
)

// A crew runs tasks, oldest first, on at most size goroutines, which end when no task waits. The queue has no separate
// bound, because the machine's Limits bound the number of effects.
type crew struct {
	size int

	mu      sync.Mutex
	waiting []func()
	working int
	done    chan struct{} // made by wait; closed when the last goroutine has ended
}

// run begins a task, or queues the task, and never blocks.
func (c *crew) run(task func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = append(c.waiting, task)
	if c.working < c.size {
		c.working++
		go c.work()
	}
}

// work runs queued tasks until none is left.
func (c *crew) work() {
	for {
		c.mu.Lock()
		if len(c.waiting) == 0 {
			c.working--
			if c.working == 0 && c.done != nil {
				close(c.done)
			}
			c.mu.Unlock()
			return
		}
		next := c.waiting[0]
		c.waiting = append(c.waiting[:0], c.waiting[1:]...)
		c.mu.Unlock()
		next()
	}
}

// wait waits until no task runs or ctx ends, and returns the number of goroutines that still work. After the first
// call, no task may be started; the call may be repeated.
func (c *crew) wait(ctx context.Context) (left int) {
	c.mu.Lock()
	if c.working == 0 {
		c.mu.Unlock()
		return 0
	}
	if c.done == nil {
		c.done = make(chan struct{})
	}
	c.mu.Unlock()
	select {
	case <-c.done:
		return 0
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.working
}
