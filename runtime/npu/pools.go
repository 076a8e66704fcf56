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

// pools is a node's memory on a device, and implements device.Device.
type pools struct {
	d       *Device
	log     *slog.Logger
	all     []*pool // the engine's pool, and the second pool if there is a second
	leased  *plane.LeasedPool
	sink    plane.Sink
	copies  *copies
	scatter *workQueue
	marks   marks

	export   *acl.Export // of the pool in device memory; nil: not exported
	exported *device.Export
	admitted struct {
		sync.Mutex
		processes map[int32]int // how often each process is admitted
	}
}

// newPools allocates the pools of env, unless ctx ends. After an error nothing stays allocated.
func newPools(ctx context.Context, d *Device, env device.Env) (*pools, error) {
	p := &pools{
		d: d, log: env.Log, sink: env.Sink, scatter: newWorkQueue(d.context, d.o.ScatterStreams),
	}
	if p.log == nil {
		p.log = slog.Default()
	}
	p.copies = newCopies(p, newWorkQueue(d.context, d.o.CopyStreams))
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
		return p.copies.workQueue.open(t)
	})
	if err == nil {
		err = p.lease(env)
	}
	if err == nil {
		return p, nil
	}
	err = fmt.Errorf("npu: %s: %w", d.Name(), err)
	if left := p.freeAll(); left != nil {
		// Try again: the failure may be temporary, and a node that was never opened cannot be closed later.
		if left = p.freeAll(); left != nil {
			err = errors.Join(err, fmt.Errorf("and not all could be given back: %w", left))
		}
	}
	return nil, err
}

// lease makes the table of grants and leases over the pools, all of which peers can reach.
func (p *pools) lease(env device.Env) (err error) {
	served := p.all[0]
	c := plane.LeasedPoolConfig{
		ID: served.ID, Buffer: env.Buffer, Pages: served.Pages, PageBytes: served.PageBytes, Region: served.region(),
		Sink: env.Sink,
	}
	if env.Second != nil {
		second := p.all[1]
		c.SecondPool = plane.SecondPool{Buffer: env.SecondBuffer, Pages: second.Pages, Region: second.region()}
	}
	p.leased, err = plane.NewLeasedPool(c)
	return err
}

// Name implements device.Device.
func (p *pools) Name() string { return p.d.Name() }

// LeasedPool implements device.Device.
func (p *pools) LeasedPool() *plane.LeasedPool { return p.leased }

// PageAddress implements device.Device.
func (p *pools) PageAddress(page effects.Page) uintptr {
	r := p.rangeOf(page)
	return r.Memory.Address() + uintptr(r.Offset)
}

// PageBytes implements device.Device.
func (p *pools) PageBytes(page effects.Page) []byte {
	r := p.rangeOf(page)
	bytes := r.Memory.Bytes()
	if bytes == nil {
		return nil
	}
	return bytes[r.Offset : r.Offset+r.Size : r.Offset+r.Size]
}

// open exports the pool in device memory for engines in separate processes.
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

// ExportedPool implements device.Device.
func (p *pools) ExportedPool() *device.Export { return p.exported }

// AdmitProcess implements device.Device. The mutex is not held while the library is called, so that Depart never waits
// for a device.
func (p *pools) AdmitProcess(process int32) error {
	if !p.count(process) {
		return fmt.Errorf("%w: %s exports nothing", ErrClosed, p.Name())
	}
	// Repeat the call for a process that is already admitted: the number may have belonged to an earlier process.
	if err := p.d.context.Do(func(t *acl.Thread) error { return p.export.Admit(t, process) }); err != nil {
		p.RemoveProcess(process)
		return fmt.Errorf("npu: admitting process %d to %s: %w", process, p.Name(), err)
	}
	return nil
}

// count records that a process may import the memory from now on. The result is false if nothing is exported.
func (p *pools) count(process int32) bool {
	p.admitted.Lock()
	defer p.admitted.Unlock()
	if p.admitted.processes == nil {
		return false
	}
	p.admitted.processes[process]++
	return true
}

// RemoveProcess implements device.Device.
func (p *pools) RemoveProcess(process int32) {
	p.admitted.Lock()
	defer p.admitted.Unlock()
	if p.admitted.processes[process] > 1 {
		p.admitted.processes[process]--
	} else {
		delete(p.admitted.processes, process)
	}
}

// unexport ends the export, unless a process may have the memory imported. No process is admitted afterwards.
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

// AttachableFile implements device.Device.
func (p *pools) AttachableFile() *os.File { return p.all[0].file }

// StartCopy implements device.Device.
func (p *pools) StartCopy(e *effects.Copy) { p.copies.start(e) }

// CancelCopy implements device.Device.
func (p *pools) CancelCopy(corr effects.Corr) { p.copies.cancel(corr) }

// rangeOf returns where the valid bytes of a page are.
func (p *pools) rangeOf(page effects.Page) acl.Range {
	for _, pool := range p.all {
		if at := page.Index - pool.base; pool.ID == page.Pool && page.Index >= pool.base && at < pool.Pages &&
			uint64(page.Length) <= pool.PageBytes {
			return pool.memory.Range(pool.first+uint64(at)*pool.PageBytes, uint64(page.Length))
		}
	}
	panic(fmt.Sprintf("BUG: the machine speaks of page %d of pool %d with %d bytes, which %s does not have", page.Index,
		page.Pool, page.Length, p.Name()))
}

// at returns the range of an address in the pools.
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

// Range returns where a page is, for work that an engine puts into the engine's streams on the device. If no node is
// open, the error is ErrClosed.
func (d *Device) Range(page device.Page) (acl.Range, error) {
	p := d.opened()
	if p == nil {
		return acl.Range{}, fmt.Errorf("%w: %s", ErrClosed, d.Name())
	}
	return p.at(page)
}

// Close implements device.Device. Close ends the work first, then the streams, and then frees the memory (M4). After an
// error Close may be called again; until a call succeeds the device accepts no new node.
func (p *pools) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.d.o.StuckAfter)
	defer cancel()
	err := errors.Join(p.copies.workQueue.close(ctx, p.d.o.CloseTimeout), p.scatter.close(ctx, p.d.o.CloseTimeout))
	if err == nil {
		err = p.freeAll()
	}
	if err != nil {
		return fmt.Errorf("npu: closing the pools of %s: %w", p.Name(), err)
	}
	p.d.release()
	return nil
}

// freeAll frees streams, events and memory, none of which is in use.
func (p *pools) freeAll() error {
	err := errors.Join(p.copies.workQueue.clear(), p.scatter.clear())
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
