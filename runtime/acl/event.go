//go:build cgo && linux

package acl

// #include "calls.h"
import "C"

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"time"
)

// EventOptions describes an event.
type EventOptions struct {
	Timing bool // record the time, for Event.ElapsedSince; slower
}

// An Event marks a position in a stream for which other streams can wait. The methods are for the thread of the event's
// context. To learn in the program when work ends, use Stream.Notify.
type Event struct {
	ctx      *Context
	handle   C.acl_handle
	flags    C.uint32_t
	reusable bool // may be recorded again without a reset
	recorded bool // an event that was never recorded would look complete
	closed   bool
}

// NewEvent makes an event, which the caller closes.
func (t *Thread) NewEvent(o EventOptions) (*Event, error) {
	e := &Event{ctx: t.ctx, flags: C.ACL_EVENT_SYNC | C.ACL_EVENT_CAPTURE_PROGRESS}
	if o.Timing {
		e.flags |= C.ACL_EVENT_TIME_LINE
	}
	var err error
	if e.handle, e.reusable, err = t.createEvent(e.flags); err != nil {
		return nil, err
	}
	t.ctx.open.events++
	return e, nil
}

// createEvent makes an event of the newer style, which may be recorded repeatedly, or of the older style.
func (t *Thread) createEvent(flags C.uint32_t) (event C.acl_handle, reusable bool, err error) {
	err = t.callError(C.call_create_event_ex(t.call, flags, &event), "aclrtCreateEventExWithFlag", "flags=%#x", flags)
	if !errors.Is(err, Unsupported) {
		return event, true, err
	}
	err = t.callError(C.call_create_event(t.call, &event), "aclrtCreateEvent", "")
	return event, false, err
}

func (t *Thread) destroyEvent(event C.acl_handle) error {
	return t.callError(C.call_destroy_event(t.call, event), "aclrtDestroyEvent", "event=%#x", event)
}

func (e *Event) checkUsable(t *Thread) error {
	if err := t.checkOwner(e.ctx, "event"); err != nil {
		return err
	}
	if e.closed {
		return fmt.Errorf("%w: the event", ErrClosed)
	}
	return nil
}

// Close destroys the event. If the library refuses, the event stays open. A second Close does nothing.
func (e *Event) Close(t *Thread) error {
	if e.closed {
		return nil
	}
	if err := t.checkOwner(e.ctx, "event"); err != nil {
		return err
	}
	if err := t.destroyEvent(e.handle); err != nil {
		return err
	}
	e.closed = true
	t.ctx.open.events--
	return nil
}

// RecordEvent marks the position behind everything that is in the stream now, in place of an earlier mark.
func (s *Stream) RecordEvent(t *Thread, e *Event) error {
	if err := s.CheckUsable(t); err != nil {
		return err
	}
	if err := e.checkUsable(t); err != nil {
		return err
	}
	if err := e.prepareRecord(t, s); err != nil {
		return err
	}
	if code := C.call_record_event(t.call, e.handle, s.handle); code != 0 {
		return t.callError(code, "aclrtRecordEvent", "event=%#x stream=%#x", e.handle, s.handle)
	}
	e.recorded = true
	return nil
}

// prepareRecord prepares an old-style event that was recorded before to be recorded again.
func (e *Event) prepareRecord(t *Thread, s *Stream) error {
	if e.reusable || !e.recorded {
		return nil
	}
	err := t.callError(C.call_reset_event(t.call, e.handle, s.handle), "aclrtResetEvent", "event=%#x stream=%#x", e.handle,
		s.handle)
	if !errors.Is(err, Unsupported) {
		e.recorded = err != nil
		return err
	}
	fresh, reusable, err := t.createEvent(e.flags)
	if err != nil {
		return err
	}
	if err := t.destroyEvent(e.handle); err != nil {
		return errors.Join(err, t.destroyEvent(fresh))
	}
	e.handle, e.reusable, e.recorded = fresh, reusable, false
	return nil
}

