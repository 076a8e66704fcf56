//go:build cgo && linux

package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/kvferry/kvferry/runtime/acl"
	"github.com/kvferry/kvferry/runtime/acl/acltest"
	"github.com/kvferry/kvferry/runtime/hccl/comm"
	"github.com/kvferry/kvferry/runtime/softnpu"
)

const copyBytes = 64 << 10

// softNPU returns the library of a software NPU with two small devices.
func softNPU(t *testing.T) (library string, npu *acltest.NPU) {
	t.Helper()
	library = os.Getenv("KVFERRY_SOFTNPU")
	if library == "" {
		var err error
		if library, err = (softnpu.Variant{}).BuildLibrary(); errors.Is(err, softnpu.ErrNoTools) {
			t.Skip(err)
		} else if err != nil {
			t.Fatal(err)
		}
	}
	// The library reads its variables only once in this process, so all tests use the same values.
	os.Setenv("CANNEMU_DEVICE_MEMORY", "16777216")
	os.Setenv("CANNEMU_HOST_MEMORY", "16777216")
	npu, err := acltest.OpenNPU(library)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if broken := control(t, npu, "violations"); broken != "" {
			t.Errorf("the test broke rules of the vendor:\n%s", broken)
		}
		control(t, npu, "forget")
	})
	return library, npu
}

