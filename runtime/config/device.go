package config

import (
	"fmt"
)

// A DeviceKind says what kind of memory a pool is of.
type DeviceKind uint8

// The kinds of memory.
const (
	DeviceCPU DeviceKind = iota // memory of the host
	DeviceNPU                   // memory of an Ascend NPU
)

// String returns the kind as pd_buffer_device has it.
func (k DeviceKind) String() string {
	switch k {
	case DeviceCPU:
		return "cpu"
	case DeviceNPU:
		return "npu"
	default:
		return fmt.Sprintf("device(%d)", uint8(k))
	}
}

// A Device is where the page pool lies, and which NPU serves it where one does.
type Device struct {
	Kind DeviceKind
	// Index is the NPU's number as AscendCL counts (ASCEND_RT_VISIBLE_DEVICES renumbers), the same for every rank, or
	// negative, which gives each rank one of its own: see Of. A pool of host memory has no number.
	Index int
}

// String returns the device as pd_buffer_device has it.
func (d Device) String() string {
	if d.Kind == DeviceCPU || d.Index < 0 {
		return d.Kind.String()
	}
	return fmt.Sprintf("%v:%d", d.Kind, d.Index)
}

// Of returns the number of the NPU that rank uses where visible of them are: for the pool itself, and for
// transfer_channel hccl
// out of host memory. Without a number it is the rank's, counted from the start again where a host has fewer, which is
// the device
// that LMCache-Ascend gives to a worker's engine. The result need not be visible where the file has a number.
func (d Device) Of(rank, visible int) int {
	switch {
	case d.Kind == DeviceNPU && d.Index >= 0:
		return d.Index
	case visible > 0:
		return rank % visible
	default:
		return rank
	}
}
