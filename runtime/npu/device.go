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
	Device         acl.DeviceID  // among those that this process sees
	CopyStreams    int           // number of copies that run at a time; 4, as many as a put is divided into
	ScatterStreams int           // number of scatters that run at a time, over all fetches; 4
	StuckAfter     time.Duration // longest time of one copy or scatter on the device; 10 s
	CloseTimeout   time.Duration // how long closing waits for work that had to be aborted; 5 s
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

// A Device is an NPU in use, for one node at a time. Its methods are safe for concurrent use.
type Device struct {
	o       Options
	context *acl.Context

	mu    sync.Mutex
	pools *pools // of the open node; nil if there is none
	taken bool   // a node has the device, or is being opened
}

// ErrBusy: the device belongs to a node that is open, or could not be closed.
var ErrBusy = errors.New("npu: busy")

// ErrClosed: no node is open on the device.
var ErrClosed = errors.New("npu: closed")

// Open takes an NPU into use. The caller closes it after the node. The errors are acl's.
func Open(lib *acl.Library, o Options) (*Device, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	c, err := lib.NewContext(acl.ContextOptions{Device: o.Device, CloseTimeout: o.CloseTimeout})
	if err != nil {
		return nil, fmt.Errorf("npu: device %d: %w", o.Device, err)
	}
	return &Device{o: o, context: c}, nil
}

// Name returns "npu:" and the device's number.
func (d *Device) Name() string { return fmt.Sprintf("npu:%d", d.o.Device) }

// Context returns the device's context, for data planes. They must close what they make in it before the node ends.
func (d *Device) Context() *acl.Context { return d.context }

// Open is the device.Opener of one node. It allocates pools on the device or in pinned host memory. A second node is
// refused with ErrBusy until the first is closed.
func (d *Device) Open(ctx context.Context, env device.Env) (device.Device, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("npu: %s was not opened: %w", d.Name(), err)
	}
	d.mu.Lock()
	if d.taken {
		d.mu.Unlock()
		return nil, fmt.Errorf("%w: %s has a node already; open another Device for another node", ErrBusy, d.Name())
	}
	d.taken = true
	d.mu.Unlock()
	p, err := newPools(ctx, d, env)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		d.taken = false
		return nil, err
	}
	d.pools = p
	return p, nil
}

// opened returns the pools of the open node, or nil.
func (d *Device) opened() *pools {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.pools
}

// release notes that the node is closed.
func (d *Device) release() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pools, d.taken = nil, false
}

// Close releases the NPU. It fails with ErrBusy while a node is open, and with acl's ErrBusy while streams, events or
// memory are open in the context. A second Close does nothing.
func (d *Device) Close() error {
	d.mu.Lock()
	taken := d.taken
	d.mu.Unlock() // unlocked, because work in the context may ask for the node meanwhile
	if taken {
		return fmt.Errorf("%w: %s has a node; close that first", ErrBusy, d.Name())
	}
	if err := d.context.Close(); err != nil {
		return fmt.Errorf("npu: closing %s: %w", d.Name(), err)
	}
	return nil
}

var _ device.Opener = (*Device)(nil).Open
