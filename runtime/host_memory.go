package runtime

import (
	"context"
	"fmt"
	"syscall"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane/backing"
)

// hostMemory is a pool in ordinary memory of this process: an engine's, which no peer sees, or one that leased planes
// serve.
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

// Stretch returns the memory of count pages that lie one behind the other.
func (m *hostMemory) Stretch(first, count uint32) []byte {
	start := uint64(first) * m.pageBytes
	end := start + uint64(count)*m.pageBytes
	return m.mem[start:end:end]
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
		return fmt.Errorf("unmap a pool: %w", err)
	}
	m.mem = nil
	return nil
}
