package files

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// full creates a folder with a file of the user.
func full(t *testing.T) (folder, file string) {
	t.Helper()
	folder = filepath.Join(t.TempDir(), "folder")
	file = filepath.Join(folder, "work")
	if err := errors.Join(os.MkdirAll(folder, 0o700), os.WriteFile(file, []byte("a year of work"), 0o600)); err != nil {
		t.Fatal(err)
	}
	return folder, file
}

// run runs a command at the repository's root. The test reads the file of the command, so that go test runs the test
// again after a change.
func run(t *testing.T, name string, args ...string) (string, error) {
	t.Helper()
	for _, file := range []string{"Makefile", "tools/venv", "tools/wheel", "tools/release/build"} {
		if _, err := os.ReadFile(filepath.Join("../..", file)); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(name, args...)
	cmd.Dir = "../.."
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// A script that recreates a folder removes only a folder that it has created.
func TestScriptsKeepWhatIsInAFolder(t *testing.T) {
	for _, c := range []struct{ name, says string }{
		{"tools/venv", "name a folder that is new or empty"},
		{"tools/wheel", "File exists"},
		{"tools/release/build", "has files that make release did not make"},
	} {
		folder, file := full(t)
		args := []string{folder}
		if c.name == "tools/wheel" {
			args = []string{os.Args[0], folder}
		}
		out, err := run(t, c.name, args...)
		if err == nil || !strings.Contains(out, c.says) {
			t.Errorf("%s: %v; %s", c.name, err, out)
		}
		if text, err := os.ReadFile(file); err != nil || string(text) != "a year of work" {
			t.Errorf("%s: %q, %v", c.name, text, err)
		}
	}
}

// A path that the user gives to make is used but never recreated, for example an environment with vLLM.
func TestMakeKeepsWhatItIsNamed(t *testing.T) {
	top, _ := full(t)
	args := []string{"--dry-run", "--always-make", "--no-print-directory", "lmcache-ready", "example-vllm", "nixl",
		"golangci", "lmcache-oracle", "wheel-test", "bench-vllm", "clean"}
	for _, variable := range []string{"VLLM", "CACHE", "NIXL", "OURS", "LMCACHE", "PY", "WHEELS"} {
		args = append(args, variable+"="+filepath.Join(top, variable))
	}
	out, err := run(t, "make", args...)
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for line := range strings.Lines(out) {
		if !strings.Contains(line, "rm -") && !strings.Contains(line, "tools/venv ") && !strings.Contains(line, "--clear") {
			continue
		}
		if target := line[strings.LastIndex(line, "tools/venv")+1:]; strings.Contains(target, top) {
			t.Error(line)
		}
	}
}
