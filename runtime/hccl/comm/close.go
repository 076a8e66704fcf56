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
func (c *Comm) Close(at acl.CurrentThread) error {
	if err := c.checkThread(at); err != nil {
		return err
	}
	if err := c.enterCall(c.checkClosable); err != nil {
		return err
	}
	switch c.state { // no second goroutine changes the state meanwhile
	case stateGone:
		c.leaveCall(stateGone)
		return nil
	case stateLost:
		c.leaveCall(stateLost)
		return fmt.Errorf("%w: communicator %s: an earlier call failed to destroy the communicator", ErrLost, c.name)
	case stateMade, statePrepared, stateFenced:
	}
	if err := c.sequence.releaseRegions(c, at); err != nil {
		c.leaveCall(stateFenced)
		return err
	}
	err := c.destroyComm(at)
	switch {
	case err == nil:
		c.leaveCall(stateGone)
	case errors.Is(err, ErrBusy):
		c.leaveCall(stateFenced)
		return err
	default:
		c.leaveCall(stateLost)
	}
	// Only now, because batches in flight may have used the memory until here, bound or not.
	for _, r := range c.everBound {
		r.removeUser()
	}
	C.free(unsafe.Pointer(c.batch))
	c.everBound, c.batch = nil, nil
	c.sequence.freeMemory()
	c.lib.removeComm(c.device)
	return err
}

// checkClosable returns an error while another thread prepares or closes the communicator.
func (c *Comm) checkClosable() error {
	if c.inCall {
		return fmt.Errorf("%w: communicator %s is being prepared or closed by another thread", ErrBusy, c.name)
	}
	return nil
}

// destroyComm calls the library once, and repeats the call only while the library reports that nothing was done because
// work is in flight.
func (c *Comm) destroyComm(at acl.CurrentThread) error {
	deadline := time.Now().Add(c.closeTimeout)
	for pause := pauseMin; ; pause = min(2*pause, pauseMax) {
		code := C.hccl_destroy(c.lib.api, c.handle)
		err := c.lib.callError(at, code, "HcclCommDestroy", "comm=%s", c.name)
		switch {
		case err == nil:
			return nil
		case Code(code) != codeAgain:
			return fmt.Errorf("%w: communicator %s: %w", ErrLost, c.name, err)
		case !time.Now().Before(deadline):
			return fmt.Errorf("%w: communicator %s has been busy for %v: %w", ErrBusy, c.name, c.closeTimeout, err)
		}
		time.Sleep(pause)
	}
}
