//go:build cgo && linux

package acl

// #include "calls.h"
import "C"

import "fmt"

// Current is the right to call a library that uses the thread's current context, as HCCL does. Its holder runs on a
// thread on which a context is current. Thread and Guest implement it.
type Current interface {
	// Here returns ErrStray if the right has ended or belongs to another thread. Call it before each use.
	Here() error
	// Device returns the device of the context.
	Device() DeviceID
	// Message returns and clears AscendCL's text about the last failure on this thread, or "".
	Message() string

	context() *Context
}

var (
	_ Current = (*Thread)(nil)
	_ Current = (*Guest)(nil)
)

// A Guest is the right to call other libraries on a thread besides the context's own. It cannot be used for methods of
// this package that need a Thread.
type Guest struct{ thread *Thread }

// Here returns nil on the thread that the Guest was lent for, while it is lent.
func (g *Guest) Here() error { return g.thread.Here() }

// Device returns the device of the context.
func (g *Guest) Device() DeviceID { return g.thread.Device() }

// Message returns and clears AscendCL's text about the last failure on this thread.
func (g *Guest) Message() string { return g.thread.Message() }

func (g *Guest) context() *Context  { return g.thread.ctx }
func (t *Thread) context() *Context { return t.ctx }

// Apart runs f on a thread of its own on which the context is current, and returns f's error. It is for calls of other
// libraries that block for long: the context's own thread stays free meanwhile. Close fails with ErrBusy during Apart,
// and Abandon waits for it. The Guest must not be used after the call. f must return; it may call Do. Apart itself must
// not be called inside Do of the same context. ErrClosed: the context was closed, and f did not run.
func (c *Context) Apart(f func(*Guest) error) error {
	// counted on the context's thread, so that no guest begins while the context is being closed
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

// Here returns nil on the thread that the context is current on, while the Thread is lent.
func (t *Thread) Here() error {
	if t.ended.Load() || C.call_is_here(t.call) == 0 {
		return fmt.Errorf("%w: device %d", ErrStray, t.ctx.device)
	}
	return nil
}

// Device returns the device of the context.
func (t *Thread) Device() DeviceID { return t.ctx.device }

// Message returns and clears AscendCL's text about the last failure on this thread. Errors of this package contain it
// already; it is for libraries above AscendCL that leave their reasons there.
func (t *Thread) Message() string {
	if t.Here() != nil {
		return ""
	}
	return C.GoString(C.call_message(t.call))
}
