package runtime

import (
	"context"
	"sync"
)

// A taskRunner runs tasks, oldest first, on at most size goroutines, which end when no task waits. The queue has no
// separate bound, because the machine's Limits bound the number of effects.
type taskRunner struct {
	workersMax int

	mu      sync.Mutex
	queue   []func()
	workers int
	done    chan struct{} // made by wait; closed when the last goroutine has ended
}

// runTask begins a task, or queues the task, and never blocks.
func (c *taskRunner) runTask(task func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue = append(c.queue, task)
	if c.workers < c.workersMax {
		c.workers++
		go c.runQueued()
	}
}

// runQueued runs queued tasks until none is left.
func (c *taskRunner) runQueued() {
	for {
		c.mu.Lock()
		if len(c.queue) == 0 {
			c.workers--
			if c.workers == 0 && c.done != nil {
				close(c.done)
			}
			c.mu.Unlock()
			return
		}
		next := c.queue[0]
		c.queue = append(c.queue[:0], c.queue[1:]...)
		c.mu.Unlock()
		next()
	}
}

// awaitIdle waits until no task runs or ctx ends, and returns the number of goroutines that still work. After the first
// call, no task may be started; the call may be repeated.
func (c *taskRunner) awaitIdle(ctx context.Context) (left int) {
	c.mu.Lock()
	if c.workers == 0 {
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
	return c.workers
}
