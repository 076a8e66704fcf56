package softnpu

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// Longer than any scenario takes under load; a timeout is always a failure.
const testTimeout = 2 * time.Minute

var variants = []struct {
	name    string
	variant Variant
	env     []string
}{
	{"plain", Variant{}, nil},
	{"address", Variant{Sanitize: "address,undefined"}, []string{"ASAN_OPTIONS=detect_leaks=1"}},
	// Streams have threads that run to the end of the process; there is nothing to wait for.
	{"thread", Variant{Sanitize: "thread"}, []string{"TSAN_OPTIONS=atexit_sleep_ms=0:halt_on_error=1"}},
}

// TestAscendCL runs every scenario of check/acl_*.c in a separate process.
func TestAscendCL(t *testing.T) { runChecks(t, "aclcheck") }

// TestHCCL runs every scenario of check/hccl_*.c, most of which are two processes each.
func TestHCCL(t *testing.T) { runChecks(t, "hcclcheck") }

func runChecks(t *testing.T, program string) {
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			if testing.Short() && v.name != "plain" {
				t.Skip("the sanitizers take their time")
			}
			path := buildProgram(t, v.variant, program)
			names, err := exec.Command(path).Output()
			if err != nil {
				t.Fatal(err)
			}
			for name := range strings.FieldsSeq(string(names)) {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
					defer cancel()
					cmd := exec.CommandContext(ctx, path, name)
					cmd.Env = append(os.Environ(), append(v.env, "CANNEMU_DIR="+t.TempDir())...)
					if out, err := cmd.CombinedOutput(); err != nil {
						t.Errorf("%v\n%s", err, out)
					}
				})
			}
		})
	}
}

func buildProgram(t *testing.T, v Variant, program string) string {
	t.Helper()
	if v.Sanitize != "" && !compilerHas(t, v.compilerFlags()) {
		t.Skipf("gcc here has no -fsanitize=%s", v.Sanitize)
	}
	path, err := v.buildTarget("checks", program)
	if errors.Is(err, ErrNoTools) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// compilerHas reports whether a program with the flags can be linked: the runtimes are packages apart.
func compilerHas(t *testing.T, flags string) bool {
	t.Helper()
	source := filepath.Join(t.TempDir(), "empty.c")
	if err := os.WriteFile(source, []byte("int main(void) { return 0; }\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	args := append(strings.Fields(flags), "-o", filepath.Join(t.TempDir(), "empty"), source)
	return exec.Command("gcc", args...).Run() == nil
}

func exportedSymbols(t *testing.T, library string) []string {
	t.Helper()
	if _, err := exec.LookPath("nm"); err != nil {
		t.Skip("nm is not installed (package binutils)")
	}
	out, err := exec.Command("nm", "-D", "--defined-only", library).Output()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range regexp.MustCompile(`(?m) [A-Z] (\w+)$`).FindAllStringSubmatch(string(out), -1) {
		names = append(names, m[1])
	}
	slices.Sort(names)
	return names
}

// TestExports compares what the library exports with the specification's lists, which the test has a copy of.
func TestExports(t *testing.T) {
	library, err := Variant{}.BuildLibrary()
	if errors.Is(err, ErrNoTools) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Fields(specifiedSymbols + " cannemu_control cannemu_abi")
	slices.Sort(want)
	if got := exportedSymbols(t, library); !slices.Equal(got, want) {
		t.Errorf("exports\n%v\nnot\n%v", got, want)
	}
}

// TestHide builds the library of an older CANN.
func TestHide(t *testing.T) {
	hide := []string{"aclrtStreamAbort", "aclrtMemcpyBatch"}
	library, err := Variant{Hide: hide}.BuildLibrary()
	if errors.Is(err, ErrNoTools) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	got := exportedSymbols(t, library)
	for _, name := range hide {
		if slices.Contains(got, name) {
			t.Errorf("%s is exported", name)
		}
	}
	for _, name := range []string{"aclrtMemcpyBatchAsync", "aclrtStreamQuery"} {
		if !slices.Contains(got, name) {
			t.Errorf("%s went with the others", name)
		}
	}
}
