//go:build cgo && linux

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/agent"
	"github.com/kvferry/kvferry/runtime/softnpu"
)

// npuNode returns the configuration of a node on an NPU with the given keys of HCCL and further keys of kvferry.
func npuNode(t *testing.T, device, channel, hccl string, own ...string) (file string) {
	t.Helper()
	file = nodeConfig(t)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text = bytes.Replace(text, []byte("pd_buffer_device: cpu"), []byte("pd_buffer_device: "+device), 1)
	text = append(text, "transfer_channel: "+channel+"\n"...)
	for _, line := range append(own, "hccl: {"+hccl+"}") {
		text = bytes.Replace(text, []byte("  kvferry:\n"), []byte("  kvferry:\n    "+line+"\n"), 1)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// runNode starts a node as a process, which loads the libraries that the environment names, and stops the node as soon
// as it serves.
func runNode(t *testing.T, file string, env ...string) (code int, first agent.Response, stderr string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "node", "--config", file, "--commands")
	cmd.Env = append(os.Environ(), "ASCEND_HOME_PATH=", "ASCEND_TOOLKIT_HOME=", "CANNEMU_DIR="+t.TempDir())
	cmd.Env = append(cmd.Env, env...)
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	err = cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if err := json.Unmarshal(bytes.SplitN(out.Bytes(), []byte("\n"), 2)[0], &first); err != nil {
		t.Errorf("its first line is %q: %v", out.Bytes(), err)
	}
	return cmd.ProcessState.ExitCode(), first, log.String()
}

// A node that cannot use an NPU says what to install or to change, and never falls back to host memory.
func TestNodeOnAnNPUThatIsNotThere(t *testing.T) {
	library := softwareNPU(t)
	lacking, err := softnpu.Variant{Hide: []string{"HcclCommInitClusterInfoMemConfig", "HcclCommPrepare",
		"HcclRegisterMem"}}.BuildLibrary()
	if err != nil {
		t.Fatal(err)
	}
	const reachable = "server_id: a, device_ip: 192.0.2.1"
	for _, c := range []struct {
		name, device, channel, hccl string
		acl, comm                   string
		faults                      string
		code                        int
		want                        []string
	}{
		{"no HCCL", "npu:0", "hccl", reachable, library, "/nowhere/libhccl.so", "", exitFinding,
			[]string{"/nowhere/libhccl.so", "install CANN", "KVFERRY_HCCL"}},
		{"no AscendCL", "npu:0", "auto", reachable, "/nowhere/libascendcl.so", library, "", exitFinding,
			[]string{"/nowhere/libascendcl.so", "install CANN", "KVFERRY_ASCENDCL"}},
		{"host memory over HCCL", "cpu", "hccl", reachable, "/nowhere/libascendcl.so", library, "", exitFinding,
			[]string{"install CANN"}},
		{"functions are missing", "npu:0", "hccl", reachable, library, lacking, "", exitFinding,
			[]string{"HcclCommPrepare", "HcclRegisterMem"}},
		{"no such sequence", "npu:0", "hccl", reachable + ", sequence: global", library, lacking, "", exitFinding,
			[]string{"HcclCommPrepare"}},
		{"a stub library", "npu:0", "hccl", reachable, library, library, "call:sym=aclInit,nth=*,code=100039", exitFinding,
			[]string{"100039", "devlib"}},
		{"no such device", "npu:7", "hccl", reachable, library, library, "", exitUsage,
			[]string{"npu:7", "2 NPUs are visible", "npu:0 to npu:1"}},
		{"no memory", "npu:1", "hccl", reachable, library, library, "oom:device=1,after=0", exitFinding,
			[]string{"no_memory", "pd_buffer_size"}},
		{"it is there", "npu:1", "hccl", reachable, library, library, "", exitOK, []string{"ascendcl="}},
		{"the older sequence", "npu:0", "hccl", reachable + ", sequence: exchange, bootstrap: root_info", library, library,
			"", exitOK, []string{"exchange of descriptors"}},
		{"host memory over the one that is there", "cpu", "hccl", reachable, library, library, "", exitOK,
			[]string{"ascendcl="}},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := npuNode(t, c.device, c.channel, c.hccl)
			code, first, stderr := runNode(t, file, "KVFERRY_ASCENDCL="+c.acl, "KVFERRY_HCCL="+c.comm,
				"CANNEMU_FAULTS="+c.faults)
			if code != c.code || (first.Code == "ok") != (c.code == exitOK) {
				t.Errorf("exit code %d, and it said %q; want %d", code, first.Code, c.code)
			}
			for _, want := range c.want {
				if !strings.Contains(stderr, want) {
					t.Errorf("%q is missing in\n%s", want, stderr)
				}
				if c.code != exitOK && !strings.Contains(first.Error, want) {
					t.Errorf("%q is missing in its first line: %s", want, first.Error)
				}
			}
		})
	}
}

// HCCL needs the address of the NPU, so a node without an address in the file or on the machine is refused.
func TestNodeOnAnNPUWithoutAddress(t *testing.T) {
	library := softwareNPU(t)
	if _, err := os.Stat("/etc/hccn.conf"); err == nil {
		t.Skip("this machine has /etc/hccn.conf")
	}
	code, _, stderr := runNode(t, npuNode(t, "npu:0", "hccl", "server_id: a"), "KVFERRY_ASCENDCL="+library,
		"KVFERRY_HCCL="+library)
	if code != exitUsage || !strings.Contains(stderr, "hccl.device_ip") {
		t.Errorf("exit code %d, want %d\n%s", code, exitUsage, stderr)
	}
}

// A node that was opened and closed, or that failed while it was opened, leaves no object on the NPU.
func TestNodeLeavesNothingOnAnNPU(t *testing.T) {
	library := softwareNPU(t)
	for _, fault := range []string{"", "call:sym=aclrtMalloc,nth=1,code=207001",
		"call:sym=HcclRegisterGlobalMem,nth=1,code=4", "call:sym=aclrtSetDevice,nth=1,code=107001"} {
		reports := t.TempDir()
		_, _, stderr := runNode(t, npuNode(t, "npu:0", "hccl", "server_id: a, device_ip: 192.0.2.1"),
			"KVFERRY_ASCENDCL="+library, "KVFERRY_HCCL="+library, "CANNEMU_FAULTS="+fault, "CANNEMU_REPORT="+reports)
		files, err := os.ReadDir(reports)
		if err != nil || len(files) != 3 {
			t.Fatalf("%q: %d reports, %v, want violations, live objects and counters\n%s", fault, len(files), err, stderr)
		}
		for _, f := range files {
			b, err := os.ReadFile(fmt.Sprintf("%s/%s", reports, f.Name()))
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(strings.TrimRight(string(b), "\x00")) {
				if strings.HasSuffix(f.Name(), ".violations") || strings.HasSuffix(f.Name(), ".live") &&
					!strings.HasSuffix(line, "=0000000000\n") {
					t.Errorf("%q: %s: %s", fault, f.Name(), line)
				}
			}
		}
	}
}
