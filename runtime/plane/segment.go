package plane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"github.com/kvferry/kvferry/runtime/plane/backing"
)

// The numbers below are from Linux's fcntl.h and time.h. They are spelled here because this package stands on the
// standard library alone.
const (
	fGetSeals     = 1034
	clockBoottime = 7
)

// SealsDemanded is what a reader demands of a peer's memory before it maps it: else a peer could make us fault by
// cutting the file off under our mapping.
const SealsDemanded = backing.SealsOfSize

// newSegment makes memory of size bytes that peers may only read, and maps it. The name is what /proc shows. The memory
// behind it is taken at once, as long as ctx lasts, or with overcommit at its first touch.
func newSegment(ctx context.Context, name string, size uint64, overcommit bool) (*os.File, []byte, error) {
	return backing.Memfd{Name: name, Bytes: size, Overcommit: overcommit}.Take(ctx)
}

// A Mapping is a peer's pool, mapped read-only.
type Mapping struct {
	pages      uint32
	pageBytes  uint64
	mem        []byte
	generation []byte // the file of table
	table      []uint64
}

// Map checks and maps a peer's pool for reading: the file of its pages, and that of their generations. It closes
// nothing: the files are the caller's.
func Map(memory, generations uintptr, pages uint32, pageBytes uint64) (*Mapping, error) {
	size, err := poolBytes(pages, pageBytes)
	if err != nil {
		return nil, err
	}
	sealed, unit, err := sealedSize(memory)
	if err != nil {
		return nil, err
	}
	if sealed < size {
		return nil, fmt.Errorf("the peer's memory has %d bytes; %d pages of %d need %d", sealed, pages, pageBytes, size)
	}
	// A mapping of huge pages ends with a whole one, or could not be unmapped.
	size = min((size+unit-1)/unit*unit, sealed)
	if sealed, _, err = sealedSize(generations); err != nil {
		return nil, err
	}
	if want := tableBytes(pages); sealed != want {
		return nil, fmt.Errorf("the generations of the peer's pages take %d bytes; %d pages need %d", sealed, pages, want)
	}
	table, err := mapForReading(generations, sealed)
	if err != nil {
		return nil, err
	}
	mem, err := mapForReading(memory, size)
	if err != nil {
		return nil, errors.Join(err, syscall.Munmap(table))
	}
	return &Mapping{pages: pages, pageBytes: pageBytes, mem: mem, generation: table, table: tableOf(table, pages)}, nil
}

// sealedSize returns the size of a peer's memory, which it cannot change any more, and in which units the kernel has it:
// that of a huge page, or less.
func sealedSize(fd uintptr) (size, unit uint64, err error) {
	seals, _, e := syscall.Syscall(syscall.SYS_FCNTL, fd, fGetSeals, 0)
	if e != 0 {
		return 0, 0, fmt.Errorf("seals of the peer's memory: %w; it must be a memfd", e)
	}
	if seals&SealsDemanded != SealsDemanded {
		return 0, 0, fmt.Errorf("the peer's memory has seals %#x; %#x are demanded", seals, SealsDemanded)
	}
	// Its size is asked for after the seals: from there on it cannot change.
	var st syscall.Stat_t
	if err := syscall.Fstat(int(fd), &st); err != nil {
		return 0, 0, fmt.Errorf("size of the peer's memory: %w", err)
	}
	return uint64(st.Size), uint64(max(1, st.Blksize)), nil
}

func mapForReading(fd uintptr, size uint64) ([]byte, error) {
	mem, err := syscall.Mmap(int(fd), 0, int(size), syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes of the peer: %w", size, err)
	}
	if err := backing.HideFromCores(mem); err != nil {
		return nil, errors.Join(err, syscall.Munmap(mem))
	}
	return mem, nil
}

// Unmap ends the mapping. No Copy may be in progress or follow.
func (m *Mapping) Unmap() error {
	return errors.Join(syscall.Munmap(m.mem), syscall.Munmap(m.generation))
}

// poolBytes is what the pages of a pool take.
func poolBytes(pages uint32, pageBytes uint64) (uint64, error) {
	const most = 1 << 46 // Of the 47 bits that a process can map on amd64.
	if pages == 0 || pageBytes == 0 || pageBytes > PageBytesMax || uint64(pages) > (most-tableBytes(pages))/pageBytes {
		return 0, fmt.Errorf("%w: %d pages of %d bytes; give at least one of each, pages to %d bytes, and %d bytes in all",
			ErrInvalid, pages, pageBytes, uint64(PageBytesMax), uint64(most))
	}
	return uint64(pages) * pageBytes, nil
}

// tableBytes is what the generations of so many pages take.
func tableBytes(pages uint32) uint64 { return uint64(pages) * 8 }

// tableOf views the generations in their file.
func tableOf(mem []byte, pages uint32) []uint64 {
	return unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(mem))), pages)
}

func pageOf(mem []byte, pageBytes uint64, index uint32) []byte {
	start := uint64(index) * pageBytes
	return mem[start : start+pageBytes : start+pageBytes]
}
