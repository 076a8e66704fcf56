//go:build cgo && linux

package comm

// #include "calls.h"
import "C"

import (
	"fmt"
	"time"

	"github.com/kvferry/kvferry/runtime/acl"
)

// A sequence makes communicators and makes memory known to the peer. There is an implementation for each Sequence.
type sequence interface {
	// make sets the communicator's handle.
	make(c *Comm, at acl.Current, o CommOptions, m *C.struct_making) error
	// bind adds a region to this end; index is the number of regions that were bound before.
	bind(c *Comm, at acl.Current, r *Region, index int) error
	// prepare meets the peer. The call may be repeated after a failure.
	prepare(c *Comm, at acl.Current, seconds, peerRegions int) error
	// release undoes bind and prepare, as far as either was done. After a failure the next call continues there.
	release(c *Comm, at acl.Current) error
	// free frees the sequence's own memory when the communicator is destroyed.
	free()
}

func newSequence(s Sequence) sequence {
	if s == Global {
		return global{}
	}
	return &exchange{}
}

// Bind makes regions known to the communicator. The peer may reach regions that are bound before Prepare. This end's
// puts may read all regions, and this end's gets may write all regions. After an error, the regions before the failed
// region are bound.
func (c *Comm) Bind(at acl.Current, regions ...*Region) error {
	if err := c.usable(at); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range regions {
		if err := c.refusal(); err != nil {
			return err
		}
		if len(c.bound) == C.REGIONS_MAX {
			return fmt.Errorf("%w: communicator %s has %d regions: bind fewer, larger ones", ErrInvalid, c.name, len(c.bound))
		}
		if err := r.hold(c.lib, c.device); err != nil {
			return err
		}
		if err := c.memory.bind(c, at, r, len(c.bound)); err != nil {
			r.release()
			return err
		}
		c.bound, c.held = append(c.bound, r), append(c.held, r)
	}
	return nil
}

// Prepare meets the peer, which must call Prepare, too, and makes the regions of both ends known to the peer end.
// peerRegions is the number of regions that the peer has bound; the ends must have exchanged this number before.
// Prepare blocks for up to about three times the timeout, which counts in whole seconds: call it in
// acl.Context.DoBlocking. Prepare may be called again after a failure; after a success a further call does nothing.
//
// Over HCCS the peer's host memory is not a target: Prepare ignores host memory, and batches to host memory fail.
func (c *Comm) Prepare(at acl.Current, timeout time.Duration, peerRegions int) error {
	if err := c.usable(at); err != nil {
		return err
	}
	seconds := (timeout + time.Second - 1) / time.Second
	if seconds < 1 || seconds > timeoutMax {
		return fmt.Errorf("%w: a timeout of %v: give 1 s to %d s", ErrInvalid, timeout, timeoutMax)
	}
	if peerRegions < 0 || peerRegions > C.REGIONS_MAX {
		return fmt.Errorf("%w: %d regions of the peer: at most %d", ErrInvalid, peerRegions, C.REGIONS_MAX)
	}
	if err := c.enter(c.refusal); err != nil {
		return err
	}
	if c.state == prepared { // no second goroutine changes the state meanwhile
		c.leave(prepared)
		return nil
	}
	err := c.memory.prepare(c, at, int(seconds), peerRegions)
	if err != nil {
		c.leave(made)
		return err
	}
	c.leave(prepared)
	return nil
}

// timeoutMax is the longest timeout, in seconds, that HCCL's variable for this timeout allows.
const timeoutMax = 7200