func control(t *testing.T, npu *acltest.NPU, command string) string {
	t.Helper()
	reply, err := npu.Control(command)
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

// TestInspect inspects a machine of test files with the software NPU, and compares the report as JSON, in which varying
// figures are masked.
func TestInspect(t *testing.T) {
	library, npu := softNPU(t)
	datadriven.RunTest(t, "testdata/inspect.txt", func(t *testing.T, td *datadriven.TestData) string {
		left := control(t, npu, "leaks")
		m := machineOf(t, td)
		m.NPUs = inspectNPUs
		t.Setenv(comm.LibraryVariable, library)
		t.Setenv("HCCL_RDMA_TIMEOUT", "14")
		t.Setenv("HCCL_RDMA_RETRY_CNT", "3")
		t.Setenv("HCCL_INTRA_ROCE_ENABLE", "")
		r := Inspect(t.Context(), m, Options{Library: library, CopyBytes: copyBytes})
		if now := control(t, npu, "leaks"); now != left {
			t.Errorf("objects on the device after the test:\n%s", now)
		}
		text, err := json.MarshalIndent(r, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		masked := strings.ReplaceAll(string(text), library, "LIBRARY")
		masked = regexp.MustCompile(`"[0-9.e+]+ GB/s, measured`).ReplaceAllString(masked, `"N GB/s, measured`)
		// The memory of an aborted copy in another test is still allocated.
		masked = regexp.MustCompile(`, [0-9.]+ MiB of it free`).ReplaceAllString(masked, `, N of it free`)
		return regexp.MustCompile(`"go1[^"]*"`).ReplaceAllString(masked, `"GO"`) + "\n"
	})
}

// A failed call is reported in the section to which it belongs, and all resources that can be released are released.
func TestDeviceFaults(t *testing.T) {
	library, npu := softNPU(t)
	for _, c := range []struct {
		name, faults string
		timeout      time.Duration
		failed       error  // error of the first device
		speed        error  // error of the device's last measurement
		measured     int    // number of measurements before the error
		row          string // row of the device's section
		verdict      Verdict
	}{
		{name: "no fault", measured: 3, row: "device to device"},
		{name: "context", faults: "call:sym=aclrtCreateContext,nth=1,code=207006", failed: acl.Config, row: "access",
			verdict: Problem},
		{name: "memory information", faults: "call:sym=aclrtGetMemInfo,nth=1,code=507000", failed: acl.Device, row: "access",
			verdict: Problem},
		{name: "pinned memory", faults: "call:sym=aclrtMallocHost,nth=1,code=207001", speed: acl.OutOfMemory, row: "copies",
			verdict: Note},
		{name: "device memory", faults: "call:sym=aclrtMalloc,nth=2,code=207001", speed: acl.OutOfMemory, row: "copies",
			verdict: Note},
		{name: "stream", faults: "call:sym=aclrtCreateStreamWithConfig,nth=1,code=207008", speed: acl.Exhausted,
			row: "copies", verdict: Problem},
	} {
		t.Run(c.name, func(t *testing.T) {
			left := control(t, npu, "leaks")
			if c.faults != "" {
				control(t, npu, "faults "+c.faults)
				defer control(t, npu, "clear")
			}
			n := npuInspector{copyBytes: copyBytes, timeout: time.Hour}.inspectAll(t.Context(), Libraries{ACL: library,
				HCCL: comm.Options{Library: library}})
			if n.Err != nil || n.CloseErr != nil || len(n.Devices) != 2 {
				t.Fatalf("got %+v", n)
			}
			d := n.Devices[0]
			if !errors.Is(d.Err, c.failed) {
				t.Errorf("the device failed with %v, want %v", d.Err, c.failed)
			}
			measured := 0
			for _, s := range d.Copies {
				if s.Err == nil && s.PerSecond > 0 {
					measured++
				} else if !errors.Is(s.Err, c.speed) {
					t.Errorf("%s failed with %v, want %v", s.Name, s.Err, c.speed)
				}
			}
			if measured != c.measured {
				t.Errorf("%d copies were measured, want %d: %+v", measured, c.measured, d.Copies)
			}
			rows := Machine{Root: os.DirFS(t.TempDir())}.checkDevice(d, -1, copyBytes).Rows
			if last := rows[len(rows)-1]; last.Name != c.row || last.Verdict != c.verdict {
				t.Errorf("got %+v, want %v of %s", last, c.verdict, c.row)
			}
			if now := control(t, npu, "leaks"); now != left {
				t.Errorf("objects on the device after the test:\n%s", now)
			}
		})
	}
}

// A copy that never ends, or fails on its stream, is reported, and its memory stays allocated.
func TestCopiesThatStop(t *testing.T) {
	for _, c := range []struct {
		faults   string
		timeout  time.Duration
		want     error
		measured int
	}{
		{"done:of=copy,hang=1", time.Millisecond, acl.Timeout, 0},
		{"done:of=copy,fail=5,code=507013", time.Hour, acl.Link, 1},
	} {
		t.Run(c.faults, func(t *testing.T) {
			library, npu := softNPU(t)
			control(t, npu, "faults "+c.faults)
			defer control(t, npu, "clear")
			n := npuInspector{copyBytes: copyBytes, timeout: c.timeout}.inspectAll(t.Context(), Libraries{ACL: library,
				HCCL: comm.Options{Library: library}})
			if n.Err != nil || n.CloseErr != nil || len(n.Devices) != 2 {
				t.Fatalf("got %+v", n)
			}
			copies := n.Devices[0].Copies
			if last := copies[len(copies)-1]; len(copies) != c.measured+1 || !errors.Is(last.Err, c.want) {
				t.Errorf("got %+v, want %v after %d", copies, c.want, c.measured)
			}
			if n.Devices[0].Err != nil {
				t.Errorf("the device failed too: %v", n.Devices[0].Err)
			}
		})
	}
}

func TestStoppedBetweenCopies(t *testing.T) {
	library, npu := softNPU(t)
	left := control(t, npu, "leaks")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, d := range inspectNPUs(ctx, Libraries{ACL: library, HCCL: comm.Options{Library: library}}, copyBytes).Devices {
		if !errors.Is(d.Err, context.Canceled) {
			t.Errorf("device %d: %v", d.ID, d.Err)
		}
	}
	if now := control(t, npu, "leaks"); now != left {
		t.Errorf("objects on the device after the test:\n%s", now)
	}
}

func TestLibraryThatIsNone(t *testing.T) {
	n := inspectNPUs(t.Context(), Libraries{ACL: "/no/such/library.so", HCCL: comm.Options{Library: "/no/such/hccl.so"}},
		copyBytes)
	if missed := (*acl.LoadError)(nil); !errors.As(n.Err, &missed) || len(missed.Attempts) != 1 {
		t.Errorf("got %v", n.Err)
	}
}
