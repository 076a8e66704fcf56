//go:build cgo && linux

package acl

// #include "calls.h"
import "C"

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"
)

// A Place says where memory is.
type Place int

const (
	// OnDevice is the device's own memory, whose addresses are meaningless to ordinary code.
	OnDevice Place = iota + 1
	// OnHost is pinned host memory, which the device can reach.
	OnHost
)

func (p Place) String() string {
	switch p {
	case OnDevice:
		return "device"
	case OnHost:
		return "host"
	}
	return fmt.Sprintf("place %d", int(p))
}

// A Policy says which page size device memory has.
type Policy int

const (
	// HugeFirst uses 2 MiB pages for more than 1 MiB, if there are any.
	HugeFirst Policy = C.ACL_HUGE_FIRST
	// HugeOnly uses 2 MiB pages, or fails with OutOfMemory.
	HugeOnly Policy = C.ACL_HUGE_ONLY
	// NormalOnly uses 4 KiB pages.
	NormalOnly Policy = C.ACL_NORMAL_ONLY
)

// Memory is a range of memory that the device can reach. A Memory belongs to the context in which it was made, and
// stays until Close. Close does not wait for work that uses the memory: the caller must first have the completion of
// that work (M8).
type Memory struct {
	ctx           *Context
	place         Place
	address       C.acl_address
	size          uint64
	deviceAddress C.acl_address // address of registered host memory on the device; zero for other memory
	freeMemory    func(*Thread, *Memory) error
	isAllocation  bool // a whole allocation of the library, of this process
	closed        atomic.Bool
}

// AllocDevice allocates size bytes on the device, at a multiple of 64. Their content is undefined. The error may be
// OutOfMemory. The caller closes the memory.
func (t *Thread) AllocDevice(size uint64, p Policy) (*Memory, error) {
	if size == 0 {
		return nil, fmt.Errorf("%w: an allocation of 0 bytes", ErrInvalid)
	}
	m := &Memory{ctx: t.ctx, place: OnDevice, size: size, freeMemory: freeDevice, isAllocation: true}
	code := C.call_malloc(t.call, C.size_t(size), C.int(p), &m.address)
	if err := t.callError(code, "aclrtMalloc", "size=%d policy=%d", size, p); err != nil {
		return nil, err
	}
	t.ctx.open.deviceAllocs++
	return m, nil
}

func freeDevice(t *Thread, m *Memory) error {
	err := t.callError(C.call_free(t.call, m.address), "aclrtFree", "address=%#x", m.address)
	if err == nil {
		t.ctx.open.deviceAllocs--
	}
	return err
}

// AllocHost allocates size bytes of pinned host memory, at a multiple of 64. Their content is undefined. The error may
// be OutOfMemory. The caller closes the memory.
func (t *Thread) AllocHost(size uint64) (*Memory, error) {
	if size == 0 {
		return nil, fmt.Errorf("%w: an allocation of 0 bytes", ErrInvalid)
	}
	m := &Memory{ctx: t.ctx, place: OnHost, size: size, freeMemory: freeHost}
	code := C.call_malloc_host(t.call, C.size_t(size), &m.address)
	if err := t.callError(code, "aclrtMallocHost", "size=%d", size); err != nil {
		return nil, err
	}
	t.ctx.open.hostAllocs++
	return m, nil
}

func freeHost(t *Thread, m *Memory) error {
	err := t.callError(C.call_free_host(t.call, m.address), "aclrtFreeHost", "address=%#x", m.address)
	if err == nil {
		t.ctx.open.hostAllocs--
	}
	return err
}

