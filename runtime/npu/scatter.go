//go:build cgo && linux

package npu

import (
	"context"
	"errors"
	"fmt"

	"github.com/kvferry/kvferry/runtime/acl"
	"github.com/kvferry/kvferry/runtime/device"
)

// Enqueue is an engine's device code. It puts into the stream the copies of chunks to where the engine computes, and
// returns without waiting for them. Chunk i belongs to the fetch's key number first+i; it is on the device or in pinned
// memory, and must only be read. Enqueue runs on the thread of the device's context, so all other work of that context
// waits for it; it must not call Do of that context. An error fails the fetch.
type Enqueue func(t *acl.Thread, s *acl.Stream, first int, chunks []acl.Range) error

// Scatter makes of an engine's device code the function for Fetch.ScatterDevice of a node on this device. Calls of several
// fetches run side by side, each on its own stream, which first waits for the reads that filled the chunks. So one
// batch is scattered while the device reads the next.
//
// A call returns when the device has read the chunks. If it failed, or its context has ended, it returns when nothing
// that was enqueued touches the chunks or the engine's memory any more.
func (d *Device) Scatter(enqueue Enqueue) func(ctx context.Context, first int, chunks []device.Page) error {
	return func(ctx context.Context, first int, chunks []device.Page) error {
		p := d.opened()
		if p == nil {
			return fmt.Errorf("%w: %s", ErrClosed, d.Name())
		}
		ranges := make([]acl.Range, len(chunks))
		for i, chunk := range chunks {
			var err error
			if ranges[i], err = p.at(chunk); err != nil {
				return err
			}
		}
		s := &scattering{pools: p, ctx: ctx, enqueue: enqueue, first: first, chunks: ranges, pages: chunks,
			done: make(chan error, 1)}
		j := &job{run: s.run, refuse: func() { s.done <- fmt.Errorf("%w: %s", ErrClosed, d.Name()) }}
		p.scatter.add(j)
		select {
		case err := <-s.done:
			return err
		case <-ctx.Done():
		}
		if p.scatter.remove(j) {
			return ctx.Err()
		}
		return <-s.done
	}
}

// A scattering is one call of the function that Scatter returns.
type scattering struct {
	pools   *pools
	ctx     context.Context
	enqueue Enqueue
	first   int
	chunks  []acl.Range
	pages   []device.Page
	done    chan error // has room for one
}

// run carries out the scatter and reports whether the track is quiet. If not, the call never returns, because the
// chunks are in use.
func (s *scattering) run(k *track) bool {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	defer context.AfterFunc(s.pools.scatter.hurry, cancel)()
	var behind []*mark
	settled, err := k.run(func(t *acl.Thread, stream *acl.Stream) (err error) {
		if behind, err = s.pools.marks.wait(t, stream, s.pages); err != nil {
			return err
		}
		return s.enqueue(t, stream, s.first, s.chunks)
	}, s.pools.d.o.StuckAfter, ctx.Done())
	if !settled {
		if _, left := k.quieten(s.pools.scatter.stop); left != nil {
			s.pools.log.Error("a stream could not be ended, so the chunks that it scatters stay in use",
				"device", s.pools.Name(), "chunks", len(s.chunks), "err", errors.Join(err, left))
			return false
		}
	}
	s.pools.marks.passed(behind)
	if gone := s.ctx.Err(); gone != nil && errors.Is(err, ErrStuck) {
		err = gone // it was given up because its context ended
	}
	s.done <- err
	return true
}
