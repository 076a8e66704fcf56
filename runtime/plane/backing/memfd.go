package backing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"unsafe"
)

// These system call numbers and constants are from Linux's fcntl.h and memfd.h, and are written here because this
// package depends on the standard library alone.
const (
	mfdCloexec      = 0x1
	mfdAllowSealing = 0x2
	fAddSeals       = 1033

	sealSeal        = 0x1
	sealShrink      = 0x2
	sealGrow        = 0x4
	sealFutureWrite = 0x10

	// SealsOfSize fix a file's size and seals. Without these seals a process that has the file could truncate the file
	// under our mapping and make this process fault.
	SealsOfSize = sealSeal | sealShrink | sealGrow
)

// A Memfd describes memory that other processes can map, as a file without a name. Nobody can change the size of the
// file.
type Memfd struct {
	Name       string // the name in /proc
	Bytes      uint64
	Overcommit bool // the memory is allocated when first touched
	// Huge places the memory in huge pages. The file and the mapping then end at the end of a huge page, behind
	// Bytes.
	Huge bool
	// Writable lets a process that is given the file store into the file, and return memory of the file to the kernel.
	// Otherwise the kernel refuses every writable mapping except the mapping that this process makes at creation.
	Writable bool
}

// CreateAndMap creates the file and maps the file in this process, readable and writable. The memory is allocated at
// once, unless ctx ends first, or with Overcommit when first touched. The error is a *Shortage if there is too little
// memory, and a *HugeShortage if there are too few huge pages.
func (m Memfd) CreateAndMap(ctx context.Context) (*os.File, []byte, error) {
	flags := uintptr(mfdCloexec | mfdAllowSealing)
	// Checked before anything is allocated.
	switch room := AvailableHugePages(); {
	case m.Huge:
		if err := room.checkSize(m.Bytes); err != nil {
			return nil, nil, err
		}
		m.Bytes, flags = room.RoundUp(m.Bytes), flags|mfdHuge
	case !m.Overcommit:
		if err := CheckAvailable(m.Bytes); err != nil {
			return nil, nil, err
		}
	}
	fd, _, e := syscall.Syscall(sysMemfdCreate, uintptr(unsafe.Pointer(&append([]byte(m.Name), 0)[0])),
		flags, 0)
	if e != 0 {
		err := fmt.Errorf("memfd_create: %w", e)
		return nil, nil, cmp.Or(m.asShortage(err), err)
	}
	file := os.NewFile(fd, m.Name)
	mem, err := m.mapAndSeal(ctx, file)
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	return file, mem, nil
}

// mapAndSeal allocates the memory of an empty file, maps the file and adds the seals. The seals come last, because they
// allow no writable mapping but ours.
func (m Memfd) mapAndSeal(ctx context.Context, file *os.File) ([]byte, error) {
	if err := file.Truncate(int64(m.Bytes)); err != nil {
		err = fmt.Errorf("set the size of memfd %s to %d bytes: %w", m.Name, m.Bytes, err)
		return nil, cmp.Or(m.asShortage(err), err)
	}
	if !m.Overcommit {
		allocate := AllocateFile
		if m.Huge {
			allocate = allocateHugeFile
		}
		if err := allocate(ctx, file, m.Bytes); err != nil {
			return nil, err
		}
	}
	seals := uintptr(SealsOfSize)
	if m.Writable {
		// A process that has the file may store into the memory. The mode prevents every other process from opening
		// the file for writing.
		if err := file.Chmod(0o400); err != nil {
			return nil, fmt.Errorf("set the mode of memfd %s: %w", m.Name, err)
		}
	} else {
		seals |= sealFutureWrite
	}
	mem, err := syscall.Mmap(int(file.Fd()), 0, int(m.Bytes), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		err = fmt.Errorf("map %d bytes of %s: %w", m.Bytes, m.Name, err)
		return nil, cmp.Or(m.asShortage(err), err)
	}
	if err := HideFromCores(mem); err != nil {
		return nil, errors.Join(err, syscall.Munmap(mem))
	}
	if _, _, e := syscall.Syscall(syscall.SYS_FCNTL, file.Fd(), fAddSeals, seals); e != 0 {
		return nil, errors.Join(fmt.Errorf("seal %s: %w; kvferry needs Linux 5.1 or later", m.Name, e), syscall.Munmap(mem))
	}
	return mem, nil
}

// asShortage converts a kernel error like AsShortage, or like asHugeShortage if the file lies in huge pages.
func (m Memfd) asShortage(err error) error {
	if m.Huge {
		return asHugeShortage(m.Bytes, err)
	}
	return AsShortage(m.Bytes, err)
}

// ReadOnly opens the file of a Memfd once more, for processes that shall only read the memory: no mapping of the
// returned file can be or become writable. Nobody but root can open the file for writing by its name in /proc either.
// This is no protection against a malicious process of the same user, which may change the file's mode, or debug this
// process and take the writable file.
func ReadOnly(file *os.File) (*os.File, error) {
	read, err := os.Open("/proc/self/fd/" + strconv.Itoa(int(file.Fd())))
	if err != nil {
		return nil, fmt.Errorf("open memfd %s for reading: %w; /proc must be mounted", file.Name(), err)
	}
	return read, nil
}
