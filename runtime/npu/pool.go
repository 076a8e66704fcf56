//go:build cgo && linux

package npu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/kvferry/kvferry/runtime/acl"
	"github.com/kvferry/kvferry/runtime/device"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/backing"
)

// hugePage is the size and the alignment of the pages of device memory that HCCS can reach.
const hugePage = 2 << 20

// A pool is a range of memory that is divided into pages.
type pool struct {
	device.Pool
	firstPage uint32      // number of the first page
	memory    *acl.Memory // nil: not allocated
	file      *os.File    // of host memory that a second process may map; nil: allocated by the library
	mapped    []byte      // the mapping of file in this process
	offset    uint64      // offset of page 0
	bytes     uint64      // size from there, in whole huge pages
}

func newPool(p device.Pool) (*pool, error) {
	const limit = 1 << 56 // more than any address space, and nothing below overflows
	if p.Pages == 0 || p.PageBytes == 0 || uint64(p.Pages) > limit/p.PageBytes {
		return nil, fmt.Errorf("the pool has %d pages of %d bytes; give at least one page and one byte, and at most %d bytes in total",
			p.Pages, p.PageBytes, uint64(limit))
	}
	return &pool{Pool: p, bytes: roundUp(uint64(p.Pages)*p.PageBytes, hugePage)}, nil
}

func (p *pool) memoryRegion() plane.Region {
	return plane.Region{Host: p.Host, Base: p.memory.Address() + uintptr(p.offset), Bytes: p.bytes}
}

// allocateMemory allocates the memory, unless ctx ends.
func (p *pool) allocateMemory(ctx context.Context, t *acl.Thread) error {
	err := p.allocateAligned(ctx, t, hugePage)
	if short := (*backing.Shortage)(nil); errors.Is(err, acl.OutOfMemory) || errors.As(err, &short) {
		return fmt.Errorf("%w for %d pages of %d bytes: %d bytes of %s: %w", device.ErrNoMemory, p.Pages, p.PageBytes,
			p.bytes, p.describeSource(t), err)
	}
	return err
}

func (p *pool) allocateAligned(ctx context.Context, t *acl.Thread, align uint64) (err error) {
	switch {
	case p.Host && p.Attachable:
		return p.allocateFile(ctx, t)
	case p.Host:
		p.memory, err = t.AllocHost(p.bytes)
		return err
	}
	if p.memory, err = t.AllocDevice(p.bytes, acl.HugeFirst); err != nil || uint64(p.memory.Address())%align == 0 {
		return err
	}
	// AscendCL guarantees only a multiple of 64, so allocate more and begin at an aligned address.
	if err := p.memory.Close(t); err != nil {
		return err
	}
	if p.memory, err = t.AllocDevice(p.bytes+align, acl.HugeFirst); err != nil {
		return err
	}
	at := uint64(p.memory.Address())
	p.offset = roundUp(at, align) - at
	return nil
}

// allocateFile allocates host memory as a file, which a second process may map, and registers that memory with the
// device.
func (p *pool) allocateFile(ctx context.Context, t *acl.Thread) (err error) {
	// Allocate all pages at once, because the library pins them: here a shortage is an error, later it would be a
	// signal.
	p.file, p.mapped, err = backing.Memfd{Name: "kvferry-engine", Bytes: p.bytes, Writable: true}.CreateAndMap(ctx)
	if err != nil {
		return err
	}
	p.memory, err = t.RegisterHost(p.mapped)
	switch {
	case errors.Is(err, acl.Unsupported):
		err = fmt.Errorf("memory that an engine in another process maps must be registered with the device, which this "+
			"library or kernel cannot do (kernels up to 5.10 cannot): embed the node in the engine's process, or update "+
			"them: %w", err)
	case err == nil:
		return nil
	}
	return errors.Join(err, p.closeFile())
}

func (p *pool) closeFile() error {
	if p.file == nil {
		return nil
	}
	err := errors.Join(syscall.Munmap(p.mapped), p.file.Close())
	p.file, p.mapped = nil, nil
	return err
}

func (p *pool) freeMemory(t *acl.Thread) error {
	if p.memory == nil {
		return nil
	}
	if err := p.memory.Close(t); err != nil {
		return err
	}
	return p.closeFile()
}

// describeSource describes the memory from which the pool was to be allocated, and the free part of that memory, for an
// error.
func (p *pool) describeSource(t *acl.Thread) string {
	if p.Host {
		return "pinned memory of the host"
	}
	m, err := t.MemInfo()
	if err != nil {
		return fmt.Sprintf("device %d", t.Device())
	}
	return fmt.Sprintf("device %d, which has %d bytes, of which %d are free", t.Device(), m.Total, m.Free)
}

func roundUp(n, to uint64) uint64 { return (n + to - 1) / to * to }
