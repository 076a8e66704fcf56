//go:build cgo && linux

package acl

// #include "calls.h"
import "C"

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// StreamOptions describes a stream.
type StreamOptions struct {
	// StopOnFailure makes the first failure in the stream stop all streams of its context, so that no work runs on the
	// result of a failed task. Only for separate contexts.
	StopOnFailure bool

	// CompletionsMax bounds the outstanding completions. Zero: 1024.
	CompletionsMax int
}

// A Stream is a queue of work for the device, done in order. The methods are for the thread of the stream's context.
// Work is settled, and the memory free to use, only when a completion or a synchronization says so (M8).
type Stream struct {
	ctx    *Context
	handle C.acl_handle

	aborted atomic.Bool // set before the library is called: from then on no completion counts as success
	closing atomic.Bool // Close has begun; the caller may have to repeat Close

	completionsMax int
	outstanding    atomic.Int64
	completions    chan completion
	waiterDone     chan struct{} // closed when the waiter has ended; nil before the first Notify
	closed         bool
}

// NewStream makes a stream, which the caller closes.
//
// The flags ask for fast launches only. The flag for fast synchronization is not set, because with that flag a thread
// that waits for the stream queries without pause, on a whole core.
func (t *Thread) NewStream(o StreamOptions) (*Stream, error) {
	if o.CompletionsMax == 0 {
		o.CompletionsMax = 1024
	}
	if o.CompletionsMax < 0 {
		return nil, fmt.Errorf("%w: CompletionsMax is %d: give a positive number", ErrInvalid, o.CompletionsMax)
	}
	if o.StopOnFailure && t.ctx.primary {
		return nil, fmt.Errorf("%w: StopOnFailure in a primary context would stop the engine's streams: use a separate context",
			ErrInvalid)
	}
	s := &Stream{ctx: t.ctx, completionsMax: o.CompletionsMax, completions: make(chan completion, o.CompletionsMax)}
	err := t.callError(C.call_create_stream(t.call, C.ACL_STREAM_FAST_LAUNCH, &s.handle), "aclrtCreateStreamWithConfig",
		"flags=%#x", C.ACL_STREAM_FAST_LAUNCH)
	if err != nil {
		return nil, err
	}
	if o.StopOnFailure {
		err = t.callError(C.call_set_failure_mode(t.call, s.handle, C.ACL_STOP_ON_FAILURE), "aclrtSetStreamFailureMode",
			"stream=%#x mode=stop", s.handle)
		if err != nil {
			return nil, errors.Join(err, t.destroyStream(s, false))
		}
	}
	t.ctx.open.streams[s] = struct{}{}
	return s, nil
}

// Handle returns the library's own handle, an aclrtStream, for other libraries of CANN. The handle may be used inside
// Context.Do and Context.DoBlocking of the stream's context, until Close. Call Stream.CheckUsable before each use.
func (s *Stream) Handle() uintptr { return uintptr(s.handle) }

// CheckUsable returns nil while the stream accepts work from the thread: the stream belongs to the thread's context, is
// open, and was not aborted. Package acl checks this itself; callers that put work of another library into the stream
// must check, too.
func (s *Stream) CheckUsable(at CurrentThread) error {
	if s.ctx != at.context() {
		return fmt.Errorf("%w: the stream", ErrWrongContext)
	}
	if s.closing.Load() {
		return fmt.Errorf("%w: the stream", ErrClosed)
	}
	if s.aborted.Load() {
		return fmt.Errorf("%w: the stream was aborted: close the stream and make a new stream", Cancelled)
	}
	return nil
}

// Synchronize blocks the context's thread until all work in the stream has ended. After timeout, which is at least a
// millisecond, the error is Timeout: the work goes on, and nothing is settled.
func (s *Stream) Synchronize(t *Thread, timeout time.Duration) error {
	if err := s.CheckUsable(t); err != nil {
		return err
	}
	return s.waitUntilIdle(t, timeout)
}

