//go:build cgo && linux

package libnixl

// #include "calls.h"
import "C"

import (
	"fmt"
	"math"
	"slices"
	"unsafe"
)

// Memory is memory that an agent has registered.
type Memory struct {
	agent  *Agent // nil: closed
	kind   Kind
	ranges []Range
}

// RegisterMemory makes memory known to the agent's backend, which both ends of a transfer must do. The memory remains
// the caller's, must not move until Close, and must not be Go's.
func (a *Agent) RegisterMemory(kind Kind, ranges ...Range) (*Memory, error) {
	for _, r := range ranges {
		if r.Address == 0 || r.Bytes == 0 || r.Bytes > math.MaxUint64-r.Address {
			return nil, fmt.Errorf("%w: the range has %d bytes at %#x; give a valid address and size", ErrInvalid, r.Bytes, r.Address)
		}
	}
	m := &Memory{agent: a, kind: kind, ranges: slices.Clone(ranges)}
	if err := m.setRegistered(false); err != nil {
		return nil, err
	}
	return m, nil
}

// Close removes the memory from the backend. That is not a fence: a peer that knew the memory may still reach it (M4).
func (m *Memory) Close() error {
	if m.agent == nil {
		return fmt.Errorf("%w: memory", ErrClosed)
	}
	if err := m.setRegistered(true); err != nil {
		return err
	}
	m.agent = nil
	return nil
}

// setRegistered registers the memory, or deregisters the memory if off is set.
func (m *Memory) setRegistered(off bool) error {
	a := m.agent
	if len(m.ranges) == 0 {
		return fmt.Errorf("%w: there is no range; give at least one", ErrInvalid)
	}
	if err := a.enterCall(); err != nil {
		return err
	}
	defer a.leaveCall()
	list := make([]C.struct_range, 0, len(m.ranges))
	for _, r := range m.ranges {
		list = append(list, C.struct_range{
			address: C.uint64_t(r.Address), bytes: C.uint64_t(r.Bytes), device: C.uint64_t(r.Device),
		})
	}
	deregister := C.int(0)
	if off {
		deregister = 1
	}
	status := C.nixl_call_register(a.handle, C.int(m.kind), unsafe.SliceData(list), C.size_t(len(list)), deregister)
	first := m.ranges[0]
	if err := a.callError(status, "ranges=%d first=%#x bytes=%d", len(list), first.Address, first.Bytes); err != nil {
		return err
	}
	if off {
		a.openChildren--
	} else {
		a.openChildren++
	}
	return nil
}