// WaitEvent makes everything that is put into the stream from now on wait, on the device, for the event's last mark.
func (s *Stream) WaitEvent(t *Thread, e *Event) error {
	if err := s.CheckUsable(t); err != nil {
		return err
	}
	if err := e.checkRecorded(t); err != nil {
		return err
	}
	if code := C.call_wait_event(t.call, s.handle, e.handle); code != 0 {
		return t.callError(code, "aclrtStreamWaitEvent", "stream=%#x event=%#x", s.handle, e.handle)
	}
	return nil
}

func (e *Event) checkRecorded(t *Thread) error {
	if err := e.checkUsable(t); err != nil {
		return err
	}
	if !e.recorded {
		return fmt.Errorf("%w: the event was never recorded", ErrInvalid)
	}
	return nil
}

// IsComplete reports whether everything before the event's last mark has ended.
func (e *Event) IsComplete(t *Thread) (bool, error) {
	if err := e.checkRecorded(t); err != nil {
		return false, err
	}
	var status C.int
	err := t.callError(C.call_query_event(t.call, e.handle, &status), "aclrtQueryEventStatus", "event=%#x", e.handle)
	return err == nil && status == C.ACL_EVENT_COMPLETE, err
}

// Synchronize blocks the context's thread until everything before the event's last mark has ended. After timeout, which
// is at least a millisecond, the error is Timeout, and nothing is settled.
func (e *Event) Synchronize(t *Thread, timeout time.Duration) error {
	if err := e.checkRecorded(t); err != nil {
		return err
	}
	wait, err := roundToMilliseconds(timeout)
	if err != nil {
		return err
	}
	code := C.call_synchronize_event(t.call, e.handle, wait)
	return t.callError(code, "aclrtSynchronizeEventWithTimeout", "event=%#x ms=%d", e.handle, wait)
}

// ElapsedSince returns the time between the marks of two events made with Timing, in one stream that was synchronized
// since.
func (e *Event) ElapsedSince(t *Thread, since *Event) (time.Duration, error) {
	if err := errors.Join(e.checkRecorded(t), since.checkRecorded(t)); err != nil {
		return 0, err
	}
	var ms C.float
	err := t.callError(C.call_elapsed(t.call, since.handle, e.handle, &ms), "aclrtEventElapsedTime", "start=%#x end=%#x",
		since.handle, e.handle)
	return time.Duration(float64(ms) * float64(time.Millisecond)), err
}

// roundToMilliseconds rounds a wait up to what AscendCL accepts; zero and negative values mean something else there.
func roundToMilliseconds(d time.Duration) (C.int32_t, error) {
	if d <= 0 {
		return 0, fmt.Errorf("%w: the timeout is %v: give a positive duration", ErrInvalid, d)
	}
	return C.int32_t(min((d+time.Millisecond-1)/time.Millisecond, math.MaxInt32)), nil
}

// spareEventsMax bounds the events that are kept for later completions.
const spareEventsMax = 256

// eventPool holds events that no completion uses now, and events that the library refused to destroy.
type eventPool struct {
	mu     sync.Mutex
	events []C.acl_handle
	stuck  []C.acl_handle
}

// takeEvent returns a spare event if there is one.
func (s *eventPool) takeEvent() (C.acl_handle, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.events) == 0 {
		return 0, false
	}
	event := s.events[len(s.events)-1]
	s.events = s.events[:len(s.events)-1]
	return event, true
}

// returnEvent takes back an event. If the event cannot be used again, or spareEventsMax events are spare already,
// returnEvent destroys the event on t.
func (s *eventPool) returnEvent(t *Thread, event C.acl_handle, reusable bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if reusable && len(s.events) < spareEventsMax {
		s.events = append(s.events, event)
	} else if t.destroyEvent(event) != nil {
		s.stuck = append(s.stuck, event) // destroyed and reported when the context ends
	}
}

// destroyEvents destroys all spare events. Events that the library refuses to destroy stay.
func (s *eventPool) destroyEvents(t *Thread) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	var stuck []C.acl_handle
	for _, event := range append(s.events, s.stuck...) {
		if refused := t.destroyEvent(event); refused != nil {
			err = errors.Join(err, refused)
			stuck = append(stuck, event)
		}
	}
	s.events, s.stuck = nil, stuck
	return err
}
