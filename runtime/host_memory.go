package runtime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/backing"
)

// hostMemory is a pool in memory of this process that no peer maps; leased planes serve the pool.
type hostMemory struct {
	mem       []byte
	pageBytes uint64
	// file is the file of the memory, or nil if the memory is private to this process. It is given to engines' processes
	// only if attachable is set.
	file       *os.File
	attachable bool
}

// newHostMemory allocates the memory of a pool, and stops when ctx ends. Only the fields of c are used that set the
// size and the kind of memory. The memory has a file if it is attachable, or withFile is set.
func newHostMemory(ctx context.Context, c plane.PoolConfig, withFile bool) (*hostMemory, error) {
	const maxBytes = 1 << 46 // of the 47 bits of address space that a process can map on amd64
	if c.Pages == 0 || c.PageBytes == 0 || uint64(c.Pages) > maxBytes/c.PageBytes {
		return nil, fmt.Errorf("%d pages of %d bytes; give at least one page of at least one byte, and at most %d bytes in "+
			"all", c.Pages, c.PageBytes,
			uint64(maxBytes))
	}
	m, size := &hostMemory{pageBytes: c.PageBytes, attachable: c.Attachable}, uint64(c.Pages)*c.PageBytes
	var err error
	if c.Attachable || withFile {
		m.file, m.mem, err = backing.Memfd{Name: "kvferry-engine", Bytes: size, Overcommit: c.Overcommit,
			Huge: c.Huge, Writable: true}.CreateAndMap(ctx)
	} else if c.Huge {
		m.mem, err = backing.MapPrivateHuge(size, c.Overcommit)
	} else {
		m.mem, err = backing.MapPrivate(ctx, size, c.Overcommit)
	}
	if err != nil {
		return nil, err
	}
	if c.Lock {
		if err := backing.LockMemory(m.mem); err != nil {
			return nil, errors.Join(err, m.Close())
		}
	}
	return m, nil
}

// Attachable implements processPool.
func (m *hostMemory) Attachable() *os.File {
	if !m.attachable {
		return nil
	}
	return m.file
}

// Bytes implements processPool.
func (m *hostMemory) Bytes(page effects.Page) []byte {
	start := uint64(page.Index) * m.pageBytes
	return m.mem[start : start+m.pageBytes : start+m.pageBytes][:page.Length]
}

// PageRange implements processPool.
func (m *hostMemory) PageRange(first, count uint32) []byte {
	start := uint64(first) * m.pageBytes
	end := start + uint64(count)*m.pageBytes
	return m.mem[start:end:end]
}

// Close implements processPool. A second call does nothing.
func (m *hostMemory) Close() error {
	if m.mem == nil {
		return nil
	}
	if err := syscall.Munmap(m.mem); err != nil {
		return fmt.Errorf("unmap a pool: %w", err)
	}
	m.mem = nil
	if m.file == nil {
		return nil
	}
	return m.file.Close()
}
