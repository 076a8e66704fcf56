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

// The system calls and numbers below are from Linux's fcntl.h and memfd.h. They are spelled here because this package
// stands on the standard library alone.
const (
	mfdCloexec      = 0x1
	mfdAllowSealing = 0x2
	fAddSeals       = 1033

	sealSeal        = 0x1
	sealShrink      = 0x2
	sealGrow        = 0x4
	sealFutureWrite = 0x10

	// SealsOfSize keep a file's size, and its seals. Without them who has it could make us fault, by cutting it off under
	// our mapping.
	SealsOfSize = sealSeal | sealShrink | sealGrow
)

// A Memfd is memory to be taken that other processes can map, as a file without a name. Nobody can change its size.
type Memfd struct {
	Name       string // what /proc shows
	Bytes      uint64
	Overcommit bool // what is behind it is taken at its first touch
	// Huge has it lie in huge pages. The file and the mapping end with a whole one, behind Bytes.
	Huge bool
	// Writable lets who is given the file store into it, and give memory behind it back to the system. Else the kernel
	// refuses every writable mapping but the one that Take makes.
	Writable bool
}

// Take makes the file and maps it here, readable and writable. The memory behind it is taken at once, as long as ctx
// lasts, or with Overcommit at its first touch. A *Shortage says that there is not so much, a *HugeShortage that there
// are not so many huge pages.
func (m Memfd) Take(ctx context.Context) (*os.File, []byte, error) {
	flags := uintptr(mfdCloexec | mfdAllowSealing)
	switch room := HugePages(); { // Looked at before anything is taken.
	case m.Huge:
		if err := room.check(m.Bytes); err != nil {
			return nil, nil, err
		}
		m.Bytes, flags = room.Round(m.Bytes), flags|mfdHuge
	case !m.Overcommit:
		if err := Check(m.Bytes); err != nil {
			return nil, nil, err
		}
	}
	fd, _, e := syscall.Syscall(sysMemfdCreate, uintptr(unsafe.Pointer(&append([]byte(m.Name), 0)[0])),
		flags, 0)
	if e != 0 {
		err := fmt.Errorf("memfd_create: %w", e)
		return nil, nil, cmp.Or(m.lack(err), err)
	}
	file := os.NewFile(fd, m.Name)
	mem, err := m.fill(ctx, file)
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	return file, mem, nil
}

// fill gives an empty file its memory, a mapping of ours and its seals, which come last: ours is the one writable
// mapping that is there before them.
func (m Memfd) fill(ctx context.Context, file *os.File) ([]byte, error) {
	if err := file.Truncate(int64(m.Bytes)); err != nil {
		err = fmt.Errorf("size of %s to %d bytes: %w", m.Name, m.Bytes, err)
		return nil, cmp.Or(m.lack(err), err)
	}
	if !m.Overcommit {
		take := File
		if m.Huge {
			take = fileOfHuge
		}
		if err := take(ctx, file, m.Bytes); err != nil {
			return nil, err
		}
	}
	seals := uintptr(SealsOfSize)
	if m.Writable {
		// Who has the file has the right to store. Nobody gets it by opening the file anew.
		if err := file.Chmod(0o400); err != nil {
			return nil, fmt.Errorf("mode of %s: %w", m.Name, err)
		}
	} else {
		seals |= sealFutureWrite
	}
	mem, err := syscall.Mmap(int(file.Fd()), 0, int(m.Bytes), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		err = fmt.Errorf("map %d bytes of %s: %w", m.Bytes, m.Name, err)
		return nil, cmp.Or(m.lack(err), err)
	}
	if err := HideFromCores(mem); err != nil {
		return nil, errors.Join(err, syscall.Munmap(mem))
	}
	if _, _, e := syscall.Syscall(syscall.SYS_FCNTL, file.Fd(), fAddSeals, seals); e != 0 {
		return nil, errors.Join(fmt.Errorf("seal %s: %w; kvferry needs Linux 5.1 or later", m.Name, e), syscall.Munmap(mem))
	}
	return mem, nil
}

// lack is Lack of what the file lies in.
func (m Memfd) lack(err error) error {
	if m.Huge {
		return lackHuge(m.Bytes, err)
	}
	return Lack(m.Bytes, err)
}

// ReadOnly opens a Memfd's file once more, to be given to who shall only read it: no mapping of what it returns can be
// writable, or become so. Nor does it open for writing by its name in /proc, unless for root. Against a process of the
// same user that means harm it is no wall: that one may change the file's mode, or debug us and take the other file.
func ReadOnly(file *os.File) (*os.File, error) {
	read, err := os.Open("/proc/self/fd/" + strconv.Itoa(int(file.Fd())))
	if err != nil {
		return nil, fmt.Errorf("open %s for reading: %w; it needs /proc", file.Name(), err)
	}
	return read, nil
}
