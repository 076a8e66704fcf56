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
	return softnpu.Variant{}.Library()
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
	r := watch(t)
	r.left = r.control("leaks")
	t.Cleanup(r.clean)
	r.open(hidden)
	t.Cleanup(func() {
		if err := errors.Join(r.lib.Close(), r.acl.Close()); err != nil {
			t.Error(err)
		}
	})
	return r
}

// watch opens the software NPU without the bindings. A binding loads the library first, so that the environment counts.
func watch(t testing.TB) *rig {
	t.Helper()
	needNPU(t)
	first, err := Open(Options{Library: softnpuPath})
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	npu, err := acltest.Find(softnpuPath)
	if err != nil {
		t.Fatal(err)
	}
	return &rig{t: t, npu: npu}
}

func (r *rig) open(hidden []string) {
	r.t.Helper()
	var err error
	if r.lib, err = Open(Options{Library: softnpuPath, hidden: hidden}); err != nil {
		r.t.Fatal(err)
	}
	if r.acl, err = acl.Open(acl.Options{Library: softnpuPath}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) control(command string) string {
	r.t.Helper()
	reply, err := r.npu.Control(command)
	if err != nil {
		r.t.Fatal(err)
	}
	return reply
}

// fault adds rules for the time of the test.
func (r *rig) fault(rules string) {
	r.t.Helper()
	r.control("faults " + rules)
	r.t.Cleanup(func() { r.control("clear") })
}

func (r *rig) stat(name string) int64 {
	r.t.Helper()
	stats, err := r.npu.Stats()
	if err != nil {
		r.t.Fatal(err)
	}
	return stats[name]
}

// clean fails the test if objects are left or rules were broken, and resets the software NPU's records.
func (r *rig) clean() {
	r.t.Helper()
	r.control("clear")
	if left := r.control("leaks"); left != r.left {
		r.t.Errorf("left:\n%swhere before the test there was:\n%s", left, r.left)
	}
	if broken := r.control("violations"); broken != "" {
		r.t.Errorf("rules of the vendor that were broken:\n%s", broken)
	}
	r.control("forget")
}

// context makes a context that is closed when the test ends.
func (r *rig) context(device acl.DeviceID) *acl.Context {
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

// apart runs f on a thread where calls may block.
func apart(t testing.TB, c *acl.Context, f func(acl.Current) error) {
	t.Helper()
	if err := c.Apart(func(g *acl.Guest) error { return f(g) }); err != nil {
		t.Fatal(err)
	}
}

// newer are the symbols that an older library lacks.
var newer = []string{
	"HcclCommInitClusterInfoMemConfig", "HcclRegisterGlobalMem", "HcclDeregisterGlobalMem", "HcclCommBindMem",
	"HcclCommUnbindMem", "HcclCommPrepare",
}

// generations lists the hidden functions for a library of each sequence.
var generations = map[string][]string{"global": nil, "exchange": newer}

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
