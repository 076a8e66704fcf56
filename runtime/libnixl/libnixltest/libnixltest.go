//go:build cgo && linux

// Package libnixltest has helpers for tests over libnixl: the library, memory that is not Go's, and a way to end the
// process. Only tests import it.
package libnixltest

import (
	"errors"
	"os"
	"sync"
	"syscall"
	"testing"

	"github.com/kvferry/kvferry/runtime/libnixl"
)

var openOnce = sync.OnceValues(func() (*libnixl.Library, error) { return libnixl.Open(libnixl.Options{}) })

// LoadLibrary returns libnixl, or skips the test if there is none. If the library that the environment names cannot be
// loaded, the test fails.
func LoadLibrary(tb testing.TB) *libnixl.Library {
	tb.Helper()
	l, err := openOnce()
	missed := (*libnixl.LoadError)(nil)
	if errors.As(err, &missed) && os.Getenv(libnixl.LibraryVariable) == "" {
		tb.Skipf("no libnixl here; make nixl-test downloads the library and runs this test: %v", err)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// AllocMemory returns memory that does not move and is not Go's. The memory is freed at the test's end.
func AllocMemory(tb testing.TB, bytes int) []byte {
	tb.Helper()
	m, err := syscall.Mmap(-1, 0, bytes, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = syscall.Munmap(m) })
	return m
}

// ExitProcess ends the process as a Go program ends: without C's exit handlers, of which at least one crashes in a
// library of the wheel. Under the race detector os.Exit runs these handlers.
func ExitProcess(code int) {
	_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT_GROUP, uintptr(code), 0, 0)
}
