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

	work    chan *job
	quit    chan struct{} // closed by Close and Abandon
	ending  sync.Once
	leaving chan struct{} // closed when no function runs any more and none will
	done    chan struct{} // closed when the thread ends
	ended   error         // what the thread could not free; read after done is closed

	// How far leave has got; the context's thread only.
	left struct{ begun, contents, context, device bool }

	live    live
	spares  spares
	waiters sync.WaitGroup // threads that wait for completions
	guests  guests
	noBatch bool // the library has refused a batched copy; the context's thread only
}

// live counts the open objects of the context; the context's thread only.
type live struct {
	streams              map[*Stream]struct{}
	events, device, host int
	exports, imports     int
}

// guests counts the threads of Context.Apart. The context's thread adds a thread; the added thread removes itself.
type guests struct {
	all   sync.WaitGroup
	count atomic.Int64
}

func (g *guests) come() {
	g.all.Add(1)
	g.count.Add(1)
}

func (g *guests) leave() {
	g.count.Add(-1)
	g.all.Done()
}

type job struct {
	f     func(*Thread) error
	last  bool // may run while the context is being closed
	err   error
	reply chan struct{}
}

var jobs = sync.Pool{New: func() any { return &job{reply: make(chan struct{}, 1)} }}

// NewContext starts to use a device. The caller owns the context and closes it.
func (l *Library) NewContext(o ContextOptions) (*Context, error) {
	if o.CloseTimeout == 0 {
		o.CloseTimeout = 5 * time.Second
	}
	if o.CloseTimeout < 0 {
		return nil, fmt.Errorf("%w: CloseTimeout is %v: give a positive duration", ErrInvalid, o.CloseTimeout)
	}
	if err := l.hold(); err != nil {
		return nil, err
	}
	c := &Context{
		lib: l, device: o.Device, primary: o.Primary, closeTimeout: o.CloseTimeout,
		work: make(chan *job), quit: make(chan struct{}), leaving: make(chan struct{}), done: make(chan struct{}),
		live: live{streams: map[*Stream]struct{}{}},
	}
	started := make(chan error)
	go c.run(started)
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
func (c *Context) Do(f func(*Thread) error) error { return c.do(f, false) }

func (c *Context) do(f func(*Thread) error, last bool) error {
	j := jobs.Get().(*job)
	j.f, j.last = f, last
	leaving := c.leaving // a blocking thread must not wait for a context that waits for it
	if last {
		leaving = nil
	}
	select {
	case c.work <- j:
	case <-leaving:
		return c.closed()
	case <-c.done:
		return c.closed()
	}
	<-j.reply
	err := j.err
	j.f, j.err = nil, nil
	jobs.Put(j)
	return err
}

func (c *Context) closed() error {
	return fmt.Errorf("%w: the context of device %d", ErrClosed, c.device)
}

// run is the thread of the context.
func (c *Context) run(started chan<- error) {
	t := bindThread(c.lib, c)
	defer close(c.done)
	defer c.lib.release()
	defer t.unbind()
	if err := c.take(t); err != nil {
		started <- err
		return
	}
	started <- nil
	// Deferred, so that the device is also released if a function ends the goroutine: see job.run.
	defer func() { c.ended = c.leave(t, true) }()
	for {
		select {
		case <-c.quit: // before any work, so that objects that Close found closed stay closed
			return
		default:
		}
		select {
		case j := <-c.work:
			j.run(t)
		case <-c.quit:
		}
	}
}

var errUnreturned = errors.New("acl: the function given to Do or Apart ended its goroutine instead of returning")

// run reports a result even if f ends the goroutine, as a failing test does; otherwise the caller would wait forever.
func (j *job) run(t *Thread) {
	defer func() { j.reply <- struct{}{} }()
	if t.ctx.left.begun && !j.last {
		j.err = t.ctx.closed()
		return
	}
	j.err = errUnreturned
	j.err = j.f(t)
}

// take makes the context current on its thread. In either case the device is set first, which takes a reference to the
// device: a library in this process that drops its reference must not be the last holder.
func (c *Context) take(t *Thread) error {
	device := C.int32_t(c.device)
	if err := t.answer(C.call_set_device(t.call, device), "aclrtSetDevice", "device=%d", c.device); err != nil {
		return err
	}
	var err error
	if c.primary {
		err = t.answer(C.call_get_context(t.call, &c.handle), "aclrtGetCurrentContext", "")
	} else {
		err = t.answer(C.call_create_context(t.call, device, &c.handle), "aclrtCreateContext", "device=%d", c.device)
	}
	if err != nil {
		return errors.Join(err, t.resetDevice())
	}
	return nil
}

// leave frees the context and the device in steps. If the library refuses a step, leave returns, and the next call
// continues there. At the end of the thread atAnyRate is set: then the steps go on after a refusal.
func (c *Context) leave(t *Thread, atAnyRate bool) error {
	if !c.left.begun {
		c.left.begun = true
		close(c.leaving)
	}
	var refused error
	for _, step := range []struct {
		done *bool
		do   func(*Thread) error
	}{
		{&c.left.contents, c.drop}, {&c.left.context, c.destroy}, {&c.left.device, (*Thread).resetDevice},
	} {
		if *step.done {
			continue
		}
		err := step.do(t)
		*step.done = err == nil
		refused = errors.Join(refused, err)
		if err != nil && !atAnyRate {
			break
		}
	}
	return refused
}

func (c *Context) destroy(t *Thread) error {
	if c.primary {
		return nil // freed with the last reference to the device
	}
	return t.answer(C.call_destroy_context(t.call, c.handle), "aclrtDestroyContext", "context=%#x", c.handle)
}

// drop ends what was not closed: streams, the threads that wait for them, and spare events. Streams that are still open
// were abandoned: their work is aborted first, if possible, so that no copy touches memory that is freed with the
// context (M4).
func (c *Context) drop(t *Thread) error {
	var err error
	for s := range c.live.streams {
		if !s.aborted.Load() && !s.closing.Load() {
			if refused := s.Abort(t); !errors.Is(refused, Unsupported) {
				err = errors.Join(err, refused)
			}
		}
	}
	c.waiters.Wait()
	c.guests.all.Wait()
	for s := range c.live.streams {
		refused := t.destroyStream(s, true)
		if refused == nil {
			delete(c.live.streams, s)
		}
		err = errors.Join(err, refused)
	}
	return errors.Join(err, c.spares.drop(t))
}

func (t *Thread) resetDevice() error {
	return t.answer(C.call_reset_device(t.call, C.int32_t(t.ctx.device)), "aclrtResetDevice", "device=%d", t.ctx.device)
}

// Close frees the context and the device, and ends the thread. While streams, events or memory of the context are open,
// or functions run in Context.Apart, the error is ErrBusy and lists them. After an error of the library, which may have
// freed a part, only Close and Abandon may be called. A second Close does nothing.
func (c *Context) Close() error {
	err := c.do(func(t *Thread) error {
		if open := c.live.open(c.guests.count.Load()); open != "" && !c.left.begun {
			return fmt.Errorf("%w: the context of device %d has%s: close them first", ErrBusy, c.device, open)
		}
		if err := c.leave(t, false); err != nil {
			return err
		}
		c.ending.Do(func() { close(c.quit) })
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
	c.ending.Do(func() { close(c.quit) })
	<-c.done
	return c.ended
}

// open describes what is open.
func (l *live) open(guests int64) string {
	var text string
	for _, kind := range []struct {
		name  string
		count int
	}{
		{"streams", len(l.streams)}, {"events", l.events}, {"device allocations", l.device}, {"host allocations", l.host},
		{"exports", l.exports}, {"imports", l.imports},
		{"threads apart", int(guests)},
	} {
		if kind.count != 0 {
			text += fmt.Sprintf(" %s=%d", kind.name, kind.count)
		}
	}
	return text
}
