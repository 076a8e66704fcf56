//go:build cgo && linux

package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/demo"
	"github.com/kvferry/kvferry/runtime/softnpu"
)

// softwareNPU returns the path of the software NPU. The demo's processes, which run this test's binary, load it too.
func softwareNPU(t *testing.T) string {
	t.Helper()
	library, err := softnpu.Variant{}.BuildLibrary()
	if errors.Is(err, softnpu.ErrNoTools) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return library
}

// playOnNPUs runs the demo and checks the properties that hold for every replay on NPUs, with or without faults.
func playOnNPUs(t *testing.T, args ...string) demo.Summary[*demo.Report] {
	t.Helper()
	var all demo.Summary[*demo.Report]
	out := playDemo(t, &all, append([]string{"--device", "npu", "--library", softwareNPU(t), "--layers", "2"}, args...)...)
	for _, r := range all.Modes {
		pushes := r.Mode == demo.Push || r.Mode == demo.Layerwise
		switch n := r.NPU; {
		case r.Completed != r.Requests || r.BytesWrong != 0 || r.BytesVerified == 0:
			t.Errorf("%s did not do what it is for:\n%s", r.Mode, out)
		case n == nil || !n.Software || n.Batches == 0 || n.Descriptors < n.Batches || n.Processes < 3 || n.Formed == 0:
			t.Errorf("%s: the NPUs' report is %+v", r.Mode, n)
		case r.Mode == demo.Push && n.BytesPut < r.BytesSent, pushes != (n.BytesPut > 0), pushes != (n.BytesGot == 0):
			t.Errorf("%s: %d bytes put and %d got by NPUs, of %d", r.Mode, n.BytesPut, n.BytesGot, r.BytesSent)
		case len(n.Left) != 0 || len(n.Violations) != 0:
			t.Errorf("%s: %v left, rules broken: %v", r.Mode, n.Left, n.Violations)
		}
	}
	return all
}

func TestDemoOnNPUs(t *testing.T) {
	requests := "6"
	if testing.Short() {
		requests = "3"
	}
	all := playOnNPUs(t, "--requests", requests)
	if len(all.Modes) != 5 {
		t.Fatalf("%d modes", len(all.Modes))
	}
	for i, link := range []string{"HCCS", "RoCE", "RoCE", "RoCE within a server", "RoCE within a server"} {
		r := all.Modes[i]
		if r.NPU.Link != link || r.Plane != "hccl" {
			t.Errorf("%s was over %s and %s, want %s", r.Mode, r.Plane, r.NPU.Link, link)
		}
		if r.NPU.Processes != 5 || r.RestartMillis["decode-1"] == 0 || r.RestartMillis["prefill"] == 0 {
			t.Errorf("%s: %d processes, killed and back were %v, want one of each side", r.Mode, r.NPU.Processes,
				r.RestartMillis)
		}
	}
}

// With security.mode: strict the channels between the NPUs' nodes have TLS.
func TestSecuredDemoOnNPUs(t *testing.T) {
	for _, mode := range []string{"push", "pull"} {
		t.Run(mode, func(t *testing.T) {
			for _, r := range playOnNPUs(t, "--requests", "6", "--mode", mode, "--secure").Modes {
				if r.RestartMillis["decode-1"] == 0 || r.RestartMillis["prefill"] == 0 {
					t.Errorf("killed and back were %v", r.RestartMillis)
				}
			}
		})
	}
}

// Each kind of fault below the interface is played in one mode; make demo-npu plays every kind in every mode.
func TestDemoOnNPUsWithFaults(t *testing.T) {
	for _, c := range []struct{ mode, faults string }{
		{"push", "put,link"}, {"pull", "put"}, {"pull-delay", "stuck"}, {"pull-delay+offload", "oom"},
		{"layerwise", "oom,put"},
	} {
		t.Run(c.mode, func(t *testing.T) {
			if testing.Short() && c.mode != "push" {
				t.Skip("one mode is enough for the race detector")
			}
			for _, r := range playOnNPUs(t, "--requests", "6", "--mode", c.mode, "--faults", c.faults).Modes {
				injected := 0
				for _, n := range r.NPU.Injected {
					injected += n
				}
				if injected == 0 || len(r.NPU.Unexpected) != 0 || len(r.RestartMillis) != 0 {
					t.Errorf("%s: %d faults were injected, unexplained: %v, killed: %v", r.NPU.Faults, injected, r.NPU.Unexpected,
						r.RestartMillis)
				}
				if oom := r.NPU.Faults == "oom"; oom != (len(r.NPU.Refused) == 3) {
					t.Errorf("%s: %v did not start", r.NPU.Faults, r.NPU.Refused)
				}
			}
		})
	}
}

// Rules that the user writes are given to every process, and a misspelt rule is reported.
func TestDemoFaultsByRule(t *testing.T) {
	all := playOnNPUs(t, "--requests", "4", "--mode", "push", "--faults", "done:delay=2000;pieces:reorder=1")
	if n := all.Modes[0].NPU; n.Faults != "done:delay=2000;pieces:reorder=1" {
		t.Errorf("got %+v", n)
	}
	var out, stderr bytes.Buffer
	args := []string{"demo", "--device", "npu", "--library", softwareNPU(t), "--requests", "2", "--mode", "push",
		"--faults", "done:delay=soon,often=1"}
	if code := run(context.Background(), args, strings.NewReader(""), &out, &stderr); code != exitFinding ||
		!strings.Contains(out.String(), "often=1") {
		t.Errorf("a mistyped rule: exit code %d\n%s%s", code, &out, &stderr)
	}
}

func TestDemoWrongCallsForNPUs(t *testing.T) {
	library := softwareNPU(t)
	self, err := os.Executable() // This file is not an NPU's library, but an ELF file with symbols.
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args string
		want string
	}{
		{"--device gpu", "use cpu or npu"},
		{"--library x.so", "add --device npu"},
		{"--faults all", "add --device npu"},
		{"--device npu --plane shm", "leave out --plane"},
		{"--device npu --library testdata/there-is-none", "there-is-none"},
		{"--device npu --library testdata/empty.bin", "empty.bin"},
		{"--device npu --faults all --library " + self, "make softnpu"},
		{"--device npu --faults copy --mode push --library " + library, "cannot occur in this mode"},
		{"--device npu --faults fire --library " + library, "use oom, put"},
	} {
		t.Setenv("KVFERRY_ASCENDCL", "")
		var out, stderr bytes.Buffer
		args := append([]string{"demo"}, strings.Fields(c.args)...)
		if code := run(context.Background(), args, strings.NewReader(""), &out, &stderr); code != exitUsage ||
			!strings.Contains(stderr.String(), c.want) {
			t.Errorf("%s: exit code %d, want %d and %q\n%s", c.args, code, exitUsage, c.want, &stderr)
		}
	}
}
