//go:build cgo && linux

package nixl

import (
	"fmt"
	"syscall"
	"unsafe"

	"github.com/kvferry/kvferry/runtime/libnixl"
)

// A scratchPage is a page of memory that peers may read and write when their agent connects to ours, and which our
// agents use in the same way at their peers.
type scratchPage struct{ bytes []byte }

const scratchBytes = 4096

func newScratchPage() (*scratchPage, error) {
	b, err := syscall.Mmap(-1, 0, scratchBytes, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("map a page of memory for connecting agents: %w", err)
	}
	return &scratchPage{b}, nil
}

func (s *scratchPage) addressRange() libnixl.Range {
	return libnixl.Range{Address: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(s.bytes)))), Bytes: scratchBytes}
}

func (s *scratchPage) close() error { return syscall.Munmap(s.bytes) }
