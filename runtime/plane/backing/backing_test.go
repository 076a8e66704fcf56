package backing

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// writeFiles writes files below a folder of the test.
func writeFiles(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestTheNarrowestLimitCounts(t *testing.T) {
	const meminfo = "MemTotal: 99 kB\nMemAvailable:    1000 kB\n"
	for _, c := range []struct {
		name  string
		files map[string]string
		want  uint64
		limit string
	}{
		{"nothing to be seen", nil, math.MaxUint64, "no limit"},
		{"a host", map[string]string{"proc/meminfo": meminfo}, 1000 << 10, "MemAvailable"},
		{"a group without a limit", map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a\n",
			"sys/fs/cgroup/a/memory.max": "max\n", "sys/fs/cgroup/a/memory.current": "5\n"}, 1000 << 10, "MemAvailable"},
		{"a group, with pages that can be dropped", map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a\n",
			"sys/fs/cgroup/a/memory.max": "1000\n", "sys/fs/cgroup/a/memory.current": "600\n",
			"sys/fs/cgroup/a/memory.stat": "anon 400\ninactive_file 50\nactive_file 70\n"}, 520, "memory.max of cgroup /a"},
		{"the group above it is narrower", map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a/b\n",
			"sys/fs/cgroup/a/memory.max": "300\n", "sys/fs/cgroup/a/memory.current": "100\n",
			"sys/fs/cgroup/a/b/memory.max": "1000\n", "sys/fs/cgroup/a/b/memory.current": "100\n"}, 200,
			"memory.max of cgroup /a"},
		{"a container, whose group is the top",
			map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/../../elsewhere\n",
				"sys/fs/cgroup/memory.max": "100\n", "sys/fs/cgroup/memory.current": "40\n"}, 60, "memory.max of cgroup /"},
		{"more in use than the limit", map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n",
			"sys/fs/cgroup/memory.max": "100\n", "sys/fs/cgroup/memory.current": "140\n"}, 0, "memory.max"},
		{"version 1", map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "4:cpuset,memory:/a\n0::/\n",
			"sys/fs/cgroup/memory/a/memory.limit_in_bytes": "500\n", "sys/fs/cgroup/memory/a/memory.usage_in_bytes": "100\n",
			"sys/fs/cgroup/memory/a/memory.stat":         "inactive_file 90\ntotal_inactive_file 10\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
			"sys/fs/cgroup/memory/memory.usage_in_bytes": "9\n"},
			410, "memory.limit_in_bytes of cgroup /a"},
		{"files of nonsense", map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0\n:::\n0::/\n",
			"sys/fs/cgroup/memory.max": "much\n", "sys/fs/cgroup/memory.current": "\n"}, 1000 << 10, "MemAvailable"},
	} {
		if got := availableUnder(writeFiles(t, c.files)); got.Bytes != c.want || !strings.Contains(got.Limit, c.limit) {
			t.Errorf("%s: %+v; want %d by %s", c.name, got, c.want, c.limit)
		}
	}
}

func TestShortageIsReportedAtOnce(t *testing.T) {
	var short *Shortage
	if err := CheckAvailable(1 << 60); !errors.As(err, &short) || short.RequestedBytes != 1<<60 || short.Bytes == 0 {
		t.Fatalf("%v", err)
	}
	if mem, err := MapPrivate(t.Context(), 1<<42, false); !errors.As(err, &short) || mem != nil {
		t.Errorf("private memory: %v", err)
	}
	mem, err := MapPrivate(t.Context(), 1<<42, true)
	if err != nil {
		t.Fatalf("with overcommit: %v", err)
	}
	mem[1<<41] = 1
	if err := syscall.Munmap(mem); err != nil {
		t.Error(err)
	}
	if err := CheckAvailable(1); err != nil {
		t.Error(err)
	}
}

// An error of the kernel in the middle ends the allocation, with a shortage if it is one. A signal does not end it.
func TestFailingPartEndsAllocation(t *testing.T) {
	const size = 3*partBytes + 1
	var taken uint64
	signals := 3
	err := allocateInParts(t.Context(), size, AvailableMemory, func(at, n uint64) error {
		if signals--; signals >= 0 {
			return syscall.EINTR
		}
		if at != taken || n > partBytes/8 {
			t.Fatalf("took %d at %d after %d; parts get smaller where signals come", n, at, taken)
		}
		taken += n
		return nil
	})
	if err != nil || taken != size {
		t.Fatalf("took %d: %v", taken, err)
	}
	var short *Shortage
	for errno, shortage := range map[syscall.Errno]bool{syscall.ENOSPC: true, syscall.EIO: false} {
		err := allocateInParts(t.Context(), 1, AvailableMemory, func(uint64, uint64) error { return errno })
		if errors.As(err, &short) != shortage || !errors.Is(err, errno) {
			t.Errorf("%v", err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := allocateInParts(ctx, 1, AvailableMemory, func(uint64, uint64) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// Another process allocates memory after the first part: the available memory is checked before each part.
func TestAvailableMemoryIsCheckedBeforeEachPart(t *testing.T) {
	rooms := []Available{{Bytes: 8 * partBytes}, {Bytes: partBytes, Limit: "/proc/meminfo"}}
	parts := 0
	err := allocateInParts(t.Context(), 3*partBytes, func() Available { return rooms[min(parts, 1)] }, func(uint64, uint64) error {
		parts++
		return nil
	})
	var short *Shortage
	if !errors.As(err, &short) || short.RequestedBytes != 2*partBytes || short.Limit != "/proc/meminfo" || parts != 1 {
		t.Errorf("after %d parts: %v", parts, err)
	}
}

// A limit of this process is a shortage, too, and the error says where to look.
func TestProcessLimitIsAShortage(t *testing.T) {
	const limitData, size = 2, 64 << 30 // RLIMIT_DATA
	var old syscall.Rlimit
	if err := syscall.Getrlimit(limitData, &old); err != nil {
		t.Fatal(err)
	}
	less := old
	less.Cur = min(old.Max, 8<<30) // far from what the test itself needs
	if err := syscall.Setrlimit(limitData, &less); err != nil {
		t.Fatal(err)
	}
	mem, err := MapPrivate(t.Context(), size, true)
	if err := syscall.Setrlimit(limitData, &old); err != nil {
		t.Fatal(err)
	}
	var short *Shortage
	if mem != nil || !errors.As(err, &short) || short.RequestedBytes != size || !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("%v", err)
	}
	if err := AsShortage(0, syscall.EFBIG); !errors.As(err, &short) || !strings.Contains(err.Error(), "ulimit") {
		t.Errorf("%v", err)
	}
	if err := AsShortage(1, syscall.EMFILE); err != nil {
		t.Errorf("that is no shortage of memory: %v", err)
	}
}

func TestPrivateMemoryIsAllocated(t *testing.T) {
	const size = 64 << 20
	mem, err := MapPrivate(t.Context(), size, false)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Munmap(mem)
	if n := residentPages(t, mem); n != size/os.Getpagesize() {
		t.Errorf("%d of %d pages are there", n, size/os.Getpagesize())
	}
}

func BenchmarkFile1GiB(b *testing.B) {
	for range b.N {
		file, err := os.CreateTemp("/dev/shm", "kvferry-backing")
		if err != nil {
			b.Skip(err)
		}
		_ = os.Remove(file.Name())
		if err := AllocateFile(b.Context(), file, 1<<30); err != nil {
			b.Error(err)
		}
		_ = file.Close()
	}
}
