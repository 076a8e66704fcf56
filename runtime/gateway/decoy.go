//go:build cgo && linux

package gateway

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/kvferry/kvferry/runtime/libnixl/nixlproc"
)

// A decoy is an address range as large as the pool, in which every piece maps the same small memory. The front
// announces this range instead of the pool: the protocol gives the base address to every engine that sends a note, and
// an engine could write there.
type decoy struct {
	space []byte
	file  *os.File
	piece uint64 // bytes of the small memory
}

// The size of that memory: at least a few MiB, and large enough that the range does not need too many mappings.
const (
	decoyBytes    = 4 << 20
	decoyMappings = 1 << 10
)

func newDecoy(bytes uint64) (*decoy, error) {
	const huge = 2 << 20
	piece := max(decoyBytes, (bytes/decoyMappings+huge-1)/huge*huge)
	bytes = (bytes + piece - 1) / piece * piece
	failed := func(err error) error {
		return fmt.Errorf("cannot map %d bytes of address space for the side channel's decoy: %w", bytes, err)
	}
	number, err := unix.MemfdCreate("kvferry-decoy", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, failed(err)
	}
	file := os.NewFile(uintptr(number), "kvferry-decoy")
	if err := file.Truncate(int64(piece)); err != nil {
		return nil, errors.Join(failed(err), file.Close())
	}
	space, err := syscall.Mmap(-1, 0, int(bytes), syscall.PROT_NONE,
		syscall.MAP_ANON|syscall.MAP_PRIVATE|syscall.MAP_NORESERVE)
	if err != nil {
		return nil, errors.Join(failed(err), file.Close())
	}
	d := &decoy{space, file, piece}
	for at := uint64(0); at < bytes; at += piece {
		_, err := unix.MmapPtr(number, 0, unsafe.Pointer(&space[at]), uintptr(piece), syscall.PROT_READ|syscall.PROT_WRITE,
			syscall.MAP_SHARED|syscall.MAP_FIXED)
		if err != nil {
			return nil, errors.Join(failed(err), d.unmapSpace())
		}
	}
	return d, nil
}

func (d *decoy) baseAddress() uint64 {
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(d.space))))
}

func (d *decoy) sizeBytes() uint64 { return uint64(len(d.space)) }

func (d *decoy) unmapSpace() error { return errors.Join(syscall.Munmap(d.space), d.file.Close()) }

// region returns the range for the agents' process.
func (d *decoy) region() nixlproc.Region {
	return nixlproc.Region{Address: d.baseAddress(), Bytes: d.sizeBytes(), File: d.file, Repeat: d.piece}
}
