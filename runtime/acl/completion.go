//go:build cgo && linux

package acl

// #include "calls.h"
import "C"

import (
	"errors"
	"fmt"
	"time"
)

// A completion is one pending Notify: an event behind all work that was in the stream.
type completion struct {
	event    C.acl_handle
	reusable bool
	onDone   func(error)
}

// Notify calls done once everything that is in the stream now has ended. A nil error means that the work is settled
// (rule M8 in docs/safety.md): nothing touches the memory any more. After any error, such as Cancelled or a failure,
// the device may still touch the memory. The callback runs exactly once, in the order of the calls of Notify, on the
// thread that waits for the stream. The callback must not block and must not call Do. Notify has no deadline; a caller
// that needs a deadline aborts the stream.
//
// The error is ErrBusy while CompletionsMax completions are outstanding. After any error of Notify itself, done is not
// called.
func (s *Stream) Notify(t *Thread, done func(error)) error {
	if err := s.CheckUsable(t); err != nil {
		return err
	}
	if n := s.outstanding.Load(); n >= int64(s.completionsMax) {
		return fmt.Errorf("%w: %d completions of the stream are outstanding", ErrBusy, n)
	}
	if s.waiterDone == nil {
		if err := s.startWaiter(); err != nil {
			return err
		}
	}
	event, reusable, err := t.completionEvent()
	if err != nil {
		return err
	}
	// Record before the first query: an event of the newer style looks complete until then.
	if code := C.call_record_event(t.call, event, s.handle); code != 0 {
		err := t.callError(code, "aclrtRecordEvent", "event=%#x stream=%#x", event, s.handle)
		t.ctx.spareEvents.returnEvent(t, event, false)
		return err
	}
	s.outstanding.Add(1)
	s.completions <- completion{event: event, reusable: reusable, onDone: done} // never blocks, by the bound above
	return nil
}

// completionEvent returns a spare event, or creates an event. The flags do not request one of the few events of the
// device itself, which only a stream that waits for another stream needs.
func (t *Thread) completionEvent() (event C.acl_handle, reusable bool, err error) {
	if event, ok := t.ctx.spareEvents.takeEvent(); ok {
		return event, true, nil
	}
	return t.createEvent(C.ACL_EVENT_CAPTURE_PROGRESS)
}

// startWaiter starts the thread that waits for the stream's completions. Each stream has a waiter, so that completions
// of a stream arrive in order and no second stream delays them.
func (s *Stream) startWaiter() error {
	started := make(chan error)
	waiterDone := make(chan struct{})
	s.ctx.waiters.Go(func() {
		defer close(waiterDone)
		t := bindThread(s.ctx.lib, s.ctx)
		defer t.unbindThread()
		if err := t.enterContext(s.ctx.handle); err != nil {
			started <- err
			return
		}
		started <- nil
		s.deliverCompletions(t)
	})
	if err := <-started; err != nil {
		<-waiterDone
		return err
	}
	s.waiterDone = waiterDone
	return nil
}

// deliverCompletions waits for the stream's completions in order, until the stream is closed or the context is
// abandoned.
func (s *Stream) deliverCompletions(t *Thread) {
	for {
		select {
		case c, open := <-s.completions:
			if !open {
				return
			}
			s.finishCompletion(t, c)
		case <-s.ctx.releasing:
			for {
				select {
				case c, open := <-s.completions:
					if !open {
						return
					}
					s.finishCompletion(t, c)
				default:
					return
				}
			}
		}
	}
}

func (s *Stream) finishCompletion(t *Thread, c completion) {
	err := s.awaitEvent(t, c.event)
	s.ctx.spareEvents.returnEvent(t, c.event, c.reusable && err == nil)
	s.outstanding.Add(-1)
	c.onDone(err)
}

// waitSlice is the longest single wait inside the library, and so bounds how late the waiter notices that the stream
// was aborted or has failed, or that the context was abandoned.
const waitSlice = 20 * time.Millisecond

// awaitEvent waits until the event is complete and checks that the stream has not failed.
//
// A complete event is not enough: the stream continues after a failed task, and reaches the event all the same. The
// error of the stream may belong to a later task; then a settled completion is reported as failed, which is safe.
func (s *Stream) awaitEvent(t *Thread, event C.acl_handle) error {
	backoff := pollBackoff{}
	for {
		if err := s.cancelCause(); err != nil {
			return err
		}
		complete, err := backoff.waitOnce(t, event)
		if err == nil {
			err = s.queryFailure(t)
		}
		if cause := s.cancelCause(); cause != nil {
			return cause
		}
		if err != nil || complete {
			return err
		}
	}
}

func (s *Stream) cancelCause() error {
	if s.aborted.Load() {
		return fmt.Errorf("%w: the stream was aborted", Cancelled)
	}
	select {
	case <-s.ctx.releasing:
		return fmt.Errorf("%w: the context of device %d was abandoned", Cancelled, s.ctx.device)
	default:
		return nil
	}
}

// Bounds of the pause between two queries, if the library cannot wait for an event with a timeout.
const (
	pauseMin = 20 * time.Microsecond
	pauseMax = 5 * time.Millisecond
)

// A pollBackoff is the time until the next query: an eighth of the time waited so far. So an end is noticed at most an
// eighth late, and long waits cost no noticeable part of a core.
type pollBackoff struct {
	waited   time.Duration
	mustPoll bool // the library cannot wait
}

// waitOnce waits for the event for a while, and reports whether the event is complete.
func (p *pollBackoff) waitOnce(t *Thread, event C.acl_handle) (bool, error) {
	if !p.mustPoll {
		ms := C.int32_t(waitSlice / time.Millisecond)
		err := t.callError(C.call_synchronize_event(t.call, event, ms), "aclrtSynchronizeEventWithTimeout", "event=%#x ms=%d",
			event, ms)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, Timeout):
			return false, nil
		case !errors.Is(err, Unsupported):
			return false, err
		}
		p.mustPoll = true
	}
	var status C.int
	err := t.callError(C.call_query_event(t.call, event, &status), "aclrtQueryEventStatus", "event=%#x", event)
	if err != nil || status == C.ACL_EVENT_COMPLETE {
		return err == nil, err
	}
	next := min(max(p.waited/8, pauseMin), pauseMax)
	p.waited += next
	time.Sleep(next)
	return false, nil
}
