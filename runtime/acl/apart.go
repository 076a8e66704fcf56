//go:build cgo && linux

package acl

// #include "calls.h"
import "C"

import "fmt"

// Current is the right to call a library that looks at the thread's context, as HCCL does: whoever has
// one runs on a thread on which a context is current. A Thread and a Guest are one.
type Current interface {
	// Here answers ErrStray where the right has ended, or is another thread's. Ask before each call.
	Here() error
	// Device is the device of the context.
	Device() DeviceID
	// Message is what AscendCL says of the last failure on this thread, "" if nothing. Asking clears it.
	Message() string

	context() *Context
}

var (
	_ Current = (*Thread)(nil)
	_ Current = (*Guest)(nil)
)

// A Guest is the right to call other libraries on a thread apart from the context's own. It is not good
// for this package's own work: that is the Thread's.
type Guest struct{ thread *Thread }

// Here is nil on the thread that the Guest was lent for, while it is lent.
func (g *Guest) Here() error { return g.thread.Here() }

// Device is the device of the context.
func (g *Guest) Device() DeviceID { return g.thread.Device() }

// Message is what AscendCL says of the last failure on this thread, and clears it.
func (g *Guest) Message() string { return g.thread.Message() }

func (g *Guest) context() *Context  { return g.thread.ctx }
func (t *Thread) context() *Context { return t.ctx }

// Apart runs f on a thread of its own on which the context is current, for calls of other libraries that
// block for long, and returns f's error. The context's own thread goes on meanwhile; Close refuses with
// ErrBusy, and Abandon waits. The Guest is f's for the time of the call only. f must return; it may call
// Do. Apart itself must not be called inside Do of the same context.
// ErrClosed: the context was closed, and f did not run.
func (c *Context) Apart(f func(*Guest) error) error {
	// Counted on the context's thread, so that no guest comes while the context is being left.
	if err := c.Do(func(*Thread) error { c.guests.come(); return nil }); err != nil {
		return err
	}
	ended := make(chan error)
	go c.visit(f, ended)
	return <-ended
}

func (c *Context) visit(f func(*Guest) error, ended chan<- error) {
	t := bindThread(c.lib, c)
	err := errUnreturned // f may end the goroutine, as a failing test does
	defer func() {
		t.unbind()
		c.guests.leave()
		ended <- err
	}()
	if err = t.enter(c.handle); err != nil {
		return
	}
	err = errUnreturned
	err = f(&Guest{t})
}

// Here is nil on the thread that the context is current on, while the Thread is lent.
func (t *Thread) Here() error {
	if t.ended.Load() || C.call_is_here(t.call) == 0 {
		return fmt.Errorf("%w: device %d", ErrStray, t.ctx.device)
	}
	return nil
}

// Device is the device of the context.
func (t *Thread) Device() DeviceID { return t.ctx.device }

// Message is what AscendCL says of the last failure on this thread, and clears it. The binding's own errors
// have theirs already; it is for libraries that stand on AscendCL and leave their reasons there.
func (t *Thread) Message() string {
	if t.Here() != nil {
		return ""
	}
	return C.GoString(C.call_message(t.call))
}
