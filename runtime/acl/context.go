//go:build cgo && linux

package acl

// #include "calls.h"
import "C"

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// ContextOptions describes a context.
type ContextOptions struct {
	Device DeviceID

	// Primary selects the context that the whole process, including the engine, shares on that device: failures of the
	// engine affect kvferry and the reverse. Otherwise the context is separate, which costs a set of streams.
	Primary bool

	// CloseTimeout bounds how long closing a stream waits for work. Zero: 5 s.
	CloseTimeout time.Duration
}

// A Context is a device in use: a context of AscendCL with an operating-system thread that runs functions in the
// context. Streams, events and memory belong to the context in which they were made.
type Context struct {
	lib          *Library
	device       DeviceID
	primary      bool
	closeTimeout time.Duration
	handle       C.acl_handle // for the threads that wait for completions

	jobs       chan *job
	quit       chan struct{} // closed by Close and Abandon
	quitOnce   sync.Once
	releasing  chan struct{} // closed when no function runs any more and none will
	done       chan struct{} // closed when the thread ends
	releaseErr error         // what the thread could not free; read after done is closed

	// The steps of releaseDevice that are done; the context's thread only.
	released struct{ begun, contents, context, device bool }

	open        openObjects
	spareEvents eventPool
	waiters     sync.WaitGroup // threads that wait for completions
	blocking    blockingThreads
	noBatch     bool // the library has refused a batched copy; the context's thread only
}

// openObjects counts the open objects of the context; the context's thread only.
type openObjects struct {
	streams                          map[*Stream]struct{}
	events, deviceAllocs, hostAllocs int
	exports, imports                 int
}

// blockingThreads counts the threads of Context.DoBlocking. The context's thread adds a thread; the added thread
// removes itself.
type blockingThreads struct {
	running sync.WaitGroup
	count   atomic.Int64
}

func (g *blockingThreads) addThread() {
	g.running.Add(1)
	g.count.Add(1)
}

func (g *blockingThreads) removeThread() {
	g.count.Add(-1)
	g.running.Done()
}

type job struct {
	f           func(*Thread) error
	duringClose bool // may run while the context is being closed
	err         error
	reply       chan struct{}
}

var jobPool = sync.Pool{New: func() any { return &job{reply: make(chan struct{}, 1)} }}

// NewContext starts to use a device. The caller owns the context and closes it.
func (l *Library) NewContext(o ContextOptions) (*Context, error) {
	if o.CloseTimeout == 0 {
		o.CloseTimeout = 5 * time.Second
	}
	if o.CloseTimeout < 0 {
		return nil, fmt.Errorf("%w: CloseTimeout is %v: give a positive duration", ErrInvalid, o.CloseTimeout)
	}
	if err := l.addContext(); err != nil {
		return nil, err
	}
	c := &Context{
		lib: l, device: o.Device, primary: o.Primary, closeTimeout: o.CloseTimeout,
		jobs: make(chan *job), quit: make(chan struct{}), releasing: make(chan struct{}), done: make(chan struct{}),
		open: openObjects{streams: map[*Stream]struct{}{}},
	}
	started := make(chan error)
	go c.runThread(started)
	if err := <-started; err != nil {
		<-c.done
		return nil, err
	}
	return c, nil
}

// Device returns the device in use.
func (c *Context) Device() DeviceID { return c.device }

// Library returns the library that the context was made with.
func (c *Context) Library() *Library { return c.lib }

// Do runs f on the thread that owns the context and returns its error. Functions run in sequence, so a function that
// waits delays the next ones. Objects that f makes with the Thread stay valid; the Thread itself does not. f must
// return, and must not call Do of the same context. The error is ErrClosed if the context was closed; then f did not
// run.
func (c *Context) Do(f func(*Thread) error) error { return c.runJob(f, false) }

func (c *Context) runJob(f func(*Thread) error, duringClose bool) error {
	j := jobPool.Get().(*job)
	j.f, j.duringClose = f, duringClose
	releasing := c.releasing // a blocking thread must not wait for a context that waits for it
	if duringClose {
		releasing = nil
	}
	select {
	case c.jobs <- j:
	case <-releasing:
		return c.closedError()
	case <-c.done:
		return c.closedError()
	}
	<-j.reply
	err := j.err
	j.f, j.err = nil, nil
	jobPool.Put(j)
	return err
}

func (c *Context) closedError() error {
	return fmt.Errorf("%w: the context of device %d", ErrClosed, c.device)
}

// runThread is the thread of the context.
func (c *Context) runThread(started chan<- error) {
	t := bindThread(c.lib, c)
	defer close(c.done)
	defer c.lib.removeContext()
	defer t.unbindThread()
	if err := c.acquireDevice(t); err != nil {
		started <- err
		return
	}
	started <- nil
	// Deferred, so that the device is also released if a function ends the goroutine: see job.runFunc.
	defer func() { c.releaseErr = c.releaseDevice(t, true) }()
	for {
		select {
		case <-c.quit: // before any work, so that objects that Close found closed stay closed
			return
		default:
		}
		select {
		case j := <-c.jobs:
			j.runFunc(t)
		case <-c.quit:
		}
	}
}

