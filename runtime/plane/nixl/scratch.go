//go:build cgo && linux

package nixl

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"github.com/kvferry/kvferry/runtime/libnixl"
	"github.com/kvferry/kvferry/runtime/libnixl/nixlproc"
	"github.com/kvferry/kvferry/runtime/plane/backing"
)

// A scratchPage is a page of memory that peers may read and write when their agent connects to ours, and which our
// agents use in the same way at their peers.
type scratchPage struct {
	bytes []byte
	file  *os.File
}

const scratchBytes = 4096

// hostMemory returns all memory that agents of the plane register.
func (p *Plane) hostMemory() []nixlproc.Region {
	scratch := p.scratch.addressRange()
	all := []nixlproc.Region{{Address: scratch.Address, Bytes: scratch.Bytes, File: p.scratch.file}}
	for _, r := range p.pool.Regions() {
		all = append(all, nixlproc.Region{Address: uint64(r.Base), Bytes: r.Bytes, File: r.File})
	}
	return all
}

func newScratchPage() (*scratchPage, error) {
	file, b, err := backing.Memfd{Name: "kvferry-scratch", Bytes: scratchBytes, Writable: true}.CreateAndMap(context.Background())
	if err != nil {
		return nil, fmt.Errorf("map a page of memory for connecting agents: %w", err)
	}
	return &scratchPage{b, file}, nil
}

func (s *scratchPage) addressRange() libnixl.Range {
	return libnixl.Range{Address: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(s.bytes)))), Bytes: scratchBytes}
}

func (s *scratchPage) close() error { return errors.Join(syscall.Munmap(s.bytes), s.file.Close()) }
