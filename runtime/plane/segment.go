package plane

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"github.com/kvferry/kvferry/runtime/plane/backing"
)

// The system calls and numbers below are from Linux's fcntl.h, memfd.h and time.h. They are spelled
// here because this package stands on the standard library alone.
const (
	mfdCloexec      = 0x1
	mfdAllowSealing = 0x2
	fAddSeals       = 1033
	fGetSeals       = 1034
	clockBoottime   = 7
)

// Seals of a pool's memory. Without the first two a peer could make us fault by cutting the file off
// under our mapping; FutureWrite makes the kernel refuse every writable mapping but our own, which
// existed before.
const (
	sealSeal        = 0x1
	sealShrink      = 0x2
	sealGrow        = 0x4
	sealFutureWrite = 0x10

	sealsOwn = sealSeal | sealShrink | sealGrow | sealFutureWrite
	// SealsDemanded is what a reader demands of a peer's memory before it maps it.
	SealsDemanded = sealSeal | sealShrink | sealGrow
)

// TableBytes is how many bytes the generation table takes at the start of a segment of n pages: 8 for
// each page, rounded up so that the first page is aligned to the system's pages.
func TableBytes(n uint32) uint64 {
	system := uint64(os.Getpagesize())
	return (uint64(n)*8 + system - 1) / system * system
}

// newSegment makes sealed shared memory of size bytes and maps it. The name is what /proc shows. The memory behind it
// is taken at once, as long as ctx lasts, or with overcommit at its first touch.
func newSegment(ctx context.Context, name string, size uint64, overcommit bool) (*os.File, []byte, error) {
	if !overcommit {
		if err := backing.Check(size); err != nil { // Before anything is taken.
			return nil, nil, err
		}
	}
	fd, _, e := syscall.Syscall(sysMemfdCreate, uintptr(unsafe.Pointer(&append([]byte(name), 0)[0])),
		mfdCloexec|mfdAllowSealing, 0)
	if e != 0 {
		return nil, nil, fmt.Errorf("memfd_create: %w", e)
	}
	file := os.NewFile(fd, name)
	if err := file.Truncate(int64(size)); err != nil {
		err = fmt.Errorf("size of %s to %d bytes: %w", name, size, joinClose(err, file))
		return nil, nil, cmp.Or(backing.Lack(size, err), err)
	}
	if !overcommit {
		if err := backing.File(ctx, file, size); err != nil {
			return nil, nil, joinClose(err, file)
		}
	}
	mem, err := syscall.Mmap(int(fd), 0, int(size), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		err = fmt.Errorf("map %d bytes of %s: %w", size, name, joinClose(err, file))
		return nil, nil, cmp.Or(backing.Lack(size, err), err)
	}
	if _, _, e := syscall.Syscall(syscall.SYS_FCNTL, fd, fAddSeals, sealsOwn); e != 0 {
		_ = syscall.Munmap(mem)
		return nil, nil, fmt.Errorf("seal %s: %w; kvferry needs Linux 5.1 or later", name, joinClose(e, file))
	}
	return file, mem, nil
}

func joinClose(err error, file *os.File) error {
	_ = file.Close() // The first error is the one that matters.
	return err
}

// A Mapping is a peer's segment, mapped read-only.
type Mapping struct {
	pages     uint32
	pageBytes uint64
	mem       []byte
	table     []uint64
}

// Map checks and maps a peer's segment for reading. It closes nothing: fd is the caller's.
func Map(fd uintptr, pages uint32, pageBytes uint64) (*Mapping, error) {
	size, err := segmentBytes(pages, pageBytes)
	if err != nil {
		return nil, err
	}
	sealed, err := sealedSize(fd)
	if err != nil {
		return nil, err
	}
	if sealed < size {
		return nil, fmt.Errorf("the peer's memory has %d bytes; %d pages of %d need %d", sealed, pages, pageBytes, size)
	}
	mem, err := mapForReading(fd, size)
	if err != nil {
		return nil, err
	}
	return &Mapping{pages: pages, pageBytes: pageBytes, mem: mem, table: generations(mem, pages)}, nil
}

// sealedSize returns the size of a peer's memory, which it cannot change any more.
func sealedSize(fd uintptr) (uint64, error) {
	seals, _, e := syscall.Syscall(syscall.SYS_FCNTL, fd, fGetSeals, 0)
	if e != 0 {
		return 0, fmt.Errorf("seals of the peer's memory: %w; it must be a memfd", e)
	}
	if seals&SealsDemanded != SealsDemanded {
		return 0, fmt.Errorf("the peer's memory has seals %#x; %#x are demanded", seals, SealsDemanded)
	}
	// Its size is asked for after the seals: from there on it cannot change.
	var st syscall.Stat_t
	if err := syscall.Fstat(int(fd), &st); err != nil {
		return 0, fmt.Errorf("size of the peer's memory: %w", err)
	}
	return uint64(st.Size), nil
}

func mapForReading(fd uintptr, size uint64) ([]byte, error) {
	mem, err := syscall.Mmap(int(fd), 0, int(size), syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes of the peer: %w", size, err)
	}
	return mem, nil
}

// Unmap ends the mapping. No Copy may be in progress or follow.
func (m *Mapping) Unmap() error { return syscall.Munmap(m.mem) }

func segmentBytes(pages uint32, pageBytes uint64) (uint64, error) {
	const most = 1 << 46 // Of the 47 bits that a process can map on amd64.
	if pages == 0 || pageBytes == 0 || pageBytes > PageBytesMax || uint64(pages) > (most-TableBytes(pages))/pageBytes {
		return 0, fmt.Errorf("%w: %d pages of %d bytes; give at least one of each, pages to %d bytes, and %d bytes in all",
			ErrInvalid, pages, pageBytes, uint64(PageBytesMax), uint64(most))
	}
	return TableBytes(pages) + uint64(pages)*pageBytes, nil
}

// generations views the table at the start of a segment.
func generations(mem []byte, pages uint32) []uint64 {
	return unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(mem))), pages)
}

func pageOf(mem []byte, pages uint32, pageBytes uint64, index uint32) []byte {
	start := TableBytes(pages) + uint64(index)*pageBytes
	return mem[start : start+pageBytes : start+pageBytes]
}
