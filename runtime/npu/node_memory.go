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

// nodeMemory is a node's memory on a device, and implements device.Device.
type nodeMemory struct {
	device     *Device
	log        *slog.Logger
	pools      []*pool // the engine's pool, and the second pool if there is a second
	leasedPool *plane.LeasedPool
	sink       plane.Sink
	copies     *copyRunner
	scatter    *workQueue
	marks      readMarks

	export   *acl.Export // of the pool in device memory; nil: not exported
	exported *device.Export
	admitted struct {
		sync.Mutex
		processes map[int32]int // how often each process is admitted
	}
}

// newNodeMemory allocates the pools of env, unless ctx ends. After an error nothing stays allocated.
func newNodeMemory(ctx context.Context, d *Device, env device.Env) (*nodeMemory, error) {
	p := &nodeMemory{
		device: d, log: env.Log, sink: env.Sink, scatter: newWorkQueue(d.context, d.options.ScatterStreams),
	}
	if p.log == nil {
		p.log = slog.Default()
	}
	p.copies = newCopyRunner(p, newWorkQueue(d.context, d.options.CopyStreams))
	specs := []device.Pool{env.Engine}
	if env.Second != nil {
		specs = append(specs, *env.Second)
	}
	err := d.context.Do(func(t *acl.Thread) error {
		for _, w := range specs {
			pool, err := newPool(w)
			if err != nil {
				return err
			}
			if len(p.pools) > 0 {
				pool.firstPage = env.Engine.Pages
			}
			p.pools = append(p.pools, pool)
			if err := pool.allocateMemory(ctx, t); err != nil {
				return err
			}
		}
		if err := p.exportPool(t); err != nil {
			return err
		}
		if env.Arena == 0 {
			return nil
		}
		return p.copies.workQueue.openStreams(t)
	})
	if err == nil {
		err = p.makeLeasedPool(env)
	}
	if err == nil {
		return p, nil
	}
	err = fmt.Errorf("npu: %s: %w", d.Name(), err)
	if freeErr := p.freeAll(); freeErr != nil {
		// Try again: the failure may be temporary, and a node that was never opened cannot be closed later.
		if freeErr = p.freeAll(); freeErr != nil {
			err = errors.Join(err, fmt.Errorf("and not all objects could be freed: %w", freeErr))
		}
	}
	return nil, err
}

// makeLeasedPool makes the table of grants and leases over the pools, all of which peers can reach.
func (p *nodeMemory) makeLeasedPool(env device.Env) (err error) {
	served := p.pools[0]
	c := plane.LeasedPoolConfig{
		ID: served.ID, Buffer: env.Buffer, Pages: served.Pages, PageBytes: served.PageBytes, Region: served.memoryRegion(),
		Sink: env.Sink,
	}
	if env.Second != nil {
		second := p.pools[1]
		c.SecondPool = plane.SecondPool{Buffer: env.SecondBuffer, Pages: second.Pages, Region: second.memoryRegion()}
	}
	p.leasedPool, err = plane.NewLeasedPool(c)
	return err
}

// Name implements device.Device.
func (p *nodeMemory) Name() string { return p.device.Name() }

// LeasedPool implements device.Device.
func (p *nodeMemory) LeasedPool() *plane.LeasedPool { return p.leasedPool }

// PageAddress implements device.Device.
func (p *nodeMemory) PageAddress(page effects.Page) uintptr {
	r := p.pageRange(page)
	return r.Memory.Address() + uintptr(r.Offset)
}

// PageBytes implements device.Device.
func (p *nodeMemory) PageBytes(page effects.Page) []byte {
	r := p.pageRange(page)
	bytes := r.Memory.Bytes()
	if bytes == nil {
		return nil
	}
	return bytes[r.Offset : r.Offset+r.Size : r.Offset+r.Size]
}

// exportPool exports the pool in device memory for engines in separate processes.
func (p *nodeMemory) exportPool(t *acl.Thread) error {
	index := slices.IndexFunc(p.pools, func(x *pool) bool { return !x.Host && x.Attachable })
	if index < 0 {
		return nil
	}
	exported := p.pools[index]
	physical, err := p.device.context.Library().PhysicalID(p.device.options.Device)
	if err == nil {
		p.export, err = t.Export(exported.memory)
	}
	if errors.Is(err, acl.Unsupported) {
		key := "pd_buffer_device: cpu"
		if index > 0 {
			key = "p2p_use_npu: false"
		}
		err = fmt.Errorf("memory of the NPU cannot be exported to engines of other processes: %w; or set %s, or embed the node in "+
			"the engine's process", err, key)
	}
	if err != nil {
		return err
	}
	p.admitted.processes = map[int32]int{}
	p.exported = &device.Export{Key: p.export.Key(), Physical: int(physical), Offset: exported.offset,
		Bytes: exported.offset + exported.bytes}
	return nil
}

// ExportedPool implements device.Device.
func (p *nodeMemory) ExportedPool() *device.Export { return p.exported }

