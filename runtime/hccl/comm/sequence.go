//go:build cgo && linux

package comm

// #include "calls.h"
import "C"

import (
	"fmt"
	"time"

	"github.com/kvferry/kvferry/runtime/acl"
)

// A regionSequence makes communicators and makes memory known to the peer. There is an implementation for each
// Sequence.
type regionSequence interface {
	// initComm sets the communicator's handle.
	initComm(c *Comm, at acl.CurrentThread, o CommOptions, m *C.struct_making) error
	// bindRegion adds a region to this end; index is the number of regions that were bound before.
	bindRegion(c *Comm, at acl.CurrentThread, r *Region, index int) error
	// prepareComm meets the peer. The call may be repeated after a failure.
	prepareComm(c *Comm, at acl.CurrentThread, seconds, peerRegions int) error
	// releaseRegions undoes bind and prepare, as far as either was done. After a failure the next call continues there.
	releaseRegions(c *Comm, at acl.CurrentThread) error
	// freeMemory frees the sequence's own memory when the communicator is destroyed.
	freeMemory()
}

func newSequence(s Sequence) regionSequence {
	if s == Global {
		return globalSequence{}
	}
	return &exchangeSequence{}
}

// Bind makes regions known to the communicator. The peer may reach regions that are bound before Prepare. This end's
// puts may read all regions, and this end's gets may write all regions. After an error, the regions before the failed
// region are bound.
func (c *Comm) Bind(at acl.CurrentThread, regions ...*Region) error {
	if err := c.checkThread(at); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range regions {
		if err := c.checkAccepting(); err != nil {
			return err
		}
		if len(c.boundRegions) == C.REGIONS_MAX {
			return fmt.Errorf("%w: communicator %s has %d regions: bind fewer, larger ones", ErrInvalid, c.name, len(c.boundRegions))
		}
		if err := r.addUser(c.lib, c.device); err != nil {
			return err
		}
		if err := c.sequence.bindRegion(c, at, r, len(c.boundRegions)); err != nil {
			r.removeUser()
			return err
		}
		c.boundRegions, c.everBound = append(c.boundRegions, r), append(c.everBound, r)
	}
	return nil
}

// Prepare meets the peer, which must call Prepare, too, and makes the regions of both ends known to the peer end.
// peerRegions is the number of regions that the peer has bound; the ends must have exchanged this number before.
// Prepare blocks for up to about three times the timeout, which counts in whole seconds: call it in
// acl.Context.DoBlocking. Prepare may be called again after a failure; after a success a further call does nothing.
//
// Over HCCS the peer's host memory is not a target: Prepare ignores host memory, and batches to host memory fail.
func (c *Comm) Prepare(at acl.CurrentThread, timeout time.Duration, peerRegions int) error {
	if err := c.checkThread(at); err != nil {
		return err
	}
	seconds := (timeout + time.Second - 1) / time.Second
	if seconds < 1 || seconds > timeoutMax {
		return fmt.Errorf("%w: the timeout is %v: give 1 s to %d s", ErrInvalid, timeout, timeoutMax)
	}
	if peerRegions < 0 || peerRegions > C.REGIONS_MAX {
		return fmt.Errorf("%w: the peer has %d regions: the limit is %d", ErrInvalid, peerRegions, C.REGIONS_MAX)
	}
	if err := c.enterCall(c.checkAccepting); err != nil {
		return err
	}
	if c.state == statePrepared { // no second goroutine changes the state meanwhile
		c.leaveCall(statePrepared)
		return nil
	}
	err := c.sequence.prepareComm(c, at, int(seconds), peerRegions)
	if err != nil {
		c.leaveCall(stateMade)
		return err
	}
	c.leaveCall(statePrepared)
	return nil
}

// timeoutMax is the longest timeout, in seconds, that HCCL's variable for this timeout allows.
const timeoutMax = 7200
