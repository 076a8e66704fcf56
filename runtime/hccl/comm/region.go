//go:build cgo && linux

package comm

// #include "calls.h"
import "C"

import (
	"fmt"

	"github.com/kvferry/kvferry/runtime/acl"
)

// Memory describes memory to be registered: package acl's memory on the device, or pinned memory on the host at a
// multiple of 4096. Over HCCS only device memory is a target, in whole pages of 2 MiB. Go's own memory must never be
// registered.
type Memory struct {
	Place   acl.Place
	Address uintptr
	Size    uint64 // bytes
}

func (m Memory) String() string {
	return fmt.Sprintf("%d bytes of %v memory at %#x", m.Size, m.Place, m.Address)
}

// kind returns the library's number of the place.
func (m Memory) kind() C.int {
	if m.Place == acl.OnHost {
		return C.HCCL_MEM_HOST
	}
	return C.HCCL_MEM_DEVICE
}

// holds reports whether a range lies within the memory.
func (m Memory) holds(address uintptr, size uint64) bool {
	return address >= m.Address && uint64(address-m.Address) <= m.Size && size <= m.Size-uint64(address-m.Address)
}

// A Region is registered memory. The memory must stay until Close.
type Region struct {
	lib    *Library
	device acl.DeviceID
	memory Memory
	handle C.hccl_handle // of global memory; zero in the older sequence, where communicators register memory
	bound  int           // number of communicators; the library's lock guards this and closed
	closed bool
}

// Register makes memory known to HCCL on the thread's device. A peer can reach the memory only once a communicator has
// bound it. The caller closes the Region. Registering the same memory twice fails with ErrInvalid. acl.Exhausted means
// that the library's limit of registrations is reached, 256 for the process before CANN 9.
func (l *Library) Register(at acl.Current, m Memory) (*Region, error) {
	if err := at.Here(); err != nil {
		return nil, err
	}
	if m.Place != acl.OnDevice && m.Place != acl.OnHost || m.Address == 0 || m.Size == 0 ||
		uint64(m.Address)+m.Size < m.Size {
		return nil, fmt.Errorf("%w: to register %v", ErrInvalid, m)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, fmt.Errorf("%w: the library", ErrClosed)
	}
	on := l.on(at.Device())
	if _, again := on.regions[m]; again {
		// The library would return the same handle without counting, so that the first Close would end both registrations.
		return nil, fmt.Errorf("%w: %v is registered already", ErrInvalid, m)
	}
	r := &Region{lib: l, device: at.Device(), memory: m}
	if l.info.Sequence == Global {
		code := C.hccl_register(l.api, m.kind(), C.hccl_address(m.Address), C.uint64_t(m.Size), &r.handle)
		err := l.answer(at, code, "HcclRegisterGlobalMem", "type=%d address=%#x size=%d", m.kind(), m.Address, m.Size)
		if err != nil {
			return nil, err
		}
	}
	on.regions[m] = struct{}{}
	return r, nil
}

// Memory returns what is registered.
func (r *Region) Memory() Memory { return r.memory }

// Close ends the registration, which removes the memory from the NIC. While a communicator has the region bound, the
// error is ErrBusy. So is the error for the last region of a device while any communicator exists there, because the
// library would close the NIC under that communicator. After an error of the library Close may be called again. A
// second Close does nothing.
func (r *Region) Close(at acl.Current) error {
	if err := at.Here(); err != nil {
		return err
	}
	if at.Device() != r.device {
		return fmt.Errorf("%w: a region of device %d, on a thread of device %d", ErrForeign, r.device, at.Device())
	}
	l := r.lib
	l.mu.Lock()
	defer l.mu.Unlock()
	on := l.on(r.device)
	switch {
	case r.closed:
		return nil
	case r.bound != 0:
		return fmt.Errorf("%w: %v is bound to %d communicators: close them first", ErrBusy, r.memory, r.bound)
	case len(on.regions) == 1 && on.comms != 0:
		return fmt.Errorf("%w: %v is the last region of device %d, which has %d communicators: close them first", ErrBusy,
			r.memory, r.device, on.comms)
	}
	if l.info.Sequence == Global {
		if err := l.answer(at, C.hccl_deregister(l.api, r.handle), "HcclDeregisterGlobalMem", "handle=%#x",
			r.handle); err != nil {
			return err
		}
	}
	r.closed = true
	delete(on.regions, r.memory)
	return nil
}

// hold and release count the communicators that have the region bound.
func (r *Region) hold(l *Library, device acl.DeviceID) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case r.lib != l || r.device != device:
		return fmt.Errorf("%w: a region of device %d, to a communicator of device %d", ErrForeign, r.device, device)
	case r.closed:
		return fmt.Errorf("%w: the region", ErrClosed)
	}
	r.bound++
	return nil
}

func (r *Region) release() {
	r.lib.mu.Lock()
	defer r.lib.mu.Unlock()
	r.bound--
}