func (s *Stream) waitUntilIdle(t *Thread, timeout time.Duration) error {
	wait, err := roundToMilliseconds(timeout)
	if err != nil {
		return err
	}
	code := C.call_synchronize_stream(t.call, s.handle, wait)
	return t.callError(code, "aclrtSynchronizeStreamWithTimeout", "stream=%#x ms=%d", s.handle, wait)
}

// Failure returns the error by which the stream has stopped, or nil.
func (s *Stream) Failure(t *Thread) error {
	if err := s.CheckUsable(t); err != nil {
		return err
	}
	return s.queryFailure(t)
}

// queryFailure asks the library for the stream's error, by a query or, on old libraries, by a short synchronization.
// The waiter calls failure too, on the waiter's thread.
func (s *Stream) queryFailure(t *Thread) error {
	var status C.int
	err := t.callError(C.call_query_stream(t.call, s.handle, &status), "aclrtStreamQuery", "stream=%#x", s.handle)
	if !errors.Is(err, Unsupported) {
		return err
	}
	if err = s.waitUntilIdle(t, time.Millisecond); errors.Is(err, Timeout) {
		return nil
	}
	return err
}

// Abort drops the work that has not begun. Outstanding completions end as Cancelled, and the stream accepts no more
// work. Cancelled work is not settled: work that has begun may go on for as long as the link's own retries last.
// Libraries without aclrtStreamAbort fail with Unsupported, and nothing changes.
func (s *Stream) Abort(t *Thread) error {
	if err := t.checkOwner(s.ctx, "stream"); err != nil {
		return err
	}
	if s.closing.Load() {
		return fmt.Errorf("%w: the stream", ErrClosed)
	}
	if !t.lib.HasSymbol("aclrtStreamAbort") {
		return &MissingError{Symbol: "aclrtStreamAbort", Library: t.lib.info.Library}
	}
	// first, because the abort itself may make events look complete
	s.aborted.Store(true)
	return t.callError(C.call_abort_stream(t.call, s.handle), "aclrtStreamAbort", "stream=%#x", s.handle)
}

// Close destroys the stream. While completions are outstanding, the error is ErrBusy. If further work is not over after
// the context's CloseTimeout, the error is Timeout: then call Abort first. Close may be called again after any failure.
// After an abort, or if the stream has failed, Close does not wait for work.
func (s *Stream) Close(t *Thread) error {
	if err := t.checkOwner(s.ctx, "stream"); err != nil {
		return err
	}
	if s.closed {
		return nil
	}
	broken := s.aborted.Load()
	if !broken {
		if n := s.outstanding.Load(); n != 0 {
			return fmt.Errorf("%w: %d completions of the stream are outstanding: wait for them, or abort the stream", ErrBusy, n)
		}
		switch err := s.waitUntilIdle(t, s.ctx.closeTimeout); {
		case errors.Is(err, Timeout), errors.Is(err, ErrWrongThread):
			return err
		case err != nil:
			broken = true
		}
	}
	if !s.closing.Load() {
		s.closing.Store(true)
		close(s.completions)
	}
	if s.waiterDone != nil {
		<-s.waiterDone
	}
	if err := t.destroyStream(s, broken); err != nil {
		return err
	}
	s.closed = true
	delete(t.ctx.open.streams, s)
	return nil
}

// destroyStream destroys the stream. With force it uses the function that does not wait for work which may never end,
// if the library has that function.
func (t *Thread) destroyStream(s *Stream, force bool) error {
	if force {
		err := t.callError(C.call_destroy_stream_force(t.call, s.handle), "aclrtDestroyStreamForce", "stream=%#x", s.handle)
		if !errors.Is(err, Unsupported) {
			return err
		}
	}
	return t.callError(C.call_destroy_stream(t.call, s.handle), "aclrtDestroyStream", "stream=%#x", s.handle)
}
