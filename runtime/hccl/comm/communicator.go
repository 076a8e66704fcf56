//go:build cgo && linux

package comm

/*
#include <stdlib.h>
#include "calls.h"
*/
import "C"

import (
	"fmt"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/kvferry/kvferry/runtime/acl"
)

// CommOptions describes a communicator of two ranks.
type CommOptions struct {
	Name string // 1 to 127 bytes, the same at both ends, never used before: the ends meet by name
	Rank uint32 // of this end: 0 or 1

	// Set either RankTable or RootInfo. RankTable is the result of NewRankTable. RootInfo is the result of
	// Library.RootInfo at rank 0, which sends these bytes to rank 1; only libraries of the older sequence use root
	// info.
	RankTable []byte
	RootInfo  []byte

	// Marks of the NIC's packets. nil: HCCL_RDMA_TC and HCCL_RDMA_SL.
	TrafficClass *uint32 // a multiple of 4, up to 252
	ServiceLevel *uint32 // 0 to 7

	// CloseTimeout bounds how long Close tries to destroy a busy communicator. Zero: 5 s.
	CloseTimeout time.Duration
}

// A Comm is this process's end of a communicator. The methods may be called from several threads of the device.
type Comm struct {
	lib          *Library
	device       acl.DeviceID
	name         string
	rank, peer   uint32
	closeTimeout time.Duration
	handle       C.hccl_handle
	sequence     regionSequence

	mu           sync.Mutex
	state        state
	inCall       bool            // a call that may block for long is in progress
	boundRegions []*Region       // regions that the library has bound
	everBound    []*Region       // all regions that were ever bound, none of which can be closed
	stream       *acl.Stream     // of all batches
	batch        *C.struct_batch // the descriptors of one batch
}

type state int

const (
	stateMade     state = iota // regions may be bound
	statePrepared              // batches may be queued
	stateFenced                // something failed: only Close is allowed
	stateGone                  // proven to be destroyed
	stateLost                  // the library failed to destroy the communicator
)

// NewComm makes an end of a communicator. The call may block until the peer does the same, and the process makes no
// further communicator meanwhile, so call NewComm in acl.Context.DoBlocking. The caller closes the Comm.
func (l *Library) NewComm(at acl.CurrentThread, o CommOptions) (*Comm, error) {
	if err := at.CheckThread(); err != nil {
		return nil, err
	}
	if o.CloseTimeout == 0 {
		o.CloseTimeout = 5 * time.Second
	}
	if err := o.checkFields(l.info.Sequence); err != nil {
		return nil, err
	}
	c := &Comm{
		lib: l, device: at.Device(), name: o.Name, rank: o.Rank, peer: 1 - o.Rank, closeTimeout: o.CloseTimeout,
		sequence: newSequence(l.info.Sequence),
	}
	// Counted first: from here on the device's last region cannot be closed.
	if err := l.addComm(c.device); err != nil {
		return nil, err
	}
	if err := c.callInit(at, o); err != nil {
		l.removeComm(c.device)
		return nil, err
	}
	c.batch = (*C.struct_batch)(C.calloc(1, C.sizeof_struct_batch))
	return c, nil
}

func (o *CommOptions) checkFields(s Sequence) error {
	switch {
	case o.Name == "" || len(o.Name) >= C.HCCL_NAME_BYTES || strings.ContainsRune(o.Name, 0):
		return fmt.Errorf("%w: the communicator's name %q has %d bytes: give 1 to %d, none of them zero", ErrInvalid, o.Name,
			len(o.Name), C.HCCL_NAME_BYTES-1)
	case o.Rank > 1:
		return fmt.Errorf("%w: rank is %d: give 0 or 1", ErrInvalid, o.Rank)
	case (o.RankTable == nil) == (o.RootInfo == nil):
		return fmt.Errorf("%w: communicator %s: give a rank table or root info, and not both", ErrInvalid, o.Name)
	case o.RootInfo != nil && s == Global:
		return fmt.Errorf("%w: communicator %s: root info is for libraries of the older sequence; give a rank table",
			ErrInvalid, o.Name)
	case o.RootInfo != nil && len(o.RootInfo) != C.sizeof_struct_hccl_root_info:
		return fmt.Errorf("%w: communicator %s: root info has %d bytes; want %d", ErrInvalid, o.Name, len(o.RootInfo),
			C.sizeof_struct_hccl_root_info)
	case o.TrafficClass != nil && (*o.TrafficClass > 252 || *o.TrafficClass%4 != 0):
		return fmt.Errorf("%w: traffic class %d: give a multiple of 4, up to 252", ErrInvalid, *o.TrafficClass)
	case o.ServiceLevel != nil && *o.ServiceLevel > 7:
		return fmt.Errorf("%w: service level %d: give 0 to 7", ErrInvalid, *o.ServiceLevel)
	case o.CloseTimeout < 0:
		return fmt.Errorf("%w: CloseTimeout is %v: give a positive duration", ErrInvalid, o.CloseTimeout)
	}
	return nil
}

