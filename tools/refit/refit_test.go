package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// everyPatch is which of the kept patches are tried on moved code: one in so many.
const everyPatch = 5

// nameMap renames what stands in most files.
const nameMap = "# old new\ncfg => settings\nphase stage\nput shipment\n"

// moved is what a careless script makes of a file: other names, another letter for a receiver, and all functions in the
// opposite order. It need not compile.
func moved(t *testing.T, text string) string {
	path := filepath.Join(t.TempDir(), "map")
	if err := os.WriteFile(path, []byte(nameMap), 0o644); err != nil {
		t.Fatal(err)
	}
	renames, err := readRenames(path)
	if err != nil {
		t.Fatal(err)
	}
	const end = "\n}\n"
	parts := strings.SplitAfter(renamed(text, renames), end)
	for i, part := range parts {
		if receiver := regexp.MustCompile(`(?m)^func \((s|r) \*`).FindStringSubmatch(part); receiver != nil {
			parts[i] = regexp.MustCompile(`\b`+receiver[1]+`\b`).ReplaceAllString(part, "q")
		}
	}
	last := max(len(parts)-1, 1) // What follows the last function stays there.
	slices.Reverse(parts[1:last])
	return strings.Join(parts, "")
}

// elsewhere is where the script puts a file.
func elsewhere(path string) string { return strings.TrimSuffix(path, ".go") + "_moved.go" }

// What refit makes of a patch, applied to moved code, is the moved code of what the patch was applied to.
func TestMovedCodeHasTheSameDefects(t *testing.T) {
	before, after, dir := t.TempDir(), t.TempDir(), t.TempDir()
	kept, err := readTree(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	for path, f := range kept.files {
		text := strings.Join(f.lines, "\n") + "\n"
		if err := writeFile(filepath.Join(before, path), f.lines); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSuffix(moved(t, text), "\n"), "\n")
		if err := writeFile(filepath.Join(after, elsewhere(path)), lines); err != nil {
			t.Fatal(err)
		}
	}
	patches, err := filepath.Glob("../../sim/mutants/*.patch")
	if err != nil || len(patches) == 0 {
		t.Fatalf("%d patches, %v", len(patches), err)
	}
	var tried []string
	for i := 0; i < len(patches); i += everyPatch {
		text := read(t, patches[i])
		tried = append(tried, filepath.Base(patches[i]))
		write(t, filepath.Join(dir, filepath.Base(patches[i])), text)
	}
	names := filepath.Join(t.TempDir(), "names")
	write(t, names, nameMap)
	var out bytes.Buffer
	left, err := refitAll(&out, after, dir, ".", names, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d of %d patches left", left, len(tried))
	if 4*left > len(tried) {
		t.Errorf("%d of %d patches were left:\n%s", left, len(tried), &out)
	}
	for _, name := range tried {
		old, anew := read(t, filepath.Join("../../sim/mutants", name)), read(t, filepath.Join(dir, name))
		if old == anew {
			continue // It was left.
		}
		head, _, _ := strings.Cut(old, "diff --git ")
		if !strings.HasPrefix(anew, head+"diff --git a/") {
			t.Errorf("%s: the lines above the diff are not what they were:\n%s", name, anew)
		}
		apply(t, before, old)
		apply(t, after, anew)
		for path := range paths(old) {
			want := moved(t, read(t, filepath.Join(before, path)))
			if got := read(t, filepath.Join(after, elsewhere(path))); got != want {
				t.Errorf("%s: another defect than before:\n%s\nbefore:\n%s", name, anew, old)
			}
		}
		apply(t, before, old, "--reverse")
		apply(t, after, anew, "--reverse")
	}
}

// paths are the files that a patch changes.
func paths(patch string) map[string]bool {
	all := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\+\+\+ b/(.*)$`).FindAllStringSubmatch(patch, -1) {
		all[m[1]] = true
	}
	return all
}

func apply(t *testing.T, tree, patch string, args ...string) {
	t.Helper()
	cmd := exec.Command("git", append([]string{"apply", "-"}, args...)...)
	cmd.Dir, cmd.Stdin = tree, strings.NewReader(patch)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := writeFile(path, strings.Split(strings.TrimSuffix(text, "\n"), "\n")); err != nil {
		t.Fatal(err)
	}
}
