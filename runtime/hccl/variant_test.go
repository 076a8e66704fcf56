//go:build cgo && linux

package hccl_test

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/runtime/softnpu"
)

// variant marks a process of TestVariants.
const variant = "KVFERRY_HCCL_VARIANT"

// The plane works on other chips and releases, too: with an HCCL that has only the older sequence of calls, by rank
// table and by root info, and no abort of streams; and on chips with super pods in rank tables. A process loads only
// one library, so each variant has a separate process.
func TestVariants(t *testing.T) {
	if os.Getenv(variant) != "" {
		t.Skip("this is one")
	}
	if testing.Short() {
		t.Skip("the contract, two times more")
	}
	old := []string{
		"HcclCommInitClusterInfoMemConfig", "HcclRegisterGlobalMem", "HcclDeregisterGlobalMem", "HcclCommBindMem",
		"HcclCommUnbindMem",
		"HcclCommPrepare", "aclrtStreamAbort",
	}
	for _, c := range []struct {
		name  string
		build softnpu.Variant
		env   []string
		run   string
	}{
		{"older release", softnpu.Variant{Hide: old}, nil,
			"TestContract/(roce|hccs|root_info)/(pushes|many|cancelled|drop|closing|a_revoked)|" +
				"TestFaultyDescriptor|TestInitiatorIsKilled"},
		{"super pods", softnpu.Variant{}, []string{"CANNEMU_SOC=Ascend910_9391"},
			"TestContract/(roce|hccs)/(pushes|many|a_revoked)|TestHostMemory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			path, err := c.build.BuildLibrary()
			if errors.Is(err, softnpu.ErrNoTools) {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			exe, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(exe, "-test.run="+c.run, "-test.v")
			cmd.Env = append(append(os.Environ(), variant+"=1", "KVFERRY_SOFTNPU="+path), c.env...)
			text, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			if ran := strings.Count(string(text), "--- PASS"); ran < 10 {
				t.Fatalf("%d tests ran:\n%s", ran, text)
			}
		})
	}
}
