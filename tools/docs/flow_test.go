package docs

import (
	"bytes"
	"fmt"
	"go/format"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var codeBlock = regexp.MustCompile("(?ms)^```(?:go|diff)\n(// File |\\+\\+\\+ )(\\S+)\n(.*?)^```$")

// TestFirstFlow checks docs/first-flow.md: the flow that the page builds compiles, its tests pass, and the defect that
// the page puts into the flow is found. The flow exists only in a copy of the source tree.
func TestFirstFlow(t *testing.T) {
	page := read(t, "docs/first-flow.md")
	building, failing, found := strings.Cut(page, "\n## See it fail\n")
	if !found {
		t.Fatal(`docs/first-flow.md has no heading "See it fail"`)
	}
	tree := sourceTree{t: t, dir: t.TempDir(), copied: map[string]bool{}, changed: map[string]bool{}}
	tree.copyFolder("sim/simtest/testdata") // A failure is written there, and must not come into the source tree.
	tree.applyBlocks(building)
	if listed := listedFiles(failing); !maps.Equal(listed, tree.changed) {
		t.Errorf("docs/first-flow.md lists the files\n%v\nand shows\n%v", slices.Sorted(maps.Keys(listed)),
			slices.Sorted(maps.Keys(tree.changed)))
	}
	if testing.Short() {
		tree.applyBlocks(failing)
		t.Skip("the page can be applied to the code; building the simulator twice with it takes minutes")
	}
	tree.mustRun("protocol", "go", "run", "../tools/codecgen") // as go generate does
	// Half of the time goes into optimizing code that runs for less than a second.
	const unoptimized = "-gcflags=github.com/kvferry/kvferry/...=-N -l"
	tree.mustRun("", append([]string{"go", "build", "-trimpath", unoptimized}, tree.folders()...)...)
	tree.mustRun("", "go", "vet", "-trimpath", unoptimized, "./fsm/rank/flows/ping", "./sim/systems/ping", "./sim/simtest")
	tree.mustRun("", "go", "test", "-trimpath", unoptimized, "./sim/simtest", "-run", "^TestPing")

	tree.applyBlocks(failing)
	out, err := tree.run("", "go", "test", "-trimpath", unoptimized, "./sim/simtest", "-run", "^TestPing$")
	if err == nil {
		t.Fatal("the test passes with the defect that docs/first-flow.md puts into the flow")
	}
	shown := regexp.MustCompile("(?s)\n```\n([^`]*? broken: .*?)\n```\n").FindStringSubmatch(failing)
	if shown == nil {
		t.Fatal("docs/first-flow.md does not show how the test fails")
	}
	for line := range strings.SplitSeq(shown[1], "\n") {
		line, _, _ = strings.Cut(line, "…")
		if !strings.Contains(out, line) {
			t.Errorf("with the defect the test does not say %q, which docs/first-flow.md shows:\n%s", line, out)
		}
	}
}

// listedFiles returns the files that a text lists as new or changed.
func listedFiles(text string) map[string]bool {
	all := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^(?:new|changed) +(\S+)  `).FindAllStringSubmatch(text, -1) {
		all[m[1]] = true
	}
	return all
}

// A sourceTree is a copy of the source tree in which files can be changed. Folders without a changed file are symbolic
// links to the folders of the source tree.
type sourceTree struct {
	t       *testing.T
	dir     string
	copied  map[string]bool // folders that are copies
	changed map[string]bool // files that the page has added or changed
}

// copyFolder makes a folder of the tree a copy: a real folder with copies of the files, and links to the folders in it.
func (s *sourceTree) copyFolder(folder string) {
	s.t.Helper()
	if s.copied[folder] {
		return
	}
	s.copied[folder] = true
	to := filepath.Join(s.dir, folder)
	if folder != "." {
		s.copyFolder(path.Dir(folder))
		if err := os.Remove(to); !os.IsNotExist(err) { // the link
			s.must(err)
		}
	}
	s.must(os.MkdirAll(to, 0o755))
	from, err := filepath.Abs(filepath.Join(root, folder))
	s.must(err)
	entries, err := os.ReadDir(from)
	if os.IsNotExist(err) {
		return
	}
	s.must(err)
	for _, entry := range entries {
		name := entry.Name()
		switch {
		case entry.IsDir() && name != ".git":
			s.must(os.Symlink(filepath.Join(from, name), filepath.Join(to, name)))
		case entry.Type().IsRegular() && name != ".git":
			text, err := os.ReadFile(filepath.Join(from, name))
			s.must(err)
			s.must(os.WriteFile(filepath.Join(to, name), text, 0o644))
		}
	}
}

func (s *sourceTree) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// folders returns the folders with changed files, as arguments of the go command.
func (s *sourceTree) folders() []string {
	var all []string
	for file := range s.changed {
		if folder := "./" + path.Dir(file); !slices.Contains(all, folder) {
			all = append(all, folder)
		}
	}
	slices.Sort(all)
	return all
}

// applyBlocks applies the code blocks of a text to the tree.
func (s *sourceTree) applyBlocks(text string) {
	s.t.Helper()
	blocks := codeBlock.FindAllStringSubmatch(text, -1)
	if len(blocks) == 0 {
		s.t.Fatal("docs/first-flow.md shows no file")
	}
	for _, b := range blocks {
		file, body := b[2], b[3]
		if s.copyFolder(path.Dir(file)); path.Ext(file) != ".go" {
			s.t.Fatalf("docs/first-flow.md changes %s, which is no Go file", file)
		}
		place := filepath.Join(s.dir, file)
		old, err := os.ReadFile(place)
		switch isNew := b[1] == "// File "; {
		case isNew && err == nil && !s.changed[file]:
			s.t.Fatalf("docs/first-flow.md calls %s a new file, and it exists", file)
		case isNew && err == nil:
			body = string(old) + "\n" + body
		case !isNew:
			if s.must(err); !strings.HasPrefix(body, "@@ ") {
				s.t.Fatalf("docs/first-flow.md changes %s and begins with no line \"@@ \"", file)
			}
			if body, err = applyHunks(string(old), body); err != nil {
				s.t.Fatalf("docs/first-flow.md changes %s: %v", file, err)
			}
		}
		s.changed[file] = true
		s.must(os.WriteFile(place, []byte(body), 0o644))
	}
	for file := range s.changed {
		text, err := os.ReadFile(filepath.Join(s.dir, file))
		s.must(err)
		if formatted, err := format.Source(text); err != nil || !bytes.Equal(formatted, text) {
			s.t.Fatalf("docs/first-flow.md, %s is not as gofmt writes it: %v", file, err)
		}
	}
}

// mustRun runs a command in a folder of the tree, and fails the test if the command fails.
func (s *sourceTree) mustRun(folder string, args ...string) {
	s.t.Helper()
	if out, err := s.run(folder, args...); err != nil {
		s.t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// run runs a command in a folder of the tree, and returns its output.
func (s *sourceTree) run(folder string, args ...string) (string, error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = filepath.Join(s.dir, folder)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// applyHunks applies the hunks of a diff block to a text. A hunk begins with a line "@@ ". The lines of a hunk that are
// not new must occur together in the text exactly once; white space within lines does not count.
func applyHunks(text, diff string) (string, error) {
	for i, hunk := range strings.Split("\n"+diff, "\n@@ ") {
		head, body, _ := strings.Cut(hunk, "\n")
		if i == 0 {
			continue
		}
		var old, replacement []string
		for line := range strings.SplitSeq(strings.TrimSuffix(body, "\n"), "\n") {
			if line == "" {
				return "", fmt.Errorf("hunk %q has an empty line: begin it with a space, + or -", head)
			}
			if line[0] != '+' {
				old = append(old, line[1:])
			}
			if line[0] != '-' {
				replacement = append(replacement, line[1:])
			}
		}
		lines := strings.Split(text, "\n")
		var at []int
		for from := range len(lines) - len(old) + 1 {
			if slices.EqualFunc(lines[from:from+len(old)], old, equalFields) {
				at = append(at, from)
			}
		}
		if len(at) != 1 || len(old) == 0 {
			return "", fmt.Errorf("the old lines of hunk %q occur %d times, not once:\n%s", head, len(at), strings.Join(old, "\n"))
		}
		text = strings.Join(slices.Concat(lines[:at[0]], replacement, lines[at[0]+len(old):]), "\n")
	}
	return text, nil
}

// equalFields reports whether two lines differ only in white space.
func equalFields(a, b string) bool { return slices.Equal(strings.Fields(a), strings.Fields(b)) }
