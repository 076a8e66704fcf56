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

// memoryType returns the library's number of the place.
func (m Memory) memoryType() C.int {
	if m.Place == acl.OnHost {
		return C.HCCL_MEM_HOST
	}
	return C.HCCL_MEM_DEVICE
}

// containsRange reports whether a range lies within the memory.
func (m Memory) containsRange(address uintptr, size uint64) bool {
	return address >= m.Address && uint64(address-m.Address) <= m.Size && size <= m.Size-uint64(address-m.Address)
}

// A Region is registered memory. The memory must stay until Close.
type Region struct {
	lib    *Library
	device acl.DeviceID
	memory Memory
	handle C.hccl_handle // of global memory; zero in the older sequence, where communicators register memory
	users  int           // number of communicators; the library's lock guards this and closed
	closed bool
}

// RegisterMemory makes memory known to HCCL on the thread's device. A peer can reach the memory only once a
// communicator has bound it. The caller closes the Region. Registering the same memory twice fails with ErrInvalid.
// acl.Exhausted means that the library's limit of registrations is reached, 256 for the process before CANN 9.
func (l *Library) RegisterMemory(at acl.CurrentThread, m Memory) (*Region, error) {
	if err := at.CheckThread(); err != nil {
		return nil, err
	}
	if m.Place != acl.OnDevice && m.Place != acl.OnHost || m.Address == 0 || m.Size == 0 ||
		uint64(m.Address)+m.Size < m.Size {
		return nil, fmt.Errorf("%w: cannot register %v", ErrInvalid, m)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, fmt.Errorf("%w: the library", ErrClosed)
	}
	objects := l.objectsOn(at.Device())
	if _, registered := objects.regions[m]; registered {
		// The library would return the same handle without counting, so that the first Close would end both
		// registrations.
		return nil, fmt.Errorf("%w: %v is registered already", ErrInvalid, m)
	}
	r := &Region{lib: l, device: at.Device(), memory: m}
	if l.info.Sequence == Global {
		code := C.hccl_register(l.api, m.memoryType(), C.hccl_address(m.Address), C.uint64_t(m.Size), &r.handle)
		err := l.callError(at, code, "HcclRegisterGlobalMem", "type=%d address=%#x size=%d", m.memoryType(), m.Address, m.Size)
		if err != nil {
			return nil, err
		}
	}
	objects.regions[m] = struct{}{}
	return r, nil
}

// Memory returns what is registered.
func (r *Region) Memory() Memory { return r.memory }

// Close ends the registration, which removes the memory from the NIC. While a communicator has the region bound, the
// error is ErrBusy. So is the error for the last region of a device while any communicator exists there, because the
// library would close the NIC under that communicator. After an error of the library Close may be called again. A
// second Close does nothing.
func (r *Region) Close(at acl.CurrentThread) error {
	if err := at.CheckThread(); err != nil {
		return err
	}
	if at.Device() != r.device {
		return fmt.Errorf("%w: a region of device %d, on a thread of device %d", ErrWrongOwner, r.device, at.Device())
	}
	l := r.lib
	l.mu.Lock()
	defer l.mu.Unlock()
	objects := l.objectsOn(r.device)
	switch {
	case r.closed:
		return nil
	case r.users != 0:
		return fmt.Errorf("%w: %v is bound to %d communicators: close them first", ErrBusy, r.memory, r.users)
	case len(objects.regions) == 1 && objects.comms != 0:
		return fmt.Errorf("%w: %v is the last region of device %d, which has %d communicators: close them first", ErrBusy,
			r.memory, r.device, objects.comms)
	}
	if l.info.Sequence == Global {
		if err := l.callError(at, C.hccl_deregister(l.api, r.handle), "HcclDeregisterGlobalMem", "handle=%#x",
			r.handle); err != nil {
			return err
		}
	}
	r.closed = true
	delete(objects.regions, r.memory)
	return nil
}

// addUser and release count the communicators that have the region bound.
func (r *Region) addUser(l *Library, device acl.DeviceID) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case r.lib != l || r.device != device:
		return fmt.Errorf("%w: a region of device %d, to a communicator of device %d", ErrWrongOwner, r.device, device)
	case r.closed:
		return fmt.Errorf("%w: the region", ErrClosed)
	}
	r.users++
	return nil
}

func (r *Region) removeUser() {
	r.lib.mu.Lock()
	defer r.lib.mu.Unlock()
	r.users--
}