// WrapMemory describes memory of another owner, such as the engine's tensors on the device. If the library has the
// functions for this, WrapMemory checks that the memory is in the given place and within a single allocation. Closing
// the Memory frees nothing.
func (t *Thread) WrapMemory(p Place, address uintptr, size uint64) (*Memory, error) {
	if address == 0 || size == 0 || uint64(address)+size < uint64(address) {
		return nil, fmt.Errorf("%w: memory of %d bytes at %#x: give an address and a size", ErrInvalid, size, address)
	}
	m := &Memory{ctx: t.ctx, place: p, address: C.acl_address(address), size: size}
	m.freeMemory = func(*Thread, *Memory) error { return nil }
	var attributes C.struct_acl_ptr_attributes
	err := t.callError(C.call_attributes(t.call, m.address, &attributes), "aclrtPointerGetAttributes", "address=%#x", address)
	switch {
	case errors.Is(err, Unsupported):
		return m, nil
	case err != nil:
		return nil, err
	case (p == OnDevice) != (attributes.location._type == C.ACL_LOCATION_DEVICE), attributes.location._type == C.ACL_LOCATION_UNREGISTERED:
		return nil, fmt.Errorf("%w: the memory at %#x is not %v memory: the library reports location %d", ErrInvalid, address,
			p, attributes.location._type)
	case p != OnDevice:
		return m, nil
	}
	var base C.acl_address
	var length C.size_t
	err = t.callError(C.call_address_range(t.call, m.address, &base, &length), "aclrtMemGetAddressRange", "address=%#x",
		address)
	switch {
	case errors.Is(err, Unsupported):
	case err != nil:
		return nil, err
	case uint64(address)+size > uint64(base)+uint64(length):
		return nil, fmt.Errorf("%w: memory of %d bytes at %#x: the allocation ends at %#x", ErrRange, size, address,
			uint64(base)+uint64(length))
	}
	return m, nil
}

// Close frees the memory at once: no work may be using it. If the library refuses, the memory stays open. A second
// Close does nothing.
func (m *Memory) Close(t *Thread) error {
	if err := t.checkOwner(m.ctx, "memory"); err != nil {
		return err
	}
	if m.closed.Load() {
		return nil
	}
	if err := m.freeMemory(t, m); err != nil {
		return err
	}
	m.closed.Store(true)
	return nil
}

// Place returns where the memory is.
func (m *Memory) Place() Place { return m.place }

// Address returns the address of the first byte: on the device, or in this process.
func (m *Memory) Address() uintptr { return uintptr(m.address) }

// DeviceAddress returns the address on the device of registered host memory, or zero for other memory. Kernels on the
// device use that address; copies do not.
func (m *Memory) DeviceAddress() uintptr { return uintptr(m.deviceAddress) }

// Size returns the size in bytes.
func (m *Memory) Size() uint64 { return m.size }

// Bytes returns host memory as a slice, valid while the memory is open, or nil for device memory.
func (m *Memory) Bytes() []byte {
	if m.place != OnHost || m.closed.Load() {
		return nil
	}
	return unsafe.Slice((*byte)(C.call_pointer(m.address)), m.size)
}

// A Range is part of a Memory: Size bytes from Offset.
type Range struct {
	Memory *Memory
	Offset uint64
	Size   uint64
}

// FullRange returns the whole memory as a range.
func (m *Memory) FullRange() Range { return Range{Memory: m, Size: m.size} }

// Range returns size bytes of the memory from offset on. The methods that use a Range check the bounds.
func (m *Memory) Range(offset, size uint64) Range {
	return Range{Memory: m, Offset: offset, Size: size}
}

// checkAccess refuses a range that t's device must not touch.
func (r Range) checkAccess(t *Thread, what string) error {
	m := r.Memory
	switch {
	case m == nil:
		return fmt.Errorf("%w: the %s has no memory", ErrInvalid, what)
	case m.closed.Load():
		return fmt.Errorf("%w: the memory of the %s", ErrClosed, what)
	case m.ctx.lib != t.lib, m.place == OnDevice && m.ctx.device != t.ctx.device:
		return fmt.Errorf("%w: the memory of the %s belongs to another device", ErrWrongContext, what)
	case r.Offset > m.size, r.Size > m.size-r.Offset:
		return fmt.Errorf("%w: the %s has %d bytes at offset %d, but the memory has %d bytes", ErrRange, what, r.Size, r.Offset,
			m.size)
	}
	return nil
}

func (r Range) startAddress() C.acl_address { return r.Memory.address + C.acl_address(r.Offset) }

// MemInfo holds how much memory the context's device has, in bytes.
type MemInfo struct{ Free, Total uint64 }

// MemInfo returns the size of the device's memory: HBM, or DDR on chips without HBM.
func (t *Thread) MemInfo() (MemInfo, error) {
	for _, attribute := range []C.int{C.ACL_MEM_HBM, C.ACL_MEM_DDR} {
		var available, total C.size_t
		err := t.callError(C.call_mem_info(t.call, attribute, &available, &total), "aclrtGetMemInfo", "attribute=%d", attribute)
		if err != nil {
			return MemInfo{}, err
		}
		if total != 0 { // two zeros mean that the chip does not know the attribute
			return MemInfo{Free: uint64(available), Total: uint64(total)}, nil
		}
	}
	return MemInfo{}, fmt.Errorf("%w: the device does not report the size of its memory", Unsupported)
}
