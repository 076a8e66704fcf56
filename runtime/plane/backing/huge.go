package backing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
)

// Huge pages are memory that the kernel reserves for processes that explicitly ask for huge pages. A mapping of huge
// pages needs one page table entry for 2 MiB instead of 512 entries, and is never swapped out. An administrator
// reserves huge pages with vm.nr_hugepages, or lets the kernel find more on demand with vm.nr_overcommit_hugepages.

// These numbers are from Linux's memfd.h and mman.h. Without an explicit size these flags select the host's default
// size of huge pages.
const (
	mfdHuge = 0x4     // MFD_HUGETLB
	mapHuge = 0x40000 // MAP_HUGETLB
)

// A HugeRoom counts the huge pages of the host's default size.
type HugeRoom struct {
	PageBytes uint64 // zero if the kernel has no huge pages
	Free      uint64 // free pages that were not promised to a process, and pages that the kernel may still find
	Total     uint64 // reserved pages
}

// AvailableHugePages counts the huge pages of the host.
func AvailableHugePages() HugeRoom {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return HugeRoom{}
	}
	overcommit, _ := readNumber("/proc/sys/vm/nr_overcommit_hugepages")
	return ParseHugePages(text, overcommit)
}

// ParseHugePages parses /proc/meminfo. The kernel may find overcommit more pages beyond the reserved pages.
func ParseHugePages(meminfo []byte, overcommit uint64) HugeRoom {
	kib, _ := parseField(meminfo, "Hugepagesize:")
	total, _ := parseField(meminfo, "HugePages_Total:")
	free, _ := parseField(meminfo, "HugePages_Free:")
	promised, _ := parseField(meminfo, "HugePages_Rsvd:")
	surplus, _ := parseField(meminfo, "HugePages_Surp:")
	return HugeRoom{
		PageBytes: kib << 10, Total: total, Free: free - min(free, promised) + overcommit - min(overcommit, surplus),
	}
}

// RoundUp returns size rounded up to whole huge pages.
func (r HugeRoom) RoundUp(size uint64) uint64 {
	return (size + r.PageBytes - 1) / r.PageBytes * r.PageBytes
}

// A HugeShortage is the error of a process that asked for more huge pages than available.
type HugeShortage struct {
	RequestedBytes uint64 // bytes
	HugeRoom              // what is available
	Cause          error  // the kernel's error; nil if the kernel was not asked
}

// RequestedPages returns the number of huge pages that were asked for.
func (s *HugeShortage) RequestedPages() uint64 {
	if s.PageBytes == 0 {
		return 0
	}
	return s.RoundUp(s.RequestedBytes) / s.PageBytes
}

func (s *HugeShortage) Error() string {
	if s.PageBytes == 0 {
		return "huge pages are requested, and this kernel has none"
	}
	text := fmt.Sprintf("%d huge pages of %d bytes are requested; %d are free, of %d reserved",
		s.RequestedPages(), s.PageBytes, s.Free, s.Total)
	if s.Cause != nil {
		text += ": " + s.Cause.Error()
	}
	return text
}

func (s *HugeShortage) Unwrap() error { return s.Cause }

// CheckHugePages returns a *HugeShortage if so many bytes of huge pages are not available. The limit of a cgroup is
// found only when the pages are allocated.
func CheckHugePages(size uint64) error { return AvailableHugePages().checkSize(size) }

func (r HugeRoom) checkSize(size uint64) error {
	if r.PageBytes == 0 || r.RoundUp(size)/r.PageBytes > r.Free {
		return &HugeShortage{RequestedBytes: size, HugeRoom: r}
	}
	return nil
}

// asHugeShortage converts a kernel error like AsShortage, for huge pages.
func asHugeShortage(size uint64, cause error) error {
	for _, e := range []error{syscall.ENOMEM, syscall.ENOSPC, syscall.EINVAL, syscall.ENOSYS} {
		if errors.Is(cause, e) {
			return &HugeShortage{RequestedBytes: size, HugeRoom: AvailableHugePages(), Cause: cause}
		}
	}
	return nil
}

// allocateHugeFile allocates the huge pages behind a memfd, and checks ctx between parts.
func allocateHugeFile(ctx context.Context, file *os.File, size uint64) error {
	for at := uint64(0); at < size; {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("allocation ended after %d of %d bytes of huge pages: %w", at, size, context.Cause(ctx))
		}
		n := min(size-at, partBytes)
		switch err := syscall.Fallocate(int(file.Fd()), 0, int64(at), int64(n)); {
		case errors.Is(err, syscall.EINTR), errors.Is(err, syscall.EAGAIN): // The allocated part stays allocated.
		case err != nil:
			err = fmt.Errorf("allocate %d bytes of huge pages: %w", size, err)
			return cmp.Or(asHugeShortage(size, err), err)
		default:
			at += n
		}
	}
	return nil
}

// MapPrivateHuge maps private memory in huge pages. The mapping may be longer than size. With overcommit the kernel
// promises the pages, and allocates each page when first touched.
func MapPrivateHuge(size uint64, overcommit bool) ([]byte, error) {
	room := AvailableHugePages()
	if err := room.checkSize(size); err != nil {
		return nil, err
	}
	flags := syscall.MAP_PRIVATE | syscall.MAP_ANON | mapHuge
	if !overcommit {
		flags |= syscall.MAP_POPULATE
	}
	mem, err := syscall.Mmap(-1, 0, int(room.RoundUp(size)), syscall.PROT_READ|syscall.PROT_WRITE, flags)
	if err != nil {
		err = fmt.Errorf("map %d bytes of huge pages: %w", size, err)
		return nil, cmp.Or(asHugeShortage(size, err), err)
	}
	if err := HideFromCores(mem); err != nil {
		return nil, errors.Join(err, syscall.Munmap(mem))
	}
	return mem, nil
}
