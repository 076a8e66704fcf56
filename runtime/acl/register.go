//go:build cgo && linux

package acl

// #include "calls.h"
import "C"

import (
	"errors"
	"fmt"
	"unsafe"
)

// registerAlign is the required alignment of host memory to be registered, in bytes.
const registerAlign = 4096

// RegisterHost pins existing host memory and opens it to the device. The memory must be a separate mapping, made by
// mmap, at a multiple of 4096, and must stay mapped until Close: memory of Go's heap can neither be pinned nor outlive
// its slice. Kernels up to 5.10 refuse to register host memory; AllocHost works on all kernels.
//
// For memory that is registered already the error is Bug, and on old libraries Unsupported.
func (t *Thread) RegisterHost(mapping []byte) (*Memory, error) {
	start := unsafe.Pointer(unsafe.SliceData(mapping))
	if len(mapping) == 0 || uintptr(start)%registerAlign != 0 {
		return nil, fmt.Errorf("%w: a mapping of %d bytes at %p: it must start at a multiple of %d", ErrInvalid, len(mapping),
			start, registerAlign)
	}
	if !t.lib.HasSymbol("aclrtHostUnregister") {
		// Without that function the registration could not be ended.
		return nil, &MissingError{Symbol: "aclrtHostUnregister", Library: t.lib.info.Library}
	}
	m := &Memory{ctx: t.ctx, place: OnHost, address: C.acl_address(uintptr(start)), size: uint64(len(mapping)),
		freeMemory: freeRegistered}
	err := t.callError(C.call_host_register(t.call, m.address, C.uint64_t(m.size), &m.deviceAddress), "aclrtHostRegister",
		"address=%#x size=%d type=mapped", m.address, m.size)
	if errors.Is(err, Unsupported) {
		err = t.registerHostV2(m)
	}
	if err != nil {
		return nil, err
	}
	t.ctx.open.hostAllocs++
	return m, nil
}

// registerHostV2 uses the newer pair of calls.
func (t *Thread) registerHostV2(m *Memory) error {
	err := t.callError(C.call_host_register_v2(t.call, m.address, C.uint64_t(m.size)), "aclrtHostRegisterV2",
		"address=%#x size=%d flags=mapped|pinned", m.address, m.size)
	if err != nil {
		return err
	}
	err = t.callError(C.call_host_mapped(t.call, m.address, &m.deviceAddress), "aclrtHostGetDevicePointer", "address=%#x", m.address)
	switch {
	case errors.Is(err, Unsupported):
		return nil // copies do not need that address
	case err != nil:
		return errors.Join(err, t.unregisterHost(m.address))
	}
	return nil
}

func (t *Thread) unregisterHost(address C.acl_address) error {
	return t.callError(C.call_host_unregister(t.call, address), "aclrtHostUnregister", "address=%#x", address)
}

func freeRegistered(t *Thread, m *Memory) error {
	err := t.unregisterHost(m.address)
	if err == nil {
		t.ctx.open.hostAllocs--
	}
	return err
}
