package backing

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
)

// meminfo is the text of a kernel with huge pages of 2 MiB.
func meminfo(total, free, promised, surplus string) string {
	return "MemAvailable: 1000 kB\nHugePages_Total: " + total + "\nHugePages_Free: " + free + "\nHugePages_Rsvd: " + promised +
		"\nHugePages_Surp: " + surplus + "\nHugepagesize: 2048 kB\n"
}

// Huge pages that others have or were promised are not available; those that the kernel may still find are.
func TestHugePagesOf(t *testing.T) {
	for _, c := range []struct {
		name, meminfo string
		more          uint64
		want          HugeRoom
	}{
		{"none are reserved", meminfo("0", "0", "0", "0"), 0, HugeRoom{2 << 20, 0, 0}},
		{"some are promised", meminfo("8", "6", "2", "0"), 0, HugeRoom{2 << 20, 4, 8}},
		{"more may be looked for", meminfo("8", "0", "0", "3"), 5, HugeRoom{2 << 20, 2, 8}},
		{"all of those are there", meminfo("8", "1", "1", "5"), 5, HugeRoom{2 << 20, 0, 8}},
		{"a kernel without", "MemAvailable: 1000 kB\n", 0, HugeRoom{}},
	} {
		if got := ParseHugePages([]byte(c.meminfo), c.more); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
	room := HugeRoom{2 << 20, 4, 8}
	if err := room.checkSize(8 << 20); err != nil {
		t.Errorf("as much as there is: %v", err)
	}
	var s *HugeShortage
	if err := room.checkSize(8<<20 + 1); !errors.As(err, &s) || s.RequestedPages() != 5 ||
		!strings.Contains(err.Error(), "5 huge pages of 2097152 bytes are requested; 4 are free, of 8 reserved") {
		t.Errorf("a byte more: %v", err)
	}
	if err := (HugeRoom{}).checkSize(1); !errors.As(err, &s) || s.RequestedPages() != 0 || !strings.Contains(err.Error(), "has none") {
		t.Errorf("a kernel without: %v", err)
	}
}

// hugeBytes returns the size of a huge page. It skips the test if there are too few.
func hugeBytes(t *testing.T, pages uint64) uint64 {
	t.Helper()
	room := AvailableHugePages()
	if room.Free < pages {
		t.Skipf("%d huge pages are free, %d are needed: make huge-test", room.Free, pages)
	}
	return room.PageBytes
}

// Memory in huge pages is allocated at once, has its seals, and is given back.
func TestMemoryInHugePages(t *testing.T) {
	unit := hugeBytes(t, 3)
	before := AvailableHugePages().Free
	for _, m := range []Memfd{{}, {Writable: true}, {Overcommit: true}} {
		m.Name, m.Bytes, m.Huge = "kvferry-test", 2*unit+1, true
		file, mem, err := m.CreateAndMap(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := before - AvailableHugePages().Free; got != 3 { // With Overcommit they are promised.
			t.Errorf("%+v: %d huge pages are taken, want 3", m, got)
		}
		if len(mem) != int(3*unit) {
			t.Errorf("%+v: %d bytes are mapped, want %d", m, len(mem), 3*unit)
		}
		mem[0], mem[2*unit] = 1, 2
		if err := file.Truncate(0); !errors.Is(err, syscall.EPERM) {
			t.Errorf("%+v: its size can be changed: %v", m, err)
		}
		theirs, err := syscall.Mmap(int(file.Fd()), 0, len(mem), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
		if (err == nil) != m.Writable {
			t.Errorf("%+v: mapped writable: %v", m, err)
		}
		if err == nil {
			err = syscall.Munmap(theirs)
		} else {
			err = nil
		}
		if err = errors.Join(err, syscall.Munmap(mem), file.Close()); err != nil {
			t.Error(err)
		}
	}
	for _, overcommit := range []bool{false, true} {
		mem, err := MapPrivateHuge(unit+1, overcommit)
		if err != nil {
			t.Fatal(err)
		}
		if got := before - AvailableHugePages().Free; got != 2 {
			t.Errorf("private, overcommit %v: %d huge pages are taken, want 2", overcommit, got)
		}
		if err := syscall.Munmap(mem); err != nil {
			t.Error(err)
		}
	}
	if got := AvailableHugePages().Free; got != before {
		t.Errorf("%d huge pages are free after the end, %d were before", got, before)
	}
}

// Asking for more huge pages than there are fails, and nothing stays allocated.
func TestHugeShortage(t *testing.T) {
	room := AvailableHugePages()
	if room.PageBytes == 0 {
		t.Skip("this kernel has no huge pages")
	}
	size := (room.Free + 1) * room.PageBytes
	var s *HugeShortage
	if _, _, err := (Memfd{Name: "kvferry-test", Bytes: size, Huge: true}).CreateAndMap(t.Context()); !errors.As(err, &s) {
		t.Errorf("a file: %v", err)
	}
	if _, err := MapPrivateHuge(size, false); !errors.As(err, &s) {
		t.Errorf("memory of this process: %v", err)
	}
	if got := asHugeShortage(size, os.NewSyscallError("fallocate", syscall.ENOSPC)); !errors.As(got, &s) || s.Cause == nil {
		t.Errorf("what the kernel says: %v", got)
	}
	if got := AvailableHugePages(); got != room {
		t.Errorf("there are %+v, and were %+v", got, room)
	}
}
