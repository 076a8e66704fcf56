//go:build cgo && linux

package comm

/*
#include <stdlib.h>
#include "calls.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"time"
	"unsafe"

	"github.com/kvferry/kvferry/runtime/acl"
)

// Bounds of the pause between two attempts to destroy a busy communicator. The library offers no way to wait.
const (
	pauseMin = time.Millisecond
	pauseMax = 50 * time.Millisecond
)

// Close unbinds all regions and destroys this end. The call may block for long, so make it in acl.Context.DoBlocking.
// If batches may be outstanding, abort the stream first.
//
// A nil error proves that the communicator is gone (M4): the queue pair was destroyed, and the last requests are in the
// network for milliseconds. ErrLost means that the library failed to destroy the communicator; there is no further
// attempt, the regions are unbound, and the communicator counts as closed. After every other error the communicator
// still exists, for example after ErrBusy if the communicator was busy for all of CloseTimeout; then call Close again
// and keep the regions. A Close after nil or ErrLost returns the same result.
func (c *Comm) Close(at acl.Current) error {
	if err := c.usable(at); err != nil {
		return err
	}
	if err := c.enter(c.closable); err != nil {
		return err
	}
	switch c.state { // no second goroutine changes the state meanwhile
	case gone:
		c.leave(gone)
		return nil
	case lost:
		c.leave(lost)
		return fmt.Errorf("%w: communicator %s: destroying it failed before", ErrLost, c.name)
	case made, prepared, fenced:
	}
	if err := c.memory.release(c, at); err != nil {
		c.leave(fenced)
		return err
	}
	err := c.destroy(at)
	switch {
	case err == nil:
		c.leave(gone)
	case errors.Is(err, ErrBusy):
		c.leave(fenced)
		return err
	default:
		c.leave(lost)
	}
	// Only now, because batches in flight may have used the memory until here, bound or not.
	for _, r := range c.held {
		r.release()
	}
	C.free(unsafe.Pointer(c.batch))
	c.held, c.batch = nil, nil
	c.memory.free()
	c.lib.releaseComm(c.device)
	return err
}

// closable returns an error while another thread prepares or closes the communicator.
func (c *Comm) closable() error {
	if c.inside {
		return fmt.Errorf("%w: communicator %s is being prepared or closed by another thread", ErrBusy, c.name)
	}
	return nil
}

// destroy calls the library once, and repeats the call only while the library reports that nothing was done because
// work is in flight.
func (c *Comm) destroy(at acl.Current) error {
	deadline := time.Now().Add(c.closeTimeout)
	for pause := pauseMin; ; pause = min(2*pause, pauseMax) {
		code := C.hccl_destroy(c.lib.api, c.handle)
		err := c.lib.answer(at, code, "HcclCommDestroy", "comm=%s", c.name)
		switch {
		case err == nil:
			return nil
		case Code(code) != again:
			return fmt.Errorf("%w: communicator %s: %w", ErrLost, c.name, err)
		case !time.Now().Before(deadline):
			return fmt.Errorf("%w: communicator %s, for %v: %w", ErrBusy, c.name, c.closeTimeout, err)
		}
		time.Sleep(pause)
	}
}
