//go:build cgo && linux

package npu

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kvferry/kvferry/runtime/acl"
	"github.com/kvferry/kvferry/runtime/device"
)

// Options describes a device. Zero fields mean their defaults.
type Options struct {
	Device         acl.DeviceID  // among the devices that are visible to this process
	CopyStreams    int           // number of copies that run at a time; 4, as many as a put is divided into
	ScatterStreams int           // number of scatters that run at a time, over all fetches; 4
	StuckAfter     time.Duration // longest time of a copy or scatter on the device; 10 s
	CloseTimeout   time.Duration // how long a close waits for aborted work; 5 s
}

func (o Options) withDefaults() (Options, error) {
	for _, field := range []struct {
		name  string
		value *int
	}{{"CopyStreams", &o.CopyStreams}, {"ScatterStreams", &o.ScatterStreams}} {
		if *field.value == 0 {
			*field.value = 4
		}
		if *field.value < 0 {
			return o, fmt.Errorf("npu: %s is %d: give a positive number", field.name, *field.value)
		}
	}
	for _, field := range []struct {
		name  string
		value *time.Duration
		usual time.Duration
	}{{"StuckAfter", &o.StuckAfter, 10 * time.Second}, {"CloseTimeout", &o.CloseTimeout, 5 * time.Second}} {
		if *field.value == 0 {
			*field.value = field.usual
		}
		if *field.value < 0 {
			return o, fmt.Errorf("npu: %s is %v: give a positive duration", field.name, *field.value)
		}
	}
	return o, nil
}

// A Device is an NPU in use, for one node at a time. The methods are safe for concurrent use.
type Device struct {
	options Options
	context *acl.Context

	mu     sync.Mutex
	memory *nodeMemory // of the open node; nil if there is none
	inUse  bool        // a node uses the device, or is being opened
}

// ErrBusy: the device belongs to a node that is open, or could not be closed.
var ErrBusy = errors.New("npu: busy")

// ErrClosed: no node is open on the device.
var ErrClosed = errors.New("npu: closed")

// Open starts to use an NPU. The caller closes the Device after the node. The errors wrap errors of package acl.
func Open(lib *acl.Library, o Options) (*Device, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	c, err := lib.NewContext(acl.ContextOptions{Device: o.Device, CloseTimeout: o.CloseTimeout})
	if err != nil {
		return nil, fmt.Errorf("npu: device %d: %w", o.Device, err)
	}
	return &Device{options: o, context: c}, nil
}

// Name returns "npu:" and the device's number.
func (d *Device) Name() string { return fmt.Sprintf("npu:%d", d.options.Device) }

// Context returns the device's context, for data planes. A plane must close all objects that it makes in the context
// before the node ends.
func (d *Device) Context() *acl.Context { return d.context }

// Open is the device.Opener of a node: a method that allocates pools on the device or in pinned host memory. A second
// node is refused with ErrBusy until the first node is closed.
func (d *Device) Open(ctx context.Context, env device.Env) (device.Device, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("npu: %s was not opened: %w", d.Name(), err)
	}
	d.mu.Lock()
	if d.inUse {
		d.mu.Unlock()
		return nil, fmt.Errorf("%w: a node uses %s already; open another Device for a second node", ErrBusy, d.Name())
	}
	d.inUse = true
	d.mu.Unlock()
	p, err := newNodeMemory(ctx, d, env)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		d.inUse = false
		return nil, err
	}
	d.memory = p
	return p, nil
}

// openMemory returns the pools of the open node, or nil.
func (d *Device) openMemory() *nodeMemory {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.memory
}

// releaseNode records that the node is closed.
func (d *Device) releaseNode() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.memory, d.inUse = nil, false
}

// Close releases the NPU. While a node is open, the error is ErrBusy; while streams, events or memory are open in the
// context, the error is acl.ErrBusy. A second Close does nothing.
func (d *Device) Close() error {
	d.mu.Lock()
	inUse := d.inUse
	d.mu.Unlock() // unlocked, because work in the context may ask for the node meanwhile
	if inUse {
		return fmt.Errorf("%w: a node uses %s; close the node first", ErrBusy, d.Name())
	}
	if err := d.context.Close(); err != nil {
		return fmt.Errorf("npu: closing %s: %w", d.Name(), err)
	}
	return nil
}

var _ device.Opener = (*Device)(nil).Open
