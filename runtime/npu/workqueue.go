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
	context   *acl.Context
	abandoned context.Context // canceled to abandon the running jobs
	abandon   context.CancelFunc
	stop      chan struct{} // closed when streams that cannot be destroyed are to be given up

	mu           sync.Mutex
	queued       []*job
	idleStreams  []*workStream
	stuckStreams []*workStream // streams with work that could not be ended
	running      int           // number of running jobs, each on a stream
	closed       bool          // no further job begins
	allDone      chan struct{} // made by close; closed when no job runs
}

// A job is a piece of work. Either run or refuse is called, once.
type job struct {
	// run does the job. The result is true if the stream has no work left and can be used again.
	run func(*workStream) bool
	// refuse tells the caller that the job will not be done.
	refuse func()
}

func newWorkQueue(c *acl.Context, streams int) *workQueue {
	y := &workQueue{context: c, stop: make(chan struct{})}
	y.abandoned, y.abandon = context.WithCancel(context.Background())
	for range streams {
		y.idleStreams = append(y.idleStreams, &workStream{context: c})
	}
	return y
}

// openStreams makes all streams now, to find out whether the device has enough.
func (y *workQueue) openStreams(t *acl.Thread) error {
	for _, k := range y.idleStreams {
		if err := k.openStream(t); err != nil {
			return err
		}
	}
	return nil
}

// addJob runs a job when a stream is free. The call does not block.
func (y *workQueue) addJob(j *job) {
	y.mu.Lock()
	if y.closed {
		y.mu.Unlock()
		j.refuse()
		return
	}
	defer y.mu.Unlock()
	y.queued = append(y.queued, j)
	if n := len(y.idleStreams); n > 0 {
		k := y.idleStreams[n-1]
		y.idleStreams = y.idleStreams[:n-1]
		y.running++
		go y.runJobs(k)
	}
}

// removeJob takes a job out of the queue. The result is false if the job has begun.
func (y *workQueue) removeJob(j *job) bool {
	y.mu.Lock()
	defer y.mu.Unlock()
	i := slices.Index(y.queued, j)
	if i < 0 {
		return false
	}
	y.queued = slices.Delete(y.queued, i, i+1)
	return true
}

// runJobs runs jobs on a stream until no job waits, or until a job leaves work in the stream.
func (y *workQueue) runJobs(k *workStream) {
	for ended := true; ; {
		y.mu.Lock()
		if !ended {
			y.stuckStreams = append(y.stuckStreams, k)
		} else if len(y.queued) == 0 {
			y.idleStreams = append(y.idleStreams, k)
		} else {
			next := y.queued[0]
			y.queued = slices.Delete(y.queued, 0, 1)
			y.mu.Unlock()
			ended = next.run(k)
			continue
		}
		y.running--
		if y.running == 0 && y.allDone != nil {
			close(y.allDone)
			y.allDone = nil
		}
		y.mu.Unlock()
		return
	}
}

// closeQueue refuses the queued jobs, and waits for the running jobs until ctx ends. Then close abandons the running
// jobs, waits for their streams for abortTimeout, and closes all streams. After an error some work may go on, and close
// may be called again.
func (y *workQueue) closeQueue(ctx context.Context, abortTimeout time.Duration) error {
	y.mu.Lock()
	queued, first := y.queued, !y.closed
	y.queued, y.closed = nil, true
	allDone := make(chan struct{})
	if y.running == 0 {
		close(allDone)
	} else {
		y.allDone = allDone
	}
	y.mu.Unlock()
	for _, j := range queued {
		j.refuse()
	}
	if first {
		y.waitForRunning(ctx, allDone, abortTimeout)
	}
	<-allDone
	return y.closeStreams()
}

// waitForRunning waits for the running jobs: until ctx ends, then until the abandoned jobs have had time to end. Then
// stop is closed, which ends the remaining jobs.
func (y *workQueue) waitForRunning(ctx context.Context, allDone <-chan struct{}, abortTimeout time.Duration) {
	select {
	case <-allDone:
		return
	case <-ctx.Done():
	}
	y.abandon()
	last := time.NewTimer(abandonGrace + abortMargin + abortTimeout)
	defer last.Stop()
	select {
	case <-allDone:
	case <-last.C:
		close(y.stop)
	}
}

// closeStreams closes all streams. No job must be running.
func (y *workQueue) closeStreams() error {
	y.mu.Lock()
	defer y.mu.Unlock()
	var errs []error
	stuck := y.stuckStreams
	y.stuckStreams = nil
	for _, k := range stuck {
		if _, err := k.endWork(y.stop); err != nil {
			y.stuckStreams = append(y.stuckStreams, k)
			errs = append(errs, fmt.Errorf("a stream could not be destroyed, and its work may go on: %w", err))
		}
	}
	errs = append(errs, y.context.Do(func(t *acl.Thread) error {
		var errs []error
		for _, k := range y.idleStreams {
			errs = append(errs, k.closeStream(t))
		}
		return errors.Join(errs...)
	}))
	return errors.Join(errs...)
}
