//go:build cgo && linux

package libnixl

/*
#include <stdlib.h>
#include "calls.h"

_Static_assert(sizeof(struct pair) == 24, "a pair is as Go has it");
*/
import "C"

import (
	"fmt"
	"unsafe"
)

// TransferOptions describes what a transfer moves.
type TransferOptions struct {
	Operation     Operation
	Peer          string // the name that LoadMetadata returned
	Local, Remote Side
	// Pairs must lie in memory that is registered at both ends. There must be at least one pair.
	Pairs []Pair
	// Notice is sent to the peer after the bytes, by the Check that finds the transfer done; none if empty.
	Notice []byte
}

// A Transfer may be posted repeatedly, one post at a time. A Transfer belongs to the owner of its agent.
type Transfer struct {
	agent   *Agent // nil: closed
	request C.nixl_handle
}

// NewTransfer makes a transfer, which moves nothing yet and keeps nothing of the options.
func (a *Agent) NewTransfer(o TransferOptions) (*Transfer, error) {
	if err := checkName("peer", o.Peer); err != nil {
		return nil, err
	}
	if len(o.Pairs) == 0 {
		return nil, fmt.Errorf("%w: the transfer has no pairs; give at least one", ErrInvalid)
	}
	if err := a.enterCall(); err != nil {
		return nil, err
	}
	defer a.leaveCall()
	peer := C.CString(o.Peer)
	defer C.free(unsafe.Pointer(peer))
	sides := C.struct_sides{
		local_memory: C.int(o.Local.Kind), remote_memory: C.int(o.Remote.Kind),
		local_device: C.uint64_t(o.Local.Device), remote_device: C.uint64_t(o.Remote.Device),
	}
	t := &Transfer{agent: a}
	status := C.nixl_call_transfer(a.handle, C.int(o.Operation), sides,
		(*C.struct_pair)(unsafe.Pointer(unsafe.SliceData(o.Pairs))), C.size_t(len(o.Pairs)), peer,
		unsafe.Pointer(unsafe.SliceData(o.Notice)), C.size_t(len(o.Notice)), &t.request)
	if err := a.callError(status, "peer=%q pairs=%d", o.Peer, len(o.Pairs)); err != nil {
		return nil, err
	}
	a.openChildren++
	return t, nil
}

// Post starts the transfer and may complete it: done says that all bytes are in place.
func (t *Transfer) Post() (done bool, err error) {
	return t.callTransfer(func(a *C.struct_agent, r C.nixl_handle) C.int { return C.nixl_call_post(a, r) })
}

// Check advances what the agent has in flight and reports whether the transfer is done. After an error any byte may
// have arrived or may still arrive.
func (t *Transfer) Check() (done bool, err error) {
	return t.callTransfer(func(a *C.struct_agent, r C.nixl_handle) C.int { return C.nixl_call_check(a, r) })
}

func (t *Transfer) callTransfer(call func(*C.struct_agent, C.nixl_handle) C.int) (done bool, err error) {
	a := t.agent
	if a == nil {
		return false, fmt.Errorf("%w: transfer", ErrClosed)
	}
	if err := a.enterCall(); err != nil {
		return false, err
	}
	defer a.leaveCall()
	status := call(a.handle, t.request)
	if status == C.NIXL_IN_PROGRESS {
		return false, nil
	}
	return status == C.NIXL_SUCCESS, a.callError(status, "")
}

// Close frees the transfer's resources. A transfer in flight is not stopped: see the package comment.
func (t *Transfer) Close() error {
	a := t.agent
	if a == nil {
		return fmt.Errorf("%w: transfer", ErrClosed)
	}
	if err := a.enterCall(); err != nil {
		return err
	}
	defer a.leaveCall()
	if err := a.callError(C.nixl_call_release(a.handle, t.request), ""); err != nil {
		return err
	}
	a.openChildren--
	t.agent = nil
	return nil
}