// callInit calls the library's function that makes a communicator. initMutex ensures that the process makes only one
// communicator at a time.
func (c *Comm) callInit(at acl.CurrentThread, o CommOptions) error {
	name := C.CString(o.Name)
	defer C.free(unsafe.Pointer(name))
	m := (*C.struct_making)(C.calloc(1, C.sizeof_struct_making))
	defer C.free(unsafe.Pointer(m))
	m.name, m.rank = name, C.uint32_t(o.Rank)
	m.traffic_class, m.service_level = C.HCCL_NOT_SET, C.HCCL_NOT_SET
	if o.TrafficClass != nil {
		m.traffic_class = C.uint32_t(*o.TrafficClass)
	}
	if o.ServiceLevel != nil {
		m.service_level = C.uint32_t(*o.ServiceLevel)
	}
	initMutex.Lock()
	defer initMutex.Unlock()
	return c.sequence.initComm(c, at, o, m)
}

// Name returns the communicator's name.
func (c *Comm) Name() string { return c.name }

// checkThread returns an error on a thread of another device than the communicator's.
func (c *Comm) checkThread(at acl.CurrentThread) error {
	if err := at.CheckThread(); err != nil {
		return err
	}
	if at.Device() != c.device {
		return fmt.Errorf("%w: communicator %s of device %d, on a thread of device %d", ErrWrongOwner, c.name, c.device,
			at.Device())
	}
	return nil
}

// checkAccepting returns nil if the communicator accepts work, or an error with the reason. The caller holds mu.
func (c *Comm) checkAccepting() error {
	switch c.state {
	case stateFenced:
		return fmt.Errorf("%w: communicator %s: close the communicator, and make another with a new name", ErrFenced, c.name)
	case stateGone, stateLost:
		return fmt.Errorf("%w: communicator %s", ErrClosed, c.name)
	case stateMade, statePrepared:
		if c.inCall {
			return fmt.Errorf("%w: communicator %s is being prepared or closed by another thread", ErrBusy, c.name)
		}
	}
	return nil
}

// enterCall begins a call that may block for long. Until leaveCall, no second call of this kind runs in this
// communicator.
func (c *Comm) enterCall(allowed func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := allowed(); err != nil {
		return err
	}
	c.inCall = true
	return nil
}

// leaveCall ends the call and sets the state.
func (c *Comm) leaveCall(next state) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inCall, c.state = false, next
}

// AsyncError asks whether the communicator has failed in the background. The result is nil, or the *Error with the
// library's code, after which only Close is allowed. With libraries that lack this function the error is
// acl.Unsupported, which says nothing about the communicator.
func (c *Comm) AsyncError(at acl.CurrentThread) error {
	if err := c.checkThread(at); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.checkAccepting(); err != nil {
		return err
	}
	var failed C.int
	code := C.hccl_async_error(c.lib.api, c.handle, &failed)
	if err := c.lib.callError(at, code, "HcclGetCommAsyncError", "comm=%s", c.name); err != nil {
		return err
	}
	if failed != 0 {
		c.state = stateFenced
		return &Error{Code: Code(failed), Call: "HcclGetCommAsyncError", Args: "comm=" + c.name,
			Message: "the communicator has failed"}
	}
	return nil
}

// addComm counts a communicator of a device.
func (l *Library) addComm(device acl.DeviceID) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return fmt.Errorf("%w: the library", ErrClosed)
	}
	l.objectsOn(device).comms++
	return nil
}

func (l *Library) removeComm(device acl.DeviceID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.objectsOn(device).comms--
}
