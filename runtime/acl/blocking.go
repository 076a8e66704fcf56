//go:build cgo && linux

package acl

// #include "calls.h"
import "C"

import "fmt"

// CurrentThread is the right to call a library that uses the thread's current context, as HCCL does. The holder runs on
// a thread on which a context is current. There are two implementations: Thread for the context's own thread, and
// BlockingThread for a separate thread.
type CurrentThread interface {
	// CheckThread returns ErrWrongThread if the right has ended or belongs to another thread. Callers check before each
	// use.
	CheckThread() error
	// Device returns the device of the context.
	Device() DeviceID
	// TakeMessage returns and clears AscendCL's text about the last failure on this thread, or "".
	TakeMessage() string

	context() *Context
}

var (
	_ CurrentThread = (*Thread)(nil)
	_ CurrentThread = (*BlockingThread)(nil)
)

// A BlockingThread is the right to call further libraries, such as HCCL, on a thread besides the context's own, so that
// a call that blocks does not hold up the context. Methods of this package that need a Thread do not accept a
// BlockingThread.
type BlockingThread struct{ thread *Thread }

// CheckThread returns nil on the BlockingThread's own thread until the function that received the BlockingThread
// returns.
func (g *BlockingThread) CheckThread() error { return g.thread.CheckThread() }

// Device returns the device of the context.
func (g *BlockingThread) Device() DeviceID { return g.thread.Device() }

// TakeMessage returns and clears AscendCL's text about the last failure on this thread.
func (g *BlockingThread) TakeMessage() string { return g.thread.TakeMessage() }

func (g *BlockingThread) context() *Context { return g.thread.ctx }
func (t *Thread) context() *Context         { return t.ctx }

// DoBlocking runs f on a separate thread on which the context is current, and returns f's error. Use this method for
// calls of further libraries that block for long, because the context's own thread stays free meanwhile. While f runs,
// Close fails with ErrBusy and Abandon waits. The BlockingThread must not be used after the call. f must return, and
// may call Do. This method must not be called inside Do of the same context. The error is ErrClosed if the context was
// closed; then f did not run.
func (c *Context) DoBlocking(f func(*BlockingThread) error) error {
	// Counted on the context's thread, so that no function begins while the context is being closed.
	if err := c.Do(func(*Thread) error { c.blocking.addThread(); return nil }); err != nil {
		return err
	}
	ended := make(chan error)
	go c.runBlocking(f, ended)
	return <-ended
}

func (c *Context) runBlocking(f func(*BlockingThread) error, ended chan<- error) {
	t := bindThread(c.lib, c)
	err := errNoReturn // f may end the goroutine, as a failing test does
	defer func() {
		t.unbindThread()
		c.blocking.removeThread()
		ended <- err
	}()
	if err = t.enterContext(c.handle); err != nil {
		return
	}
	err = errNoReturn
	err = f(&BlockingThread{t})
}

// CheckThread returns nil on the context's thread until the function that received the Thread returns.
func (t *Thread) CheckThread() error {
	if t.ended.Load() || C.call_is_here(t.call) == 0 {
		return fmt.Errorf("%w: device %d", ErrWrongThread, t.ctx.device)
	}
	return nil
}

// Device returns the device of the context.
func (t *Thread) Device() DeviceID { return t.ctx.device }

// TakeMessage returns and clears AscendCL's text about the last failure on this thread. Errors of this package contain
// that text already. This method serves libraries above AscendCL that leave their reasons there.
func (t *Thread) TakeMessage() string {
	if t.CheckThread() != nil {
		return ""
	}
	return C.GoString(C.call_message(t.call))
}
