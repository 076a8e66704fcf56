package demo

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/softnpu"
)

func software(t *testing.T) *NPU {
	t.Helper()
	library, err := softnpu.Variant{}.BuildLibrary()
	if errors.Is(err, softnpu.ErrNoTools) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	n, err := NewNPU(library)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Only the software NPU gets settings and faults.
func TestSoftwareNPUIsKnown(t *testing.T) {
	n := software(t)
	if !n.software || !filepath.IsAbs(n.Library) {
		t.Fatalf("got %+v", n)
	}
	for _, setting := range []string{"CANNEMU_REPORT=", "CANNEMU_DIR=", "CANNEMU_LOG="} {
		has := func(e string) bool { return strings.HasPrefix(e, setting) }
		if env := n.processEnv(Push, "prefill", 0, "/run", shape{})(1); !slices.ContainsFunc(env, has) {
			t.Errorf("no %s in %v", setting, env)
		}
		vendor := &NPU{Library: "/usr/lib/libascendcl.so"}
		if env := vendor.processEnv(Push, "prefill", 0, "/run", shape{})(1); slices.ContainsFunc(env, has) {
			t.Errorf("the vendor's library is given %v", env)
		}
		if own := vendor.kvferryLines(Push, 0); strings.Contains(own, "server_id") || strings.Contains(own, "device_ip") {
			t.Errorf("a real machine is told where it is:\n%s", own)
		}
	}
	if _, err := (&NPU{}).WithFaults(scenarios[0]); err == nil || !strings.Contains(err.Error(), "make softnpu") {
		t.Errorf("faults of a vendor's library: %v", err)
	}
	for _, no := range []string{"npu_test.go", "there-is-none"} {
		if _, err := NewNPU(no); err == nil {
			t.Errorf("%s is a library", no)
		}
	}
}

// Each kind of link is used in some mode, and modes that move host memory do not use HCCS.
func TestLinksOfModes(t *testing.T) {
	var seen []linkKind
	for _, m := range pushPullModes {
		seen = append(seen, m.linkKind())
		inside := slices.Contains((&NPU{}).processEnv(m, "prefill", 0, "", shape{})(1), "HCCL_INTRA_ROCE_ENABLE=1")
		if want := m == PullDelayOffload || m == Layerwise; inside != want {
			t.Errorf("%s: RoCE within a server is %v, want %v", m, inside, want)
		}
	}
	for _, l := range []linkKind{overHCCS, overRoCE, roceInside} {
		if !slices.Contains(seen, l) {
			t.Errorf("no mode is over %v", l)
		}
	}
}

// Faults of copies are played only in modes that make copies on a device.
func TestFaultsOfModes(t *testing.T) {
	n := software(t)
	for name, want := range map[string][]Mode{"put": pushPullModes, "copy": {PullDelay, PullDelayOffload}, "done:delay=1": pushPullModes} {
		list, err := ParseFaults(name)
		if err != nil {
			t.Fatal(err)
		}
		with, err := n.WithFaults(list[0])
		if err != nil {
			t.Fatal(err)
		}
		if got := with.SupportedModes(pushPullModes); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	if got := n.SupportedModes(pushPullModes); !slices.Equal(got, pushPullModes) {
		t.Errorf("without faults: %v", got)
	}
	if got := (*NPU)(nil).SupportedModes(pushPullModes); !slices.Equal(got, []Mode{Push, Pull, PullDelay, Layerwise}) {
		t.Errorf("without an NPU: %v", got)
	}
}

func TestParseFaults(t *testing.T) {
	for text, want := range map[string]string{
		"all": "oom put link link-hangs link-silent stuck copy", "oom": "oom", "stuck,put": "stuck put",
		"done:fail=3;oom:host,after=1": "done:fail=3;oom:host,after=1",
	} {
		list, err := ParseFaults(text)
		var names []string
		for _, f := range list {
			names = append(names, f.Name)
		}
		if got := strings.Join(names, " "); err != nil || got != want {
			t.Errorf("%s: got %q, %v, want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"", "fire", "oom,fire"} {
		if _, err := ParseFaults(text); err == nil || !strings.Contains(err.Error(), "oom, put, link") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// A process that refused its first start has different rules in its second incarnation. A failure that the faults do
// not explain is reported.
func TestFaultsOfALife(t *testing.T) {
	oom, err := ParseFaults("oom")
	if err != nil {
		t.Fatal(err)
	}
	f, s := oom[0], shape{chunkTokens: 1, layers: 1, kvHeads: 1, headSize: 1}
	for _, c := range []struct {
		mode        Mode
		name        string
		life        int
		has, hasNot string
	}{
		{Push, "prefill", 1, "oom:device=0", "call:"}, {Push, "prefill", 2, "", "oom"},
		{PullDelay, "decode-1", 2, "call:sym=aclrtMalloc", "oom:"},
		{PullDelayOffload, "prefill", 1, "oom:host", "device"}, {Pull, "decode-0", 2, "", ":"},
	} {
		place := 0
		if c.name != "prefill" {
			place = 1
		}
		if got := f.rulesFor(c.mode, c.name, place, c.life, s); !strings.Contains(got, c.has) ||
			strings.Contains(got, c.hasNot) {
			t.Errorf("%s, life %d of %s: %q", c.mode, c.life, c.name, got)
		}
	}
	if !f.expectsRefusal(effects.NoMemory.String()) || f.expectsRefusal(effects.Faulted.String()) ||
		scenarios[1].expectsRefusal(effects.NoMemory.String()) || (*Faults)(nil).expectsRefusal("no_memory") {
		t.Error("only faults that end lives may refuse, as no_memory")
	}
	if got := f.unexpectedCauses(map[string]int{"put: faulted": 1, "fetch: invalid": 2,
		"proxy: not told": 1}); !slices.Equal(got, []string{"fetch: invalid", "proxy: not told"}) {
		t.Errorf("not explained: %v", got)
	}
}

// The test covers reports of processes that ended, of killed processes, and missing reports.
func TestReportsAreRead(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(npuDir(dir), 0o700); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(npuDir(dir), name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	self := os.Getpid()
	write(fmt.Sprintf("%d.stats", self),
		"device_memory_high=000000000000000009\nbatches=000000000000000004\ndescriptors=000000000000000010\n"+
			"bytes_put=000000000000001024\n\x00\x00\x00")
	write(fmt.Sprintf("%d.violations", self), "")
	write(fmt.Sprintf("%d.live", self), "streams=0000000000\ncommunicators=0000000001\n\x00")
	write("prefill-1.log", "seed 1\nfault done:fail=1: a transfer fails\nfault oom:host,after=1: host memory\n")
	write("decode-0-1.log", "fault done:fail=1: a transfer fails\n")
	p := &process{name: "prefill", cmd: &exec.Cmd{Process: &os.Process{Pid: self}}}

	r := &NPUReport{}
	r.addProcess(npuDir(dir), p)
	if r.Batches != 4 || r.Descriptors != 10 || r.BytesPut != 1024 || len(r.Violations) != 0 ||
		!slices.Equal(r.Left, []string{"prefill: 1 communicators"}) {
		t.Errorf("got %+v", r)
	}
	p.killed.Store(true)
	r = &NPUReport{}
	r.addProcess(npuDir(dir), p)
	if len(r.Left) != 0 {
		t.Errorf("a killed process has left %v", r.Left)
	}
	if got := countInjected(dir); got["done:fail=1"] != 2 || got["oom:host,after=1"] != 1 || len(got) != 2 {
		t.Errorf("injected %v", got)
	}
	write(fmt.Sprintf("%d.violations", self), "free of 0x1 twice\n")
	r = &NPUReport{}
	r.addProcess(npuDir(dir), p)
	if !slices.Equal(r.Violations, []string{"prefill: free of 0x1 twice"}) {
		t.Errorf("violations %v", r.Violations)
	}
	r = &NPUReport{}
	r.addProcess(t.TempDir(), p)
	if len(r.Violations) == 0 {
		t.Error("a process without a report looks clean")
	}
}
