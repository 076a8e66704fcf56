package backing

import (
	"os"
	"syscall"
	"testing"
	"unsafe"
)

// residentPages counts the pages of a mapping that are in memory.
func residentPages(t *testing.T, mem []byte) (n int) {
	t.Helper()
	there := make([]byte, len(mem)/os.Getpagesize())
	if _, _, e := syscall.Syscall(syscall.SYS_MINCORE, uintptr(unsafe.Pointer(&mem[0])), uintptr(len(mem)),
		uintptr(unsafe.Pointer(&there[0]))); e != 0 {
		t.Fatal(e)
	}
	for _, b := range there {
		n += int(b & 1)
	}
	return n
}
