//go:build cgo && linux

package acl

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kvferry/kvferry/runtime/acl/acltest"
	"github.com/kvferry/kvferry/runtime/softnpu"
)

// The tests of this package run on the software NPU, which the binding cannot tell from a real NPU: the library is
// selected by path. softnpuPath is that path, and softnpuMissing the reason if there is no software NPU.
var (
	softnpuPath    string
	softnpuMissing error
)

func TestMain(m *testing.M) {
	softnpuPath, softnpuMissing = buildNPU()
	// Small devices, so that running out of memory is near. The third is there to be lost.
	for name, value := range map[string]string{
		"CANNEMU_DEVICES": "3", "CANNEMU_DEVICE_MEMORY": "67108864", "CANNEMU_HOST_MEMORY": "67108864",
	} {
		os.Setenv(name, value)
	}
	goleak.VerifyTestMain(m)
}

// A rig is the software NPU of this process, and the binding's Library on it.
type rig struct {
	t    testing.TB
	npu  *acltest.NPU
	lib  *Library
	left string // on the device before the test
}

// newRig opens the library. When the test ends, nothing may be left on the device, no rule of the vendor
// may have been broken, and no call may have been made without a context.
func newRig(t testing.TB, hidden ...string) *rig {
	t.Helper()
	r := &rig{t: t, npu: findNPU(t)}
	lib, err := Open(Options{Library: softnpuPath, hiddenSymbols: hidden})
	if err != nil {
		t.Fatal(err)
	}
	r.lib = lib
	r.left = r.runCommand("leaks")
	t.Cleanup(func() {
		if err := lib.Close(); err != nil {
			t.Error(err)
		}
		r.checkClean()
	})
	return r
}

func findNPU(t testing.TB) *acltest.NPU {
	t.Helper()
	if errors.Is(softnpuMissing, softnpu.ErrNoTools) {
		t.Skip(softnpuMissing)
	}
	if softnpuMissing != nil {
		t.Fatal(softnpuMissing)
	}
	npu, err := acltest.OpenNPU(softnpuPath)
	if err != nil {
		t.Fatal(err)
	}
	return npu
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

func (r *rig) readStats() map[string]int64 {
	r.t.Helper()
	stats, err := r.npu.Stats()
	if err != nil {
		r.t.Fatal(err)
	}
	return stats
}

// checkClean fails the test if objects are left or rules were broken, and resets the software NPU's records.
func (r *rig) checkClean() {
	r.t.Helper()
	r.runCommand("clear")
	if left := r.runCommand("leaks"); left != r.left {
		r.t.Errorf("objects on the device after the test:\n%sand before the test:\n%s", left, r.left)
	}
	if broken := r.runCommand("violations"); broken != "" {
		r.t.Errorf("the test broke rules of the vendor:\n%s", broken)
	}
	r.runCommand("forget")
}

// newContext makes a context that is closed when the test ends.
func (r *rig) newContext(o ContextOptions) *Context {
	r.t.Helper()
	c, err := r.lib.NewContext(o)
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

// mustDo runs f on the context's thread.
func mustDo(t testing.TB, c *Context, f func(*Thread) error) {
	t.Helper()
	if err := c.Do(f); err != nil {
		t.Fatal(err)
	}
}

// mustMake runs f on the context's thread and returns the result, which is closed before the context.
func mustMake[T interface{ Close(*Thread) error }](t testing.TB, c *Context, f func(*Thread) (T, error)) T {
	t.Helper()
	var made T
	mustDo(t, c, func(thread *Thread) (err error) { made, err = f(thread); return err })
	t.Cleanup(func() {
		if err := c.Do(made.Close); err != nil {
			t.Errorf("closing a %T: %v", made, err)
		}
	})
	return made
}

func newStream(t testing.TB, c *Context, o StreamOptions) *Stream {
	t.Helper()
	return mustMake(t, c, func(thread *Thread) (*Stream, error) { return thread.NewStream(o) })
}

func allocDevice(t testing.TB, c *Context, size uint64) *Memory {
	t.Helper()
	return mustMake(t, c, func(thread *Thread) (*Memory, error) { return thread.AllocDevice(size, HugeFirst) })
}

func allocHost(t testing.TB, c *Context, size uint64) *Memory {
	t.Helper()
	return mustMake(t, c, func(thread *Thread) (*Memory, error) { return thread.AllocHost(size) })
}

// awaitSettled waits for a completion behind all work of the stream, and returns the error of the completion or of
// Notify.
func awaitSettled(t testing.TB, c *Context, s *Stream) error {
	t.Helper()
	outcome := make(chan error, 1)
	if err := c.Do(func(t *Thread) error { return s.Notify(t, func(err error) { outcome <- err }) }); err != nil {
		return err
	}
	return <-outcome
}

// pattern returns n bytes that depend on the seed and the position.
func pattern(n int, seed byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i)*31 + byte(i>>8) + seed
	}
	return b
}

// wantClass fails the test unless err has the class, and returns the *Error if err wraps one.
func wantClass(t testing.TB, err error, class error) *Error {
	t.Helper()
	if !errors.Is(err, class) {
		t.Fatalf("got %v, want %v", err, class)
	}
	var failed *Error
	errors.As(err, &failed)
	return failed
}

func wantBytes(t testing.TB, got, want []byte, what string) {
	t.Helper()
	if !bytes.Equal(got, want) {
		for i := range want {
			if i >= len(got) || got[i] != want[i] {
				t.Fatalf("%s: byte %d of %d differs", what, i, len(want))
			}
		}
	}
}

// longEnough is a timeout that no working machine reaches.
const longEnough = 10 * time.Minute

func countCalls(stats map[string]int64) int64 {
	var sum int64
	for name, n := range stats {
		if strings.HasPrefix(name, "calls.") {
			sum += n
		}
	}
	return sum
}

// buildNPU builds the software NPU, or returns the path in KVFERRY_SOFTNPU, for example of a sanitized build.
func buildNPU() (string, error) {
	if path := os.Getenv("KVFERRY_SOFTNPU"); path != "" {
		return path, nil
	}
	return softnpu.Variant{}.BuildLibrary()
}
