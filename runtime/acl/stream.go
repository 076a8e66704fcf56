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

// StreamOptions describe a stream.
type StreamOptions struct {
	// StopOnFailure makes the first failure in the stream stop all streams of its context, so that
	// nothing runs on what a failed task left behind. Own contexts only.
	StopOnFailure bool

	// CompletionsMax bounds the completions that may be outstanding. Zero: 1024.
	CompletionsMax int
}

// A Stream is a queue of work for the device, done in order. Its methods are for the thread of its
// context. Work is settled, its memory free to use, only when a completion or a synchronisation says so.
type Stream struct {
	ctx    *Context
	handle C.acl_handle

	aborted atomic.Bool // set before the library is told: from then on no completion is believed
	closing atomic.Bool // Close has begun; it may have to be called again

	completionsMax int
	outstanding    atomic.Int64
	completions    chan completion
	waited         chan struct{} // closed when the waiter has ended; nil before the first Notify
	closed         bool
}

// NewStream makes a stream. The caller closes it.
//
// Its flags ask for fast launches only. The flag for fast synchronisation is left out: it makes whoever
// waits for the stream query without pause, on a whole core.
func (t *Thread) NewStream(o StreamOptions) (*Stream, error) {
	if o.CompletionsMax == 0 {
		o.CompletionsMax = 1024
	}
	if o.CompletionsMax < 0 {
		return nil, fmt.Errorf("%w: CompletionsMax is %d: give a positive number", ErrInvalid, o.CompletionsMax)
	}
	if o.StopOnFailure && t.ctx.primary {
		return nil, fmt.Errorf("%w: StopOnFailure in a primary context would stop the engine's streams: use an own context",
			ErrInvalid)
	}
	s := &Stream{ctx: t.ctx, completionsMax: o.CompletionsMax, completions: make(chan completion, o.CompletionsMax)}
	err := t.answer(C.call_create_stream(t.call, C.ACL_STREAM_FAST_LAUNCH, &s.handle), "aclrtCreateStreamWithConfig",
		"flags=%#x", C.ACL_STREAM_FAST_LAUNCH)
	if err != nil {
		return nil, err
	}
	if o.StopOnFailure {
		err = t.answer(C.call_set_failure_mode(t.call, s.handle, C.ACL_STOP_ON_FAILURE), "aclrtSetStreamFailureMode",
			"stream=%#x mode=stop", s.handle)
		if err != nil {
			return nil, errors.Join(err, t.destroyStream(s, false))
		}
	}
	t.ctx.live.streams[s] = struct{}{}
	return s, nil
}

// Handle is the library's own handle, an aclrtStream, for other libraries of CANN. It is good for calls
// inside Do and Apart of the stream's context, until Close; ask Usable before each.
func (s *Stream) Handle() uintptr { return uintptr(s.handle) }

// Usable is nil while the stream takes work from the thread: it is of the thread's context, is open, and was not
// aborted. Package acl asks by itself; this is for who puts work of another library into the stream.
func (s *Stream) Usable(at Current) error {
	if s.ctx != at.context() {
		return fmt.Errorf("%w: the stream", ErrForeign)
	}
	if s.closing.Load() {
		return fmt.Errorf("%w: the stream", ErrClosed)
	}
	if s.aborted.Load() {
		return fmt.Errorf("%w: the stream was aborted: close it and make a new one", Cancelled)
	}
	return nil
}

// Synchronize blocks the context's thread until all work in the stream has ended. When the time, at
// least a millisecond, is over it answers Timeout: the work goes on, and nothing is settled.
func (s *Stream) Synchronize(t *Thread, timeout time.Duration) error {
	if err := s.Usable(t); err != nil {
		return err
	}
	return s.synchronize(t, timeout)
}

func (s *Stream) synchronize(t *Thread, timeout time.Duration) error {
	wait, err := milliseconds(timeout)
	if err != nil {
		return err
	}
	code := C.call_synchronize_stream(t.call, s.handle, wait)
	return t.answer(code, "aclrtSynchronizeStreamWithTimeout", "stream=%#x ms=%d", s.handle, wait)
}

// Failure is the error that the stream has stopped with, nil while it has none.
func (s *Stream) Failure(t *Thread) error {
	if err := s.Usable(t); err != nil {
		return err
	}
	return s.failure(t)
}

// failure asks in the way that the library has. The waiter uses it too, on its own thread.
func (s *Stream) failure(t *Thread) error {
	var status C.int
	err := t.answer(C.call_query_stream(t.call, s.handle, &status), "aclrtStreamQuery", "stream=%#x", s.handle)
	if !errors.Is(err, Unsupported) {
		return err
	}
	if err = s.synchronize(t, time.Millisecond); errors.Is(err, Timeout) {
		return nil
	}
	return err
}

// Abort drops the work that has not begun. Completions that are outstanding end as Cancelled, and the
// stream takes no more work. Cancelled work is not settled: what has begun may go on for as long as the
// link's own retries last. Libraries without aclrtStreamAbort answer Unsupported, and nothing changes.
func (s *Stream) Abort(t *Thread) error {
	if err := t.owns(s.ctx, "stream"); err != nil {
		return err
	}
	if s.closing.Load() {
		return fmt.Errorf("%w: the stream", ErrClosed)
	}
	if !t.lib.Has("aclrtStreamAbort") {
		return &MissingError{Symbol: "aclrtStreamAbort", Library: t.lib.info.Library}
	}
	// First, because the abort itself may make events look complete.
	s.aborted.Store(true)
	return t.answer(C.call_abort_stream(t.call, s.handle), "aclrtStreamAbort", "stream=%#x", s.handle)
}

// Close destroys the stream. It refuses with ErrBusy while completions are outstanding, and with
// Timeout while other work is, after the context's CloseTimeout: then Abort it first. It may be called
// again after any failure. After an abort, or where the stream has failed, it does not wait for work.
func (s *Stream) Close(t *Thread) error {
	if err := t.owns(s.ctx, "stream"); err != nil {
		return err
	}
	if s.closed {
		return nil
	}
	broken := s.aborted.Load()
	if !broken {
		if n := s.outstanding.Load(); n != 0 {
			return fmt.Errorf("%w: %d completions of the stream are outstanding: wait for them, or abort it", ErrBusy, n)
		}
		switch err := s.synchronize(t, s.ctx.closeTimeout); {
		case errors.Is(err, Timeout), errors.Is(err, ErrStray):
			return err
		case err != nil:
			broken = true
		}
	}
	if !s.closing.Load() {
		s.closing.Store(true)
		close(s.completions)
	}
	if s.waited != nil {
		<-s.waited
	}
	if err := t.destroyStream(s, broken); err != nil {
		return err
	}
	s.closed = true
	delete(t.ctx.live.streams, s)
	return nil
}

// destroyStream uses the form that does not wait for work that may never end, where there is one.
func (t *Thread) destroyStream(s *Stream, force bool) error {
	if force {
		err := t.answer(C.call_destroy_stream_force(t.call, s.handle), "aclrtDestroyStreamForce", "stream=%#x", s.handle)
		if !errors.Is(err, Unsupported) {
			return err
		}
	}
	return t.answer(C.call_destroy_stream(t.call, s.handle), "aclrtDestroyStream", "stream=%#x", s.handle)
}
