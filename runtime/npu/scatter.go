//go:build cgo && linux

package npu

import (
	"context"
	"errors"
	"fmt"

	"github.com/kvferry/kvferry/runtime/acl"
	"github.com/kvferry/kvferry/runtime/device"
)

// Enqueue is an engine's device code. Enqueue puts into the stream the copies of chunks to the engine's own memory, and
// returns without a wait. Chunk i belongs to the fetch's key number first+i. The chunk is on the device or in pinned
// memory, and must only be read. Enqueue runs on the thread of the device's context, so all further work of that
// context waits; Enqueue must not call Do of that context. An error fails the fetch.
type Enqueue func(t *acl.Thread, s *acl.Stream, first int, chunks []acl.Range) error

// ScatterFunc returns the function for runtime.Fetch.ScatterDevice that runs an engine's device code on this device. Calls of
// several fetches run in parallel, each on a stream that first waits for the reads that filled the chunks. So a batch
// is scattered while the device reads the next batch.
//
// A call returns when the device has read the chunks. A call that failed, or had its context canceled, returns when no
// enqueued work touches the chunks or the engine's memory any more (M4).
func (d *Device) ScatterFunc(enqueue Enqueue) func(ctx context.Context, first int, chunks []device.Page) error {
	return func(ctx context.Context, first int, chunks []device.Page) error {
		p := d.openMemory()
		if p == nil {
			return fmt.Errorf("%w: %s", ErrClosed, d.Name())
		}
		ranges := make([]acl.Range, len(chunks))
		for i, chunk := range chunks {
			var err error
			if ranges[i], err = p.rangeAt(chunk); err != nil {
				return err
			}
		}
		s := &scatterCall{pools: p, ctx: ctx, enqueue: enqueue, first: first, chunks: ranges, pages: chunks,
			done: make(chan error, 1)}
		j := &job{run: s.runScatter, refuse: func() { s.done <- fmt.Errorf("%w: %s", ErrClosed, d.Name()) }}
		p.scatter.addJob(j)
		select {
		case err := <-s.done:
			return err
		case <-ctx.Done():
		}
		if p.scatter.removeJob(j) {
			return ctx.Err()
		}
		return <-s.done
	}
}

// A scatterCall is a call of the function that Device.ScatterFunc returns.
type scatterCall struct {
	pools   *nodeMemory
	ctx     context.Context
	enqueue Enqueue
	first   int
	chunks  []acl.Range
	pages   []device.Page
	done    chan error // buffered, for one value
}

// runScatter carries out the scatter. The result is true if the stream has no work left and can be used again. If not,
// the call never returns, because the chunks are in use.
func (s *scatterCall) runScatter(k *workStream) bool {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	defer context.AfterFunc(s.pools.scatter.abandoned, cancel)()
	var waitedFor []*readMark
	settled, err := k.runWork(func(t *acl.Thread, stream *acl.Stream) (err error) {
		if waitedFor, err = s.pools.marks.waitForReads(t, stream, s.pages); err != nil {
			return err
		}
		return s.enqueue(t, stream, s.first, s.chunks)
	}, s.pools.device.options.StuckAfter, ctx.Done())
	if !settled {
		if _, endErr := k.endWork(s.pools.scatter.stop); endErr != nil {
			s.pools.log.Error("a stream could not be destroyed, so the chunks of the scatter stay in use",
				"device", s.pools.Name(), "chunks", len(s.chunks), "err", errors.Join(err, endErr))
			return false
		}
	}
	s.pools.marks.releaseMarks(waitedFor)
	if ctxErr := s.ctx.Err(); ctxErr != nil && errors.Is(err, ErrStuck) {
		err = ctxErr // given up because the context ended
	}
	s.done <- err
	return true
}
