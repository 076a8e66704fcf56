//go:build cgo && linux

// Package libnixltest has what tests over libnixl start from: the library, memory that is not Go's, and a way out of
// the process. Tests import it, nothing else does.
package libnixltest

import (
	"errors"
	"os"
	"sync"
	"syscall"
	"testing"

	"github.com/kvferry/kvferry/runtime/libnixl"
)

var opened = sync.OnceValues(func() (*libnixl.Library, error) { return libnixl.Open(libnixl.Options{}) })

// Library is libnixl, or skips the test where there is none. One that was named must be there.
func Library(tb testing.TB) *libnixl.Library {
	tb.Helper()
	l, err := opened()
	missed := (*libnixl.LoadError)(nil)
	if errors.As(err, &missed) && os.Getenv(libnixl.LibraryVariable) == "" {
		tb.Skipf("make nixl-test fetches the library and runs this: %v", err)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// Memory is some that stays where it is and is not Go's, until the test's end.
func Memory(tb testing.TB, bytes int) []byte {
	tb.Helper()
	m, err := syscall.Mmap(-1, 0, bytes, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = syscall.Munmap(m) })
	return m
}

// Exit ends the process as a Go program ends: without C's exit handlers, of which one of the wheel's libraries faults.
// Under the race detector os.Exit runs them.
func Exit(code int) {
	_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT_GROUP, uintptr(code), 0, 0)
}
