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

// These numbers are from Linux's fcntl.h and time.h, and are written here because this package depends on the standard
// library alone.
const (
	fGetSeals     = 1034
	clockBoottime = 7
)

// RequiredSeals are the seals that a peer's memory must have before this process maps the memory. Without these seals
// a peer could truncate the file under the mapping and make this process fault.
const RequiredSeals = backing.SealsOfSize

// newSegment creates and maps memory of size bytes that peers can only read. The name appears in /proc. The memory is
// allocated at once, unless ctx ends first, or with overcommit when first touched.
func newSegment(ctx context.Context, name string, size uint64, overcommit bool) (*os.File, []byte, error) {
	return backing.Memfd{Name: name, Bytes: size, Overcommit: overcommit}.CreateAndMap(ctx)
}

// A Mapping is the pool of a peer on this host, mapped read-only.
type Mapping struct {
	pages          uint32
	pageBytes      uint64
	mem            []byte
	generationsMem []byte // the mapped file that table views
	generations    []uint64
}

// MapPool checks and maps a peer's pool for reading: the file of the pages and the file of the generations. The files
// still belong to the caller.
func MapPool(memory, generations uintptr, pages uint32, pageBytes uint64) (*Mapping, error) {
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
	// A mapping of huge pages must end at the end of a huge page, or unmapping would fail.
	size = min((size+unit-1)/unit*unit, sealed)
	if sealed, _, err = sealedSize(generations); err != nil {
		return nil, err
	}
	if want := generationsBytes(pages); sealed != want {
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
	return &Mapping{pages: pages, pageBytes: pageBytes, mem: mem, generationsMem: table, generations: generationsOf(table, pages)}, nil
}

// sealedSize returns the size of a peer's memory, which the peer cannot change any more, and the size of the unit in
// which the kernel allocates the memory: the size of a huge page, or less.
func sealedSize(fd uintptr) (size, unit uint64, err error) {
	seals, _, e := syscall.Syscall(syscall.SYS_FCNTL, fd, fGetSeals, 0)
	if e != 0 {
		return 0, 0, fmt.Errorf("read the seals of the peer's memory: %w; the file must be a memfd", e)
	}
	if seals&RequiredSeals != RequiredSeals {
		return 0, 0, fmt.Errorf("the peer's memory has seals %#x; %#x are required", seals, RequiredSeals)
	}
	// The size is read after the seals were checked, because only from then on the size cannot change.
	var st syscall.Stat_t
	if err := syscall.Fstat(int(fd), &st); err != nil {
		return 0, 0, fmt.Errorf("read the size of the peer's memory: %w", err)
	}
	return uint64(st.Size), uint64(max(1, st.Blksize)), nil
}

func mapForReading(fd uintptr, size uint64) ([]byte, error) {
	mem, err := syscall.Mmap(int(fd), 0, int(size), syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes of the peer's memory: %w", size, err)
	}
	if err := backing.HideFromCores(mem); err != nil {
		return nil, errors.Join(err, syscall.Munmap(mem))
	}
	return mem, nil
}

// Unmap ends the mapping. No copy may be in progress or follow.
func (m *Mapping) Unmap() error {
	return errors.Join(syscall.Munmap(m.mem), syscall.Munmap(m.generationsMem))
}

// poolBytes returns the bytes that the pages of a pool take, and fails if the configuration makes no sense.
func poolBytes(pages uint32, pageBytes uint64) (uint64, error) {
	const maxBytes = 1 << 46 // a part of the 47 bits of addresses that a process can map on amd64
	if pages == 0 || pageBytes == 0 || pageBytes > PageBytesMax || uint64(pages) > (maxBytes-generationsBytes(pages))/pageBytes {
		return 0, fmt.Errorf("%w: %d pages of %d bytes; a pool has at least one page, a page at least one byte and at most "+
			"%d bytes, and all pages at most %d bytes",
			ErrInvalid, pages, pageBytes, uint64(PageBytesMax), uint64(maxBytes))
	}
	return uint64(pages) * pageBytes, nil
}

// generationsBytes returns the bytes that the generations of so many pages take.
func generationsBytes(pages uint32) uint64 { return uint64(pages) * 8 }

// generationsOf views mapped memory as the generations of pages.
func generationsOf(mem []byte, pages uint32) []uint64 {
	return unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(mem))), pages)
}

func pageOf(mem []byte, pageBytes uint64, index uint32) []byte {
	start := uint64(index) * pageBytes
	return mem[start : start+pageBytes : start+pageBytes]
}
