package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// A tree is the Go files in which a change may belong.
type tree struct {
	root  string
	paths []string // in order
	files map[string]*file
}

// A file is its lines, as they stand and as they are compared.
type file struct{ lines, normal []string }

func readTree(root string) (*tree, error) {
	t := &tree{root: root, files: map[string]*file{}}
	for _, folder := range roots {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			name, err := filepath.Rel(root, path)
			t.add(filepath.ToSlash(name), string(text))
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return t, nil
}

func (t *tree) add(path, text string) {
	f := &file{lines: strings.Split(strings.TrimSuffix(text, "\n"), "\n")}
	for _, line := range f.lines {
		f.normal = append(f.normal, normal(line))
	}
	t.paths, t.files[path] = append(t.paths, path), f
}

// section is the line that git shows as what a line is in: the last above it that is not moved in.
func (f *file) section(line int) string {
	for ; line > 0; line-- {
		if l := f.lines[line-1]; l != "" && (l[0] == '_' || says(l[:1])) {
			return l
		}
	}
	return ""
}

// An edit is a change in its place.
type edit struct {
	place
	drop int
	add  []string
}

// edit writes what a change puts in as it must stand at a place: with the names and at the depth of the lines there.
func (t *tree) edit(c change, at place) edit {
	f := t.files[at.path]
	letters := newLetters()
	deeper, known := 0, false
	look := func(i int) {
		there := at.line + i - c.at
		if there < 0 || there >= len(f.lines) || normal(c.old[i]) != f.normal[there] {
			return
		}
		letters.learn(c.old[i], f.lines[there])
		if !known && says(c.old[i]) {
			deeper, known = depth(f.lines[there])-depth(c.old[i]), true
		}
	}
	for i := c.at; i < c.at+c.drop; i++ {
		look(i)
	}
	letters.method(c.section, f.section(at.line))
	for away := 1; away <= len(c.old); away++ { // The nearest first.
		if i := c.at - away; i >= 0 {
			look(i)
		}
		if i := c.at + c.drop + away - 1; i < len(c.old) {
			look(i)
		}
	}
	e := edit{place: at, drop: c.drop}
	for _, line := range c.add {
		e.add = append(e.add, letters.spell(line, deeper))
	}
	return e
}

// diff is what git says of edits to the tree.
func (t *tree) diff(edits []edit) (string, error) {
	folder, err := os.MkdirTemp("", "kvferry-refit-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(folder) //nolint:errcheck // The system clears its temporary folder too.
	byPath := map[string][]edit{}
	for _, e := range edits {
		byPath[e.path] = append(byPath[e.path], e)
	}
	for path, edits := range byPath {
		lines := slices.Clone(t.files[path].lines)
		slices.SortFunc(edits, func(a, b edit) int { return b.line - a.line })
		for i, e := range edits {
			if i > 0 && e.line+e.drop > edits[i-1].line {
				return "", fmt.Errorf("two of its changes belong to line %d of %s", e.line+1, path)
			}
			lines = slices.Replace(lines, e.line, e.line+e.drop, e.add...)
		}
		if err := errors.Join(writeFile(filepath.Join(folder, "a", path), t.files[path].lines),
			writeFile(filepath.Join(folder, "b", path), lines)); err != nil {
			return "", err
		}
	}
	cmd := exec.Command("git", "diff", "--no-index", "--no-prefix", "--no-color", "a", "b")
	cmd.Dir = folder
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 {
		return string(out), nil
	}
	return "", errors.Join(err, fmt.Errorf("its changes change nothing here"))
}

func writeFile(path string, lines []string) error {
	return errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
		os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o644))
}

// applies reports whether git would apply a patch to the tree.
func (t *tree) applies(patch string) bool {
	_, err := t.git(patch, "apply", "--check", "-")
	return err == nil
}

// git runs git in the tree with a text to read.
func (t *tree) git(stdin string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Stdin = t.root, strings.NewReader(stdin)
	out, err := cmd.Output()
	return string(out), err
}