var errNoReturn = errors.New("acl: the function passed to Do or DoBlocking ended its goroutine instead of returning")

// runFunc reports a result even if f ends the goroutine, as a failing test does; otherwise the caller would wait
// forever.
func (j *job) runFunc(t *Thread) {
	defer func() { j.reply <- struct{}{} }()
	if t.ctx.released.begun && !j.duringClose {
		j.err = t.ctx.closedError()
		return
	}
	j.err = errNoReturn
	j.err = j.f(t)
}

// acquireDevice makes the context current on its thread. In either case the device is set first, which takes a
// reference to the device: a library in this process that drops its reference must not be the last holder.
func (c *Context) acquireDevice(t *Thread) error {
	device := C.int32_t(c.device)
	if err := t.callError(C.call_set_device(t.call, device), "aclrtSetDevice", "device=%d", c.device); err != nil {
		return err
	}
	var err error
	if c.primary {
		err = t.callError(C.call_get_context(t.call, &c.handle), "aclrtGetCurrentContext", "")
	} else {
		err = t.callError(C.call_create_context(t.call, device, &c.handle), "aclrtCreateContext", "device=%d", c.device)
	}
	if err != nil {
		return errors.Join(err, t.resetDevice())
	}
	return nil
}

// releaseDevice frees the context and the device in steps. If the library refuses a step, releaseDevice returns, and
// the next call continues there. At the end of the thread ignoreErrors is set: then the steps go on after a refusal.
func (c *Context) releaseDevice(t *Thread, ignoreErrors bool) error {
	if !c.released.begun {
		c.released.begun = true
		close(c.releasing)
	}
	var refused error
	for _, step := range []struct {
		done *bool
		do   func(*Thread) error
	}{
		{&c.released.contents, c.closeContents}, {&c.released.context, c.destroyContext}, {&c.released.device, (*Thread).resetDevice},
	} {
		if *step.done {
			continue
		}
		err := step.do(t)
		*step.done = err == nil
		refused = errors.Join(refused, err)
		if err != nil && !ignoreErrors {
			break
		}
	}
	return refused
}

func (c *Context) destroyContext(t *Thread) error {
	if c.primary {
		return nil // freed with the last reference to the device
	}
	return t.callError(C.call_destroy_context(t.call, c.handle), "aclrtDestroyContext", "context=%#x", c.handle)
}

// closeContents ends what was not closed: streams, the threads that wait for them, and spare events. Streams that are
// still open were abandoned: their work is aborted first, if possible, so that no copy touches memory that is freed
// with the context (M8).
func (c *Context) closeContents(t *Thread) error {
	var err error
	for s := range c.open.streams {
		if !s.aborted.Load() && !s.closing.Load() {
			if refused := s.Abort(t); !errors.Is(refused, Unsupported) {
				err = errors.Join(err, refused)
			}
		}
	}
	c.waiters.Wait()
	c.blocking.running.Wait()
	for s := range c.open.streams {
		refused := t.destroyStream(s, true)
		if refused == nil {
			delete(c.open.streams, s)
		}
		err = errors.Join(err, refused)
	}
	return errors.Join(err, c.spareEvents.destroyEvents(t))
}

func (t *Thread) resetDevice() error {
	return t.callError(C.call_reset_device(t.call, C.int32_t(t.ctx.device)), "aclrtResetDevice", "device=%d", t.ctx.device)
}

// Close frees the context and the device, and ends the thread. While streams, events or memory of the context are open,
// or functions run in Context.DoBlocking, the error is ErrBusy and lists them. After an error of the library, which may
// have freed a part, only Close and Abandon may be called. A second Close does nothing.
func (c *Context) Close() error {
	err := c.runJob(func(t *Thread) error {
		if remaining := c.open.describeCounts(c.blocking.count.Load()); remaining != "" && !c.released.begun {
			return fmt.Errorf("%w: the context of device %d has%s: close them first", ErrBusy, c.device, remaining)
		}
		if err := c.releaseDevice(t, false); err != nil {
			return err
		}
		c.quitOnce.Do(func() { close(c.quit) })
		return nil
	}, true)
	switch {
	case err == nil:
		<-c.done
	case errors.Is(err, ErrClosed): // by an earlier Close or Abandon
		return nil
	}
	return err
}

// Abandon frees the context with all open objects, and ends the thread. Use Abandon for a lost device, where nothing
// can be closed any more. Streams are aborted if the library can, and outstanding completions end as Cancelled. Memory
// that is left stays allocated until the device is reset for the whole process. The error says what could not be freed.
func (c *Context) Abandon() error {
	c.quitOnce.Do(func() { close(c.quit) })
	<-c.done
	return c.releaseErr
}

// describeCounts describes what is open.
func (l *openObjects) describeCounts(blocking int64) string {
	var text string
	for _, kind := range []struct {
		name  string
		count int
	}{
		{"streams", len(l.streams)}, {"events", l.events}, {"device allocations", l.deviceAllocs}, {"host allocations", l.hostAllocs},
		{"exports", l.exports}, {"imports", l.imports},
		{"blocking threads", int(blocking)},
	} {
		if kind.count != 0 {
			text += fmt.Sprintf(" %s=%d", kind.name, kind.count)
		}
	}
	return text
}
