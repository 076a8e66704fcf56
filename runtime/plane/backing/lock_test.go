package backing

import (
	"errors"
	"math"
	"os"
	"strings"
	"syscall"
	"testing"
)

// A process may lock what RLIMIT_MEMLOCK leaves, or everything with CAP_IPC_LOCK.
func TestCheckLock(t *testing.T) {
	const status = "VmLck:\t    4 kB\nCapEff:\t0000000000000000\n"
	for _, c := range []struct {
		name, status string
		size, limit  uint64
		refused      bool
	}{
		{"no limit", status, 1 << 40, math.MaxUint64, false},
		{"within the limit", status, 8 << 10, 12 << 10, false},
		{"beyond it, with what is locked", status, 8<<10 + 1, 12 << 10, true},
		{"nothing is left", status, 1, 1 << 10, true},
		{"with the capability", "VmLck:\t4 kB\nCapEff:\t0000000000004000\n", 1 << 40, 0, false},
		{"with all others", "VmLck:\t4 kB\nCapEff:\tffffffffffffbfff\n", 1 << 40, 1 << 20, true},
		{"nothing can be seen", "", 1 << 20, 1<<20 - 1, true},
	} {
		err := checkLockLimit(writeFiles(t, map[string]string{"proc/self/status": c.status}), c.size, c.limit)
		var u *LockShortage
		if errors.As(err, &u) != c.refused || err != nil && (u.RequestedBytes != c.size || u.Limit != c.limit) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// Locked memory is locked according to the kernel; the error for memory that may not be locked says why.
func TestLock(t *testing.T) {
	mem, err := MapPrivate(t.Context(), 1<<20, false)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Munmap(mem)
	if err := CheckLockLimit(uint64(len(mem))); err != nil {
		t.Skip(err)
	}
	before := lockedBytes(t)
	if err := LockMemory(mem); err != nil {
		t.Fatal(err)
	}
	if got := lockedBytes(t) - before; got < uint64(len(mem)) {
		t.Errorf("%d bytes more are locked, want %d", got, len(mem))
	}
	var u *LockShortage
	if err := LockMemory(unmappedAddress(t)); !errors.As(err, &u) || !errors.Is(err, syscall.ENOMEM) ||
		!strings.Contains(err.Error(), "RLIMIT_MEMLOCK") {
		t.Errorf("memory that is not mapped: %v", err)
	}
}

// unmappedAddress returns an address whose memory was unmapped.
func unmappedAddress(t *testing.T) []byte {
	t.Helper()
	mem, err := syscall.Mmap(-1, 0, 1<<20, syscall.PROT_READ, syscall.MAP_PRIVATE|syscall.MAP_ANONYMOUS)
	if err == nil {
		err = syscall.Munmap(mem)
	}
	if err != nil {
		t.Fatal(err)
	}
	return mem
}

func lockedBytes(t *testing.T) uint64 {
	t.Helper()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skip(err)
	}
	kib, ok := parseField(text, "VmLck:")
	if !ok {
		t.Skip("the kernel does not count what is locked")
	}
	return kib << 10
}
