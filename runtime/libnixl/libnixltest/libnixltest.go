//go:build cgo && linux

// Package libnixltest has helpers for tests over libnixl: the library, memory that is not Go's, and a way to end the
// process. Only tests import it.
package libnixltest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/kvferry/kvferry/runtime/libnixl"
	"github.com/kvferry/kvferry/runtime/plane/backing"
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

// AllocShared returns memory like AllocMemory, and the file by which another process maps it.
func AllocShared(tb testing.TB, bytes int) (*os.File, []byte) {
	tb.Helper()
	file, m, err := backing.Memfd{Name: "kvferry-test", Bytes: uint64(bytes), Writable: true}.CreateAndMap(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _, _ = syscall.Munmap(m), file.Close() })
	return file, m
}

// Children returns the processes of libnixl that a process has started, in the order of their numbers.
func Children(tb testing.TB, parent int) (list []int) {
	tb.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		tb.Fatal(err)
	}
	for _, name := range all {
		folder := filepath.Dir(name)
		text, err := os.ReadFile(name)
		if err != nil || !strings.HasPrefix(string(text), "kvferry-libnixl") {
			continue
		}
		status, _ := os.ReadFile(filepath.Join(folder, "status"))
		if strings.Contains(string(status), fmt.Sprintf("\nPPid:\t%d\n", parent)) && !strings.Contains(string(status), "\nState:\tZ") {
			pid, _ := strconv.Atoi(filepath.Base(folder))
			list = append(list, pid)
		}
	}
	slices.Sort(list)
	return list
}

// DeadlyMetadata returns changed metadata of an agent. A process that loads them ends with a segmentation fault, because
// they name a kind of memory that does not exist.
func DeadlyMetadata(tb testing.TB, metadata []byte) []byte {
	tb.Helper()
	const before = "nixlSDList|t"
	at := bytes.Index(metadata, []byte(before))
	if at < 0 || at+len(before)+8 >= len(metadata) {
		tb.Fatalf("these metadata have no list of memory: %q", metadata)
	}
	deadly := bytes.Clone(metadata)
	deadly[at+len(before)+8] = 0x40
	return deadly
}

// ExitProcess ends the process as a Go program ends: without C's exit handlers, of which at least one crashes in a
// library of the wheel. Under the race detector os.Exit runs these handlers.
func ExitProcess(code int) {
	_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT_GROUP, uintptr(code), 0, 0)
}
