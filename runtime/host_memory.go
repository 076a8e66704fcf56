package runtime

import (
	"context"
	"fmt"
	"syscall"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane/backing"
)

// hostMemory is an engine's pool in ordinary memory of this process, which no peer sees.
type hostMemory struct {
	mem       []byte
	pageBytes uint64
}

func newHostMemory(ctx context.Context, pages uint32, pageBytes uint64, overcommit bool) (*hostMemory, error) {
	const most = 1 << 46 // Of the 47 bits that a process can map on amd64.
	if pages == 0 || pageBytes == 0 || uint64(pages) > most/pageBytes {
		return nil, fmt.Errorf("%d pages of %d bytes; give at least one of each, and %d bytes in all", pages, pageBytes,
			uint64(most))
	}
	mem, err := backing.Private(ctx, uint64(pages)*pageBytes, overcommit)
	if err != nil {
		return nil, err
	}
	return &hostMemory{mem: mem, pageBytes: pageBytes}, nil
}

// Host implements engineMemory.
func (m *hostMemory) Host(page effects.Page) []byte {
	start := uint64(page.Index) * m.pageBytes
	return m.mem[start : start+m.pageBytes : start+m.pageBytes][:page.Length]
}

// Read implements engineMemory.
func (m *hostMemory) Read(dst []byte, page effects.Page) error {
	copy(dst, m.Host(page))
	return nil
}

// Close implements engineMemory. Again is nothing.
func (m *hostMemory) Close() error {
	if m.mem == nil {
		return nil
	}
	if err := syscall.Munmap(m.mem); err != nil {
		return fmt.Errorf("unmap the engine's pool: %w", err)
	}
	m.mem = nil
	return nil
}
