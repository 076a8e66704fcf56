//go:build cgo && linux

package comm

// #include "calls.h"
import "C"

import (
	"fmt"
	"time"

	"github.com/kvferry/kvferry/runtime/acl"
)

// A sequence is a way to make communicators, and memory known to the peer.
type sequence interface {
	// make fills in the communicator's handle.
	make(c *Comm, at acl.Current, o CommOptions, m *C.struct_making) error
	// bind makes a region this end's part; index is how many were bound before.
	bind(c *Comm, at acl.Current, r *Region, index int) error
	// prepare meets the peer. It may be called again after a failure.
	prepare(c *Comm, at acl.Current, seconds, peerRegions int) error
	// release undoes bind and prepare, whatever of them was done. After a failure it goes on where it stopped.
	release(c *Comm, at acl.Current) error
	// free gives back what it has of its own, when the communicator is no more.
	free()
}

func newSequence(s Sequence) sequence {
	if s == Global {
		return global{}
	}
	return &exchange{}
}

// Bind makes regions known to the communicator: those bound before Prepare are what the peer may reach, and all are
// what this end's puts read and gets write. All that come before one that fails are bound.
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

// Prepare meets the other end, which must do the same, and makes the regions of both known to each other. peerRegions
// is how many regions the other end has bound, which the ends must have told each other before. It blocks
// for up to about three times the timeout, which counts in whole seconds: call it Apart. After a failure it may
// be called again. Prepared twice is prepared.
//
// Host memory of the peer's is no target over HCCS: Prepare passes it over, and batches to it fail.
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
	if c.state == prepared { // nobody else changes it meanwhile
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

// timeoutMax is the longest timeout that HCCL's own variable for it allows, in seconds.
const timeoutMax = 7200