// AdmitProcess implements device.Device. The mutex is not held while the library is called, so that RemoveProcess
// never waits for a device.
func (p *nodeMemory) AdmitProcess(process int32) error {
	if !p.countAdmission(process) {
		return fmt.Errorf("%w: %s exports nothing", ErrClosed, p.Name())
	}
	// Repeat the call for a process that is already admitted: the number may have belonged to an earlier process.
	if err := p.device.context.Do(func(t *acl.Thread) error { return p.export.AdmitProcess(t, process) }); err != nil {
		p.RemoveProcess(process)
		return fmt.Errorf("npu: admitting process %d to %s: %w", process, p.Name(), err)
	}
	return nil
}

// countAdmission records that a process may import the memory from now on. The result is false if nothing is exported.
func (p *nodeMemory) countAdmission(process int32) bool {
	p.admitted.Lock()
	defer p.admitted.Unlock()
	if p.admitted.processes == nil {
		return false
	}
	p.admitted.processes[process]++
	return true
}

// RemoveProcess implements device.Device.
func (p *nodeMemory) RemoveProcess(process int32) {
	p.admitted.Lock()
	defer p.admitted.Unlock()
	if p.admitted.processes[process] > 1 {
		p.admitted.processes[process]--
	} else {
		delete(p.admitted.processes, process)
	}
}

// endExport ends the export, unless a process may have the memory imported. No process is admitted afterwards.
func (p *nodeMemory) endExport(t *acl.Thread) error {
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
		return fmt.Errorf("%w: %d processes may have imported memory of %s; the memory stays until these processes detach or end",
			ErrBusy, n, p.Name())
	}
	return p.export.Close(t)
}

// AttachableFile implements device.Device.
func (p *nodeMemory) AttachableFile() *os.File { return p.pools[0].file }

// StartCopy implements device.Device.
func (p *nodeMemory) StartCopy(e *effects.Copy) { p.copies.startCopy(e) }

// CancelCopy implements device.Device.
func (p *nodeMemory) CancelCopy(corr effects.Corr) { p.copies.cancelCopy(corr) }

// pageRange returns where the valid bytes of a page are.
func (p *nodeMemory) pageRange(page effects.Page) acl.Range {
	for _, pool := range p.pools {
		if at := page.Index - pool.firstPage; pool.ID == page.Pool && page.Index >= pool.firstPage && at < pool.Pages &&
			uint64(page.Length) <= pool.PageBytes {
			return pool.memory.Range(pool.offset+uint64(at)*pool.PageBytes, uint64(page.Length))
		}
	}
	panic(fmt.Sprintf("BUG: the machine names page %d of pool %d with %d bytes, which does not exist on %s", page.Index,
		page.Pool, page.Length, p.Name()))
}

// rangeAt returns the range of an address in the pools.
func (p *nodeMemory) rangeAt(page device.Page) (acl.Range, error) {
	for _, pool := range p.pools {
		r := pool.memoryRegion()
		if page.Address >= r.Base && uint64(page.Address-r.Base) < r.Bytes &&
			uint64(page.Bytes) <= r.Bytes-uint64(page.Address-r.Base) {
			return pool.memory.Range(pool.offset+uint64(page.Address-r.Base), uint64(page.Bytes)), nil
		}
	}
	return acl.Range{}, fmt.Errorf("%w: %d bytes at %#x are not in a pool of %s", acl.ErrRange, page.Bytes, page.Address,
		p.Name())
}

// PageRange returns where a page is, for work that an engine puts into the engine's streams on the device. If no node
// is open, the error is ErrClosed.
func (d *Device) PageRange(page device.Page) (acl.Range, error) {
	p := d.openMemory()
	if p == nil {
		return acl.Range{}, fmt.Errorf("%w: %s", ErrClosed, d.Name())
	}
	return p.rangeAt(page)
}

// Close implements device.Device. Close ends the work first, then the streams, and then frees the memory (M4). After an
// error Close may be called again; until a call succeeds the device accepts no new node.
func (p *nodeMemory) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.device.options.StuckAfter)
	defer cancel()
	err := errors.Join(p.copies.workQueue.closeQueue(ctx, p.device.options.CloseTimeout), p.scatter.closeQueue(ctx,
		p.device.options.CloseTimeout))
	if err == nil {
		err = p.freeAll()
	}
	if err != nil {
		return fmt.Errorf("npu: closing the pools of %s: %w", p.Name(), err)
	}
	p.device.releaseNode()
	return nil
}

// freeAll frees streams, events and memory, none of which is in use.
func (p *nodeMemory) freeAll() error {
	err := errors.Join(p.copies.workQueue.closeStreams(), p.scatter.closeStreams())
	return errors.Join(err, p.device.context.Do(func(t *acl.Thread) error {
		if err := p.endExport(t); err != nil {
			return err
		}
		errs := []error{p.marks.destroyEvents(t)}
		for _, pool := range p.pools {
			errs = append(errs, pool.freeMemory(t))
		}
		return errors.Join(errs...)
	}))
}
