//go:build cgo && linux

package sharedlib

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"
)

// The C library is there already, and its functions are found where the table wants them.
func TestResolve(t *testing.T) {
	if !IsLoaded("libc.so.6") {
		t.Error("the C library is not resident")
	}
	l, err := Load("libc.so.6")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(l.File, "libc.so") || len(l.Signals) != 0 {
		t.Errorf("got %+v", l)
	}
	var table struct{ malloc, none, absent, hidden unsafe.Pointer }
	required, optional := l.Resolve(unsafe.Pointer(&table), []Symbol{
		{Name: "malloc", Required: true, Offset: unsafe.Offsetof(table.malloc)},
		{Name: "kvferry_none", Required: true, Offset: unsafe.Offsetof(table.none)},
		{Name: "kvferry_absent", Offset: unsafe.Offsetof(table.absent)},
		{Name: "free", Offset: unsafe.Offsetof(table.hidden)},
	}, []string{"free"})
	if !slices.Equal(required, []string{"kvferry_none"}) || !slices.Equal(optional, []string{"kvferry_absent", "free"}) {
		t.Errorf("missing %v and %v", required, optional)
	}
	if table.malloc == nil || table.none != nil || table.absent != nil || table.hidden != nil {
		t.Errorf("the table is %v", table)
	}
}

// A library that takes a signal with a handler that Go cannot bear is told with its number.
func TestSignals(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("gcc is not installed")
	}
	folder := t.TempDir()
	source, library := filepath.Join(folder, "take.c"), filepath.Join(folder, "libtake.so")
	text := `#include <signal.h>
static void handle(int number) { (void)number; }
__attribute__((constructor)) static void take(void) { signal(SIGUSR2, handle); }
`
	if err := os.WriteFile(source, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("gcc", "-shared", "-fPIC", "-o", library, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if IsLoaded(library) {
		t.Error("resident before it was opened")
	}
	l, err := Load(library)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(l.Signals, []int{12}) || l.File != library || !IsLoaded(library) {
		t.Errorf("got %+v", l)
	}
}
