//go:build cgo && linux

package npu

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/kvferry/kvferry/runtime/acl"
)

// A workQueue runs jobs in order on a few streams, at most one job on each stream. A goroutine of the queue ends when
// no job waits. The queue has no bound, because the callers bound their jobs.
type workQueue struct {
	context *acl.Context
	hurry   context.Context // canceled to abandon the running jobs
	rush    context.CancelFunc
	stop    chan struct{} // closed when streams that cannot be destroyed are to be given up

	mu      sync.Mutex
	waiting []*job
	free    []*track
	lost    []*track      // streams with work that could not be ended
	running int           // number of running jobs, each on a stream
	closed  bool          // no further job begins
	idle    chan struct{} // made by close; closed when no job runs
}

// A job is a piece of work. Either run or refuse is called, once.
type job struct {
	// run does the job. The result is true if the stream has no work left and can be used again.
	run func(*track) bool
	// refuse tells the caller that the job will not be done.
	refuse func()
}

func newWorkQueue(c *acl.Context, tracks int) *workQueue {
	y := &workQueue{context: c, stop: make(chan struct{})}
	y.hurry, y.rush = context.WithCancel(context.Background())
	for range tracks {
		y.free = append(y.free, &track{context: c})
	}
	return y
}

// open makes all streams now, to find out whether the device has enough.
func (y *workQueue) open(t *acl.Thread) error {
	for _, k := range y.free {
		if err := k.open(t); err != nil {
			return err
		}
	}
	return nil
}

// add runs a job when a stream is free. The call does not block.
func (y *workQueue) add(j *job) {
	y.mu.Lock()
	if y.closed {
		y.mu.Unlock()
		j.refuse()
		return
	}
	defer y.mu.Unlock()
	y.waiting = append(y.waiting, j)
	if n := len(y.free); n > 0 {
		k := y.free[n-1]
		y.free = y.free[:n-1]
		y.running++
		go y.work(k)
	}
}

// remove takes a job out of the queue. The result is false if the job has begun.
func (y *workQueue) remove(j *job) bool {
	y.mu.Lock()
	defer y.mu.Unlock()
	i := slices.Index(y.waiting, j)
	if i < 0 {
		return false
	}
	y.waiting = slices.Delete(y.waiting, i, i+1)
	return true
}

// work runs jobs on a stream until no job waits, or until a job leaves work in the stream.
func (y *workQueue) work(k *track) {
	for quiet := true; ; {
		y.mu.Lock()
		if !quiet {
			y.lost = append(y.lost, k)
		} else if len(y.waiting) == 0 {
			y.free = append(y.free, k)
		} else {
			next := y.waiting[0]
			y.waiting = slices.Delete(y.waiting, 0, 1)
			y.mu.Unlock()
			quiet = next.run(k)
			continue
		}
		y.running--
		if y.running == 0 && y.idle != nil {
			close(y.idle)
			y.idle = nil
		}
		y.mu.Unlock()
		return
	}
}

// close refuses the queued jobs, and waits for the running jobs until ctx ends. Then close abandons the running jobs,
// waits for their streams for abortTimeout, and closes all streams. After an error some work may go on, and close may
// be called again.
func (y *workQueue) close(ctx context.Context, patience time.Duration) error {
	y.mu.Lock()
	waiting, first := y.waiting, !y.closed
	y.waiting, y.closed = nil, true
	idle := make(chan struct{})
	if y.running == 0 {
		close(idle)
	} else {
		y.idle = idle
	}
	y.mu.Unlock()
	for _, j := range waiting {
		j.refuse()
	}
	if first {
		y.wait(ctx, idle, patience)
	}
	<-idle
	return y.clear()
}

// wait waits for the running jobs: until ctx ends, then until the abandoned jobs have had time to end. Then stop is
// closed, which ends the remaining jobs.
func (y *workQueue) wait(ctx context.Context, idle <-chan struct{}, patience time.Duration) {
	select {
	case <-idle:
		return
	case <-ctx.Done():
	}
	y.rush()
	last := time.NewTimer(grace + margin + patience)
	defer last.Stop()
	select {
	case <-idle:
	case <-last.C:
		close(y.stop)
	}
}

// clear closes all streams. No job must be running.
func (y *workQueue) clear() error {
	y.mu.Lock()
	defer y.mu.Unlock()
	var errs []error
	lost := y.lost
	y.lost = nil
	for _, k := range lost {
		if _, err := k.quieten(y.stop); err != nil {
			y.lost = append(y.lost, k)
			errs = append(errs, fmt.Errorf("work may go on that could not be ended: %w", err))
		}
	}
	errs = append(errs, y.context.Do(func(t *acl.Thread) error {
		var errs []error
		for _, k := range y.free {
			errs = append(errs, k.close(t))
		}
		return errors.Join(errs...)
	}))
	return errors.Join(errs...)
}
