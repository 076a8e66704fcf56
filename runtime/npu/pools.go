//go:build cgo && linux

package npu

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/acl"
	"github.com/kvferry/kvferry/runtime/device"
	"github.com/kvferry/kvferry/runtime/plane"
)

// pools are a node's memory on a device: the device.Device that a node sees.
type pools struct {
	d       *Device
	log     *slog.Logger
	all     []*pool // the engine's, and the second one
	leased  *plane.LeasedPool
	sink    plane.Sink
	copies  *copies
	scatter *yard
	marks   marks

	export   *acl.Export // of the pool in the device's memory; nil: it is not exported
	exported *device.Export
	admitted struct {
		sync.Mutex
		processes map[int32]int // how often each is admitted
	}
}

// newPools allocates what env wants, as long as ctx lasts. With an error nothing stays allocated.
func newPools(ctx context.Context, d *Device, env device.Env) (*pools, error) {
	p := &pools{
		d: d, log: env.Log, sink: env.Sink, scatter: newYard(d.context, d.o.ScatterStreams),
	}
	if p.log == nil {
		p.log = slog.Default()
	}
	p.copies = newCopies(p, newYard(d.context, d.o.CopyStreams))
	wanted := []device.Pool{env.Engine}
	if env.Second != nil {
		wanted = append(wanted, *env.Second)
	}
	err := d.context.Do(func(t *acl.Thread) error {
		for _, w := range wanted {
			pool, err := newPool(w)
			if err != nil {
				return err
			}
			if len(p.all) > 0 {
				pool.base = env.Engine.Pages
			}
			p.all = append(p.all, pool)
			if err := pool.allocate(ctx, t); err != nil {
				return err
			}
		}
		if err := p.open(t); err != nil {
			return err
		}
		if env.Arena == 0 {
			return nil
		}
		return p.copies.yard.open(t)
	})
	if err == nil {
		err = p.lease(env)
	}
	if err == nil {
		return p, nil
	}
	err = fmt.Errorf("npu: %s: %w", d.Name(), err)
	if left := p.giveBack(); left != nil {
		// Once more: a failure may pass, and nobody can close what was never opened.
		if left = p.giveBack(); left != nil {
			err = errors.Join(err, fmt.Errorf("and not all could be given back: %w", left))
		}
	}
	return nil, err
}

// lease makes the book of the pools, all of which peers reach.
func (p *pools) lease(env device.Env) (err error) {
	served := p.all[0]
	c := plane.LeasedPoolConfig{
		ID: served.ID, Buffer: env.Buffer, Pages: served.Pages, PageBytes: served.PageBytes, Served: served.region(),
		Sink: env.Sink,
	}
	if env.Second != nil {
		second := p.all[1]
		c.Second = plane.SecondPool{Buffer: env.SecondBuffer, Pages: second.Pages, Region: second.region()}
	}
	p.leased, err = plane.NewLeasedPool(c)
	return err
}

// Name implements device.Device.
func (p *pools) Name() string { return p.d.Name() }

// Leased implements device.Device.
func (p *pools) Leased() *plane.LeasedPool { return p.leased }

// Address implements device.Device.
func (p *pools) Address(page effects.Page) uintptr {
	r := p.of(page)
	return r.Memory.Address() + uintptr(r.Offset)
}

// Bytes implements device.Device.
func (p *pools) Bytes(page effects.Page) []byte {
	r := p.of(page)
	bytes := r.Memory.Bytes()
	if bytes == nil {
		return nil
	}
	return bytes[r.Offset : r.Offset+r.Size : r.Offset+r.Size]
}

// open exports the pool in the device's memory that engines of other processes are to have.
func (p *pools) open(t *acl.Thread) error {
	at := slices.IndexFunc(p.all, func(x *pool) bool { return !x.Host && x.Attachable })
	if at < 0 {
		return nil
	}
	exported := p.all[at]
	physical, err := p.d.context.Library().PhysicalID(p.d.o.Device)
	if err == nil {
		p.export, err = t.Export(exported.memory)
	}
	if errors.Is(err, acl.Unsupported) {
		key := "pd_buffer_device: cpu"
		if at > 0 {
			key = "p2p_use_npu: false"
		}
		err = fmt.Errorf("engines of other processes cannot be given memory of the NPU: %w; or set %s, or embed the node in "+
			"the engine's process", err, key)
	}
	if err != nil {
		return err
	}
	p.admitted.processes = map[int32]int{}
	p.exported = &device.Export{Key: p.export.Key(), Physical: int(physical), Offset: exported.first,
		Bytes: exported.first + exported.bytes}
	return nil
}

// Exported implements device.Device.
func (p *pools) Exported() *device.Export { return p.exported }

