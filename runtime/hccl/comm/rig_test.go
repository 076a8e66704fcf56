//go:build cgo && linux

package comm

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kvferry/kvferry/runtime/acl"
	"github.com/kvferry/kvferry/runtime/acl/acltest"
	"github.com/kvferry/kvferry/runtime/softnpu"
)

// The tests of this package run on the software NPU, which is selected by path like a real library. A test with two
// processes starts its own binary again, for the same test: see pair_test.go.
var (
	softnpuPath    string
	softnpuMissing error
)

func TestMain(m *testing.M) {
	softnpuPath, softnpuMissing = buildNPU()
	for name, value := range map[string]string{
		"CANNEMU_DEVICES": "2", "CANNEMU_DEVICE_MEMORY": "134217728", "CANNEMU_HOST_MEMORY": "134217728",
	} {
		os.Setenv(name, value)
	}
	if os.Getenv("CANNEMU_DIR") != "" { // where processes meet: made by the process that started this process
		goleak.VerifyTestMain(m)
		return
	}
	dir, err := os.MkdirTemp("", "kvferry-comm-")
	if err != nil {
		panic(err)
	}
	os.Setenv("CANNEMU_DIR", dir)
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		os.RemoveAll(dir)
		os.Exit(code)
	}))
}

// buildNPU builds the software NPU, or returns the path in KVFERRY_SOFTNPU, for example of a sanitized build.
func buildNPU() (string, error) {
	if path := os.Getenv("KVFERRY_SOFTNPU"); path != "" {
		return path, nil
	}
	return softnpu.Variant{}.BuildLibrary()
}

func needNPU(t testing.TB) {
	t.Helper()
	if errors.Is(softnpuMissing, softnpu.ErrNoTools) {
		t.Skip(softnpuMissing)
	}
	if softnpuMissing != nil {
		t.Fatal(softnpuMissing)
	}
}

// A rig is the software NPU of this process, and the libraries of both bindings on it.
type rig struct {
	t    testing.TB
	npu  *acltest.NPU
	acl  *acl.Library
	lib  *Library
	left string // on the devices before the test
}

// newRig opens the libraries. When the test ends, nothing may be left, and no rule of the vendor may have been
// broken.
func newRig(t testing.TB, hidden ...string) *rig {
	t.Helper()
	r := newRigWithoutBindings(t)
	r.left = r.runCommand("leaks")
	t.Cleanup(r.checkClean)
	r.openLibraries(hidden)
	t.Cleanup(func() {
		if err := errors.Join(r.lib.Close(), r.acl.Close()); err != nil {
			t.Error(err)
		}
	})
	return r
}

// newRigWithoutBindings opens the software NPU without the bindings. A binding loads the library first, so that the
// environment counts.
func newRigWithoutBindings(t testing.TB) *rig {
	t.Helper()
	needNPU(t)
	first, err := Open(Options{Library: softnpuPath})
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	npu, err := acltest.OpenNPU(softnpuPath)
	if err != nil {
		t.Fatal(err)
	}
	return &rig{t: t, npu: npu}
}

func (r *rig) openLibraries(hidden []string) {
	r.t.Helper()
	var err error
	if r.lib, err = Open(Options{Library: softnpuPath, hiddenSymbols: hidden}); err != nil {
		r.t.Fatal(err)
	}
	if r.acl, err = acl.Open(acl.Options{Library: softnpuPath}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) runCommand(command string) string {
	r.t.Helper()
	reply, err := r.npu.Control(command)
	if err != nil {
		r.t.Fatal(err)
	}
	return reply
}

// addFaults adds rules for the time of the test.
func (r *rig) addFaults(rules string) {
	r.t.Helper()
	r.runCommand("faults " + rules)
	r.t.Cleanup(func() { r.runCommand("clear") })
}

func (r *rig) readStat(name string) int64 {
	r.t.Helper()
	stats, err := r.npu.Stats()
	if err != nil {
		r.t.Fatal(err)
	}
	return stats[name]
}

// checkClean fails the test if objects are left or rules were broken, and resets the software NPU's records.
func (r *rig) checkClean() {
	r.t.Helper()
	r.runCommand("clear")
	if left := r.runCommand("leaks"); left != r.left {
		r.t.Errorf("objects on the devices after the test:\n%sand before the test:\n%s", left, r.left)
	}
	if broken := r.runCommand("violations"); broken != "" {
		r.t.Errorf("the test broke rules of the vendor:\n%s", broken)
	}
	r.runCommand("forget")
}

// newContext makes a context that is closed when the test ends.
func (r *rig) newContext(device acl.DeviceID) *acl.Context {
	r.t.Helper()
	c, err := r.acl.NewContext(acl.ContextOptions{Device: device, CloseTimeout: longEnough})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := c.Close(); err != nil {
			r.t.Errorf("closing the context: %v", err)
		}
	})
	return c
}

// mustDoBlocking runs f on a thread where calls may block.
func mustDoBlocking(t testing.TB, c *acl.Context, f func(acl.CurrentThread) error) {
	t.Helper()
	if err := c.DoBlocking(func(g *acl.BlockingThread) error { return f(g) }); err != nil {
		t.Fatal(err)
	}
}

// newerSymbols are the symbols that an older library lacks.
var newerSymbols = []string{
	"HcclCommInitClusterInfoMemConfig", "HcclRegisterGlobalMem", "HcclDeregisterGlobalMem", "HcclCommBindMem",
	"HcclCommUnbindMem", "HcclCommPrepare",
}

// librariesBySequence lists the hidden functions for a library of each sequence.
var librariesBySequence = map[string][]string{"global": nil, "exchange": newerSymbols}

// wantCode fails the test unless err is an *Error of the call with the code, and returns that *Error.
func wantCode(t testing.TB, err error, code Code, call string) *Error {
	t.Helper()
	var failed *Error
	if !errors.As(err, &failed) || failed.Code != code || failed.Call != call {
		t.Fatalf("got %v, want %v of %s", err, code, call)
	}
	return failed
}

func wantRefusal(t testing.TB, err, want error, text string) {
	t.Helper()
	if !errors.Is(err, want) || !strings.Contains(err.Error(), text) {
		t.Errorf("got %v, want %v with %q", err, want, text)
	}
}

// longEnough is a timeout that no working machine reaches.
const longEnough = 10 * time.Minute
