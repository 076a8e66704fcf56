package config

import (
	"fmt"
)

// A DeviceKind is the kind of memory that holds a pool.
type DeviceKind uint8

// The kinds of memory.
const (
	DeviceCPU DeviceKind = iota // memory of the host
	DeviceNPU                   // memory of an Ascend NPU
)

// String returns the kind in the form of the key pd_buffer_device.
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

// A Device is the place of the page pool, with the NPU, if any, that serves the pool.
type Device struct {
	Kind DeviceKind
	// Index is the number of the NPU as AscendCL counts (ASCEND_RT_VISIBLE_DEVICES renumbers), which is the same for
	// every rank. If Index is negative, each rank uses a different NPU: see NPUIndex. A pool in host memory has no
	// number.
	Index int
}

// String returns the device in the form of the key pd_buffer_device.
func (d Device) String() string {
	if d.Kind == DeviceCPU || d.Index < 0 {
		return d.Kind.String()
	}
	return fmt.Sprintf("%v:%d", d.Kind, d.Index)
}

// NPUIndex returns the number of the NPU that a rank uses, for the pool itself or for transfer_channel hccl out of host
// memory, on a host with the given number of visible NPUs. If the file has no number, the NPU's number is the rank,
// counted from 0 again if the host has fewer NPUs. This is the device that LMCache-Ascend gives to a worker's engine.
// If the file has a number, the returned NPU may not be visible.
func (d Device) NPUIndex(rank, visible int) int {
	switch {
	case d.Kind == DeviceNPU && d.Index >= 0:
		return d.Index
	case visible > 0:
		return rank % visible
	default:
		return rank
	}
}