// Admit implements device.Device. The mutex is not held while the library is called: Depart must not wait for a device.
func (p *pools) Admit(process int32) error {
	if !p.count(process) {
		return fmt.Errorf("%w: %s exports nothing", ErrClosed, p.Name())
	}
	// Again for a process that is admitted: its number may have been another process's before.
	if err := p.d.context.Do(func(t *acl.Thread) error { return p.export.Admit(t, process) }); err != nil {
		p.Depart(process)
		return fmt.Errorf("npu: admitting process %d to %s: %w", process, p.Name(), err)
	}
	return nil
}

// count notes that a process may have the memory imported from now on; false: nothing is exported.
func (p *pools) count(process int32) bool {
	p.admitted.Lock()
	defer p.admitted.Unlock()
	if p.admitted.processes == nil {
		return false
	}
	p.admitted.processes[process]++
	return true
}

// Depart implements device.Device.
func (p *pools) Depart(process int32) {
	p.admitted.Lock()
	defer p.admitted.Unlock()
	if p.admitted.processes[process] > 1 {
		p.admitted.processes[process]--
	} else {
		delete(p.admitted.processes, process)
	}
}

// unexport takes the export back, unless a process may have it imported. No process is admitted after that.
func (p *pools) unexport(t *acl.Thread) error {
	if p.export == nil {
		return nil
	}
	p.admitted.Lock()
	n := len(p.admitted.processes)
	if n == 0 {
		p.admitted.processes = nil
	}
	p.admitted.Unlock()
	if n > 0 {
		return fmt.Errorf("%w: %d processes may have memory of %s imported; its memory stays until they detach or end",
			ErrBusy, n, p.Name())
	}
	return p.export.Close(t)
}

// Attachable implements device.Device.
func (p *pools) Attachable() *os.File { return p.all[0].file }

// Copy implements device.Device.
func (p *pools) Copy(e *effects.Copy) { p.copies.start(e) }

// Cancel implements device.Device.
func (p *pools) Cancel(corr effects.Corr) { p.copies.cancel(corr) }

// of is where the valid bytes of a page are.
func (p *pools) of(page effects.Page) acl.Range {
	for _, pool := range p.all {
		if at := page.Index - pool.base; pool.ID == page.Pool && page.Index >= pool.base && at < pool.Pages &&
			uint64(page.Length) <= pool.PageBytes {
			return pool.memory.Range(pool.first+uint64(at)*pool.PageBytes, uint64(page.Length))
		}
	}
	panic(fmt.Sprintf("BUG: the machine speaks of page %d of pool %d with %d bytes, which %s does not have", page.Index,
		page.Pool, page.Length, p.Name()))
}

// at is the range of an address in one of the pools.
func (p *pools) at(where device.Page) (acl.Range, error) {
	for _, pool := range p.all {
		r := pool.region()
		if where.Address >= r.Base && uint64(where.Address-r.Base) < r.Bytes &&
			uint64(where.Bytes) <= r.Bytes-uint64(where.Address-r.Base) {
			return pool.memory.Range(pool.first+uint64(where.Address-r.Base), uint64(where.Bytes)), nil
		}
	}
	return acl.Range{}, fmt.Errorf("%w: %d bytes at %#x are in no pool of %s", acl.ErrRange, where.Bytes, where.Address,
		p.Name())
}

// Range is where a page is, for work that an engine puts into streams of its own on the device. ErrClosed: no
// node is open.
func (d *Device) Range(page device.Page) (acl.Range, error) {
	p := d.opened()
	if p == nil {
		return acl.Range{}, fmt.Errorf("%w: %s", ErrClosed, d.Name())
	}
	return p.at(page)
}

// Close implements device.Device: what runs first, then the streams, then the memory. After an error it may be
// called again; until it succeeds the device takes no other node.
func (p *pools) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.d.o.StuckAfter)
	defer cancel()
	err := errors.Join(p.copies.yard.close(ctx, p.d.o.CloseTimeout), p.scatter.close(ctx, p.d.o.CloseTimeout))
	if err == nil {
		err = p.giveBack()
	}
	if err != nil {
		return fmt.Errorf("npu: closing the pools of %s: %w", p.Name(), err)
	}
	p.d.left()
	return nil
}

// giveBack gives streams, events and memory back, of which nothing is in use.
func (p *pools) giveBack() error {
	err := errors.Join(p.copies.yard.clear(), p.scatter.clear())
	return errors.Join(err, p.d.context.Do(func(t *acl.Thread) error {
		if err := p.unexport(t); err != nil {
			return err
		}
		errs := []error{p.marks.close(t)}
		for _, pool := range p.all {
			errs = append(errs, pool.free(t))
		}
		return errors.Join(errs...)
	}))
}
