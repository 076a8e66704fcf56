//go:build cgo && linux

package acl

// #include "calls.h"
import "C"

import "fmt"

// Current is the right to call a library that uses the thread's current context, as HCCL does. The holder runs on a
// thread on which a context is current. There are two implementations: Thread for the context's own thread, and
// BlockingThread for a separate thread.
type Current interface {
	// Here returns ErrWrongThread if the right has ended or belongs to another thread. Callers check before each use.
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

// A Guest is the right to call further libraries, such as HCCL, on a thread besides the context's own, so that a call
// that blocks does not hold up the context. Methods of this package that need a Thread do not accept a BlockingThread.
type Guest struct{ thread *Thread }

// Here returns nil on the BlockingThread's own thread until the function that received the BlockingThread returns.
func (g *Guest) Here() error { return g.thread.Here() }

// Device returns the device of the context.
func (g *Guest) Device() DeviceID { return g.thread.Device() }

// Message returns and clears AscendCL's text about the last failure on this thread.
func (g *Guest) Message() string { return g.thread.Message() }

func (g *Guest) context() *Context  { return g.thread.ctx }
func (t *Thread) context() *Context { return t.ctx }

// Apart runs f on a separate thread on which the context is current, and returns f's error. Use this method for calls
// of further libraries that block for long, because the context's own thread stays free meanwhile. While f runs, Close
// fails with ErrBusy and Abandon waits. The BlockingThread must not be used after the call. f must return, and may call
// Do. This method must not be called inside Do of the same context. The error is ErrClosed if the context was closed;
// then f did not run.
func (c *Context) Apart(f func(*Guest) error) error {
	// Counted on the context's thread, so that no function begins while the context is being closed.
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

// Here returns nil on the context's thread until the function that received the Thread returns.
func (t *Thread) Here() error {
	if t.ended.Load() || C.call_is_here(t.call) == 0 {
		return fmt.Errorf("%w: device %d", ErrStray, t.ctx.device)
	}
	return nil
}

// Device returns the device of the context.
func (t *Thread) Device() DeviceID { return t.ctx.device }

// Message returns and clears AscendCL's text about the last failure on this thread. Errors of this package contain that
// text already. This method serves libraries above AscendCL that leave their reasons there.
func (t *Thread) Message() string {
	if t.Here() != nil {
		return ""
	}
	return C.GoString(C.call_message(t.call))
}
