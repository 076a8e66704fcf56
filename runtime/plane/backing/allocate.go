package backing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
)

// A Shortage is the error of a process that asked for more memory than available.
type Shortage struct {
	RequestedBytes uint64 // bytes
	Available             // what is available
	Cause          error  // the kernel's error; nil if the kernel was not asked
}

func (s *Shortage) Error() string {
	text := fmt.Sprintf("%d bytes of memory are requested, and %d are available (%s)", s.RequestedBytes, s.Bytes, s.Limit)
	if s.Cause != nil {
		text += ": " + s.Cause.Error()
		if s.RequestedBytes <= s.Bytes {
			text += ": check the limits of this process (ulimit -v, -d and -f) and the size of the file system that the " +
				"memory is allocated from"
		}
	}
	return text
}

func (s *Shortage) Unwrap() error { return s.Cause }

// AsShortage returns a *Shortage if the kernel's error means that there is not so much memory, or that a limit of this
// process forbids the allocation. For any different error the result is nil.
func AsShortage(size uint64, cause error) error {
	for _, e := range []error{syscall.ENOMEM, syscall.ENOSPC, syscall.EFBIG, syscall.EDQUOT} {
		if errors.Is(cause, e) {
			return &Shortage{RequestedBytes: size, Available: AvailableMemory(), Cause: cause}
		}
	}
	return nil
}

const (
	// reserveDivisor is the divisor for the part of the available memory that is left free.
	reserveDivisor = 32
	// partBytes is the number of bytes that are allocated between two checks of the available memory.
	partBytes = 256 << 20
	// minPartBytes is a size that still gets allocated between two signals. Each signal makes the kernel undo a part,
	// and profilers send many signals.
	minPartBytes = 1 << 20
	// advisePopulate is MADV_POPULATE_WRITE, available since Linux 5.14.
	advisePopulate = 23
	// adviseDontDump is MADV_DONTDUMP.
	adviseDontDump = 16
)

// HideFromCores excludes memory from core files. Core files are passed to people who investigate a crash, and pages
// hold the texts of users.
func HideFromCores(mem []byte) error {
	if err := syscall.Madvise(mem, adviseDontDump); err != nil {
		return fmt.Errorf("keep %d bytes out of core files: %w", len(mem), err)
	}
	return nil
}

// CheckAvailable returns a *Shortage if so many bytes are not available.
func CheckAvailable(size uint64) error { return AvailableMemory().checkSize(size) }

func (r Available) checkSize(size uint64) error {
	if r.Bytes -= r.Bytes / reserveDivisor; size > r.Bytes {
		return &Shortage{RequestedBytes: size, Available: r}
	}
	return nil
}

// AllocateFile allocates the memory behind the first size bytes of a memfd. It checks ctx between parts.
func AllocateFile(ctx context.Context, file *os.File, size uint64) error {
	return allocateInParts(ctx, size, AvailableMemory, func(at, n uint64) error {
		return syscall.Fallocate(int(file.Fd()), 0, int64(at), int64(n))
	})
}

// MapPrivate maps size bytes of memory that belongs to this process alone, and allocates it. With overcommit the memory
// is allocated when first touched.
func MapPrivate(ctx context.Context, size uint64, overcommit bool) ([]byte, error) {
	if !overcommit {
		if err := CheckAvailable(size); err != nil {
			return nil, err
		}
	}
	flags := syscall.MAP_PRIVATE | syscall.MAP_ANON
	if overcommit {
		flags |= syscall.MAP_NORESERVE
	}
	mem, err := syscall.Mmap(-1, 0, int(size), syscall.PROT_READ|syscall.PROT_WRITE, flags)
	if err != nil {
		err = fmt.Errorf("map %d bytes: %w", size, err)
		return nil, cmp.Or(AsShortage(size, err), err)
	}
	if err := HideFromCores(mem); err != nil {
		return nil, errors.Join(err, syscall.Munmap(mem))
	}
	if overcommit {
		return mem, nil
	}
	err = allocateInParts(ctx, size, AvailableMemory, func(at, n uint64) error {
		err := syscall.Madvise(mem[at:at+n], advisePopulate)
		if errors.Is(err, syscall.EINVAL) { // An older kernel allocates memory when touched.
			for i := at; i < at+n; i += uint64(os.Getpagesize()) {
				mem[i] = 0
			}
			return nil
		}
		return err
	})
	if err != nil {
		_ = syscall.Munmap(mem)
		return nil, err
	}
	return mem, nil
}

// allocateInParts allocates memory part by part, and gives up before the kernel has to kill a process: memory that was
// available before the first part may have been allocated by another process meanwhile.
func allocateInParts(ctx context.Context, size uint64, available func() Available, allocate func(at, n uint64) error) error {
	part := uint64(partBytes)
	for at := uint64(0); at < size; {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("allocation ended after %d of %d bytes of memory: %w", at, size, context.Cause(ctx))
		}
		if err := available().checkSize(size - at); err != nil {
			return err
		}
		n := min(size-at, part)
		switch err := allocate(at, n); {
		case errors.Is(err, syscall.EINTR), errors.Is(err, syscall.EAGAIN):
			part = max(part/2, minPartBytes)
		case err != nil:
			err = fmt.Errorf("allocate %d bytes of memory: %w", size, err)
			return cmp.Or(AsShortage(size, err), err)
		default:
			at += n
		}
	}
	return nil
}
