//go:build cgo && linux

package acl

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/runtime/acl/acltest"
)

// The binding and the software NPU were compiled from separate declarations, which must agree.
func TestLayoutOfTheABI(t *testing.T) {
	npu := findNPU(t)
	for name, ours := range acltest.ABILayout() {
		if theirs, ok := npu.ABIValue(name); !ok || theirs != uint64(ours) {
			t.Errorf("%s: %d here, %d there (known there: %v)", name, ours, theirs, ok)
		}
	}
}

func TestOpenTwiceTakesTwoReferences(t *testing.T) {
	first := newRig(t)
	second, err := Open(Options{Library: softnpuPath})
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	if err := second.Close(); err != nil {
		t.Errorf("closing again: %v", err)
	}
	if _, err := second.DeviceCount(); !errors.Is(err, ErrClosed) {
		t.Errorf("a closed library answers %v", err)
	}
	if _, err := second.NewContext(ContextOptions{}); !errors.Is(err, ErrClosed) {
		t.Errorf("a closed library makes a context: %v", err)
	}
	// The first library goes on, because it has a separate reference.
	if n, err := first.lib.DeviceCount(); n == 0 || err != nil {
		t.Errorf("%d devices, %v", n, err)
	}
	if stats := first.readStats(); stats["calls.aclInit"] != 2 || stats["calls.aclFinalizeReference"] != 1 ||
		stats["calls.aclFinalize"] != 0 {
		t.Errorf("%d times initialised, %d times given back, %d times finalised for all; want 2, 1, 0",
			stats["calls.aclInit"], stats["calls.aclFinalizeReference"], stats["calls.aclFinalize"])
	}
}

func TestInfo(t *testing.T) {
	r := newRig(t, "aclrtStreamAbort")
	info := r.lib.Info()
	if info.Library != softnpuPath || info.SoC == "" || info.ACL.Major != 1 || info.CANN == "" {
		t.Errorf("got %+v", info)
	}
	if !slices.Contains(info.Missing, "aclrtStreamAbort") || r.lib.HasSymbol("aclrtStreamAbort") ||
		!r.lib.HasSymbol("aclrtStreamQuery") {
		t.Errorf("missing: %v", info.Missing)
	}
	if len(info.Signals) != 0 {
		t.Errorf("loading took signals %v", info.Signals)
	}
}

// The version of an old toolkit comes from its files, because there is no function for it.
func TestInfoOfAnOldLibrary(t *testing.T) {
	clearEnv(t)
	r := newRig(t, "aclsysGetVersionStr", "aclrtGetVersion", "aclrtGetSocName", "aclFinalizeReference")
	if info := r.lib.Info(); info.CANN != "" || info.SoC != "" || info.ACL != (ACLVersion{}) {
		t.Errorf("got %+v of a library that does not say", info)
	}
	// Closing without aclFinalizeReference leaves AscendCL initialised, and must not fail.
	if err := r.lib.Close(); err != nil {
		t.Error(err)
	}
}

// The stub library that CANN links programs against returns the same code from every function; the error of Open must
// say that the library is a stub.
func TestStubLibraryIsToldAsSuch(t *testing.T) {
	npu := findNPU(t)
	if _, err := npu.Control("faults call:sym=aclInit,nth=*,code=100039"); err != nil {
		t.Fatal(err)
	}
	defer npu.Control("clear")
	_, err := Open(Options{Library: softnpuPath})
	if attempts := loadAttempts(t, err); len(attempts) != 1 || !strings.Contains(attempts[0].Reason, "stub library") {
		t.Errorf("tried %+v", attempts)
	}
}

func TestInitThatFailsIsNoLoadError(t *testing.T) {
	npu := findNPU(t)
	if _, err := npu.Control("faults call:sym=aclInit,nth=*,code=500000,msg=driver is missing"); err != nil {
		t.Fatal(err)
	}
	defer npu.Control("clear")
	_, err := Open(Options{Library: softnpuPath})
	failed := wantClass(t, err, Device)
	if failed == nil || failed.Call != "aclInit" || failed.Message != "driver is missing" {
		t.Errorf("got %+v", failed)
	}
}

func TestEachRequiredSymbolIsNamedWhenItIsMissing(t *testing.T) {
	findNPU(t)
	for _, s := range listSymbols() {
		if !s.Required {
			continue
		}
		l, err := Open(Options{Library: softnpuPath, hiddenSymbols: []string{s.Name}})
		if l != nil {
			l.Close()
			t.Errorf("opened without %s", s.Name)
			continue
		}
		attempts := loadAttempts(t, err)
		if len(attempts) != 1 || !slices.Equal(attempts[0].Missing, []string{s.Name}) || !strings.Contains(err.Error(),
			s.Name) {
			t.Errorf("without %s: %+v", s.Name, attempts)
		}
	}
}

func TestDevices(t *testing.T) {
	r := newRig(t)
	n, err := r.lib.DeviceCount()
	if err != nil {
		t.Fatal(err)
	}
	for d := range n {
		if _, err := r.lib.PhysicalID(DeviceID(d)); err != nil {
			t.Error(err)
		}
		if can, err := r.lib.CanAccessPeer(DeviceID(d), DeviceID((d+1)%n)); err != nil || !can {
			t.Errorf("device %d reaches its neighbour: %v, %v", d, can, err)
		}
		if _, err := r.lib.SuperPod(DeviceID(d)); err != nil && !errors.Is(err, Unsupported) {
			t.Error(err)
		}
	}
	if _, err := r.lib.PhysicalID(DeviceID(n)); err == nil {
		t.Errorf("device %d of %d has a number", n, n)
	}
	_, err = r.lib.NewContext(ContextOptions{Device: DeviceID(n)})
	if failed := wantClass(t, err, Config); failed == nil || failed.Call != "aclrtSetDevice" {
		t.Errorf("got %v", err)
	}
}
