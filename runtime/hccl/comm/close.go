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

// Bounds of the pause between two tries to destroy a communicator that is busy. The library has no way to wait.
const (
	pauseMin = time.Millisecond
	pauseMax = 50 * time.Millisecond
)

// Close unbinds all regions and destroys this end. It may block for long: call it Apart. Abort the stream first where
// batches may be outstanding.
//
// nil: the communicator is proven to be gone; its queue pair is, and what is left of its requests is in the
// network, for milliseconds. ErrLost: destroying it failed, and will not be tried again; the regions are unbound, and
// it counts as closed. Any other error: it was not destroyed, such as ErrBusy when it was so for all of
// CloseTimeout; call Close again, and keep the regions. A Close after the last gives the same answer.
func (c *Comm) Close(at acl.Current) error {
	if err := c.usable(at); err != nil {
		return err
	}
	if err := c.enter(c.closable); err != nil {
		return err
	}
	switch c.state { // nobody else changes it meanwhile
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
	// Only now: until then batches in flight may use the memory, bound or not.
	for _, r := range c.held {
		r.release()
	}
	C.free(unsafe.Pointer(c.batch))
	c.held, c.batch = nil, nil
	c.memory.free()
	c.lib.releaseComm(c.device)
	return err
}

func (c *Comm) closable() error {
	if c.inside {
		return fmt.Errorf("%w: communicator %s is being prepared or closed by another thread", ErrBusy, c.name)
	}
	return nil
}

// destroy tries once, and again only while the library says that it has done nothing because of work in flight.
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
