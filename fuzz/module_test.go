package fuzz

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The module that docs/fuzzing.md shows is somebody else's: it has kvferry as a dependency, and no more than
// what kvferry exports.
func TestModuleOfTheDocumentation(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a module")
	}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "docs", "fuzzing.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "```go\n")
	program, _, found := strings.Cut(rest, "```\n")
	if !found {
		t.Fatal("docs/fuzzing.md shows no program")
	}
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	ours, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	// What kvferry requires its user requires, too; so nothing has to be asked of a network.
	_, requires, _ := strings.Cut(string(ours), "\n\n")
	module := "module example.com/mynode\n\n" + requires +
		"\nrequire github.com/kvferry/kvferry v0.0.0\n\nreplace github.com/kvferry/kvferry => " + root + "\n"

	dir := t.TempDir()
	for name, content := range map[string]string{"go.mod": module, "go.sum": string(sums), "mynode_test.go": program} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "-mod=mod", "-v", "./...")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, test := range []string{"FuzzAllocRequest", "FuzzPullReadyNotif", "TestRecorded", "TestSimulated"} {
		if !strings.Contains(string(out), "--- PASS: "+test) {
			t.Errorf("%s did not run:\n%s", test, out)
		}
	}
}
