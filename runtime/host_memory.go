package runtime

import (
	"fmt"
	"syscall"

	"github.com/kvferry/kvferry/effects"
)

// hostMemory is an engine's pool in ordinary memory of this process, which no peer sees.
type hostMemory struct {
	mem       []byte
	pageBytes uint64
}

func newHostMemory(pages uint32, pageBytes uint64) (*hostMemory, error) {
	const most = 1 << 46 // Of the 47 bits that a process can map on amd64.
	if pages == 0 || pageBytes == 0 || uint64(pages) > most/pageBytes {
		return nil, fmt.Errorf("%d pages of %d bytes; give at least one of each, and %d bytes in all", pages, pageBytes, uint64(most))
	}
	mem, err := syscall.Mmap(-1, 0, int(uint64(pages)*pageBytes), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("map %d pages of %d bytes: %w; make pd_buffer_size smaller", pages, pageBytes, err)
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
