package plane

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/kvferry/kvferry/runtime/plane/backing"
)

// isDumped reports whether a core file of this process contains memory.
func isDumped(t *testing.T, mem []byte) bool {
	t.Helper()
	text, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Skip(err)
	}
	at := uintptr(unsafe.Pointer(unsafe.SliceData(mem)))
	inside := false
	for line := range strings.Lines(string(text)) {
		var from, to uintptr
		if n, _ := fmt.Sscanf(line, "%x-%x ", &from, &to); n == 2 {
			inside = from <= at && at < to
		} else if flags, ok := strings.CutPrefix(line, "VmFlags:"); ok && inside {
			return !slices.Contains(strings.Fields(flags), "dd")
		}
	}
	t.Fatal("the memory is not mapped")
	return false
}

// Core files contain no KV cache: neither a pool's pages nor those of a mapped peer's pool.
func TestCoreFilesHaveNoPages(t *testing.T) {
	p, err := NewPool(PoolConfig{Pages: 8, PageBytes: 4096, Sink: &events{}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close() // Nothing else is checked.
	m, err := MapPool(p.PagesFile().Fd(), p.GenerationsFile().Fd(), 8, 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Unmap() //nolint:errcheck // Likewise.
	private, err := backing.MapPrivate(t.Context(), 1<<16, true)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Munmap(private) //nolint:errcheck // Likewise.
	for what, mem := range map[string][]byte{"a pool": p.pagesMem, "a peer's pool": m.mem, "memory of the process": private} {
		if isDumped(t, mem) {
			t.Errorf("%s is in core files", what)
		}
	}
}
