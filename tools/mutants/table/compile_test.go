package table

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const root = "../../.."

// A mutant that does not compile guards nothing, and without this test the next hunt would be the first to notice. An
// error names the mutant in the name of the changed function, as in "OnSignal__done_twice".
func TestEveryMutantCompiles(t *testing.T) {
	var mutants []Mutant
	for _, name := range []string{"mutants.yaml", "blind.yaml", "blind2.yaml"} {
		more, err := Read(filepath.Join(root, "sim", name))
		if err != nil || len(more) == 0 {
			t.Fatalf("%d mutants: %v", len(more), err)
		}
		mutants = append(mutants, more...)
	}
	combined, numbers, err := Combine(root, mutants)
	if err != nil {
		t.Fatal(err)
	}
	if len(numbers) < len(mutants)*9/10 {
		t.Errorf("only %d of %d mutants can be combined", len(numbers), len(mutants))
	}
	changes := map[string]map[string][]byte{"combined": combined}
	folders := map[string]bool{}
	for i := range mutants {
		m := &mutants[i]
		if numbers[m.Name] == 0 {
			if changes[m.Name], err = m.Apply(root); err != nil {
				t.Errorf("%s: %v", m.Name, err)
			}
		}
		for file := range changes[m.Name] {
			folders["./"+path.Dir(file)] = true
		}
	}
	for file := range combined {
		folders["./"+path.Dir(file)] = true
	}
	c := newChecker(load(t, slices.Sorted(maps.Keys(folders))))
	for name, changed := range changes {
		if err := c.typeCheck(changed); err != nil {
			t.Errorf("%s does not compile: %v", name, err)
		}
	}
}

// A listed is a package in the output of go list.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
	Module                  *struct{ Main bool }
}

// load builds and lists packages with all their imports.
func load(t *testing.T, folders []string) map[string]listed {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles,Module"},
		folders...)...)
	cmd.Dir, cmd.Stderr = root, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	packages := map[string]listed{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages[p.ImportPath] = p
	}
}

// A checker type-checks packages with changed files, one package at a time.
type checker struct {
	packages map[string]listed
	root     string
	fset     *token.FileSet
	importer types.Importer
	parsed   map[string]*ast.File // unchanged files
}

func newChecker(packages map[string]listed) *checker {
	c := &checker{packages: packages, fset: token.NewFileSet(), parsed: map[string]*ast.File{}}
	c.root, _ = filepath.Abs(root)
	c.importer = importer.ForCompiler(c.fset, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(packages[path].Export)
	})
	return c
}

// typeCheck type-checks all packages of the changed files.
func (c *checker) typeCheck(changed map[string][]byte) error {
	folders := map[string]bool{}
	for file := range changed {
		folders[path.Dir(file)] = true
	}
	var errs []error
	for folder := range folders {
		errs = append(errs, c.checkPackage(folder, changed))
	}
	err := errors.Join(errs...)
	if err != nil && len(folders) > 1 { // A package may use a change in another package, which only the compiler can check.
		return build(c.root, changed, slices.Sorted(maps.Keys(folders)))
	}
	return err
}

func (c *checker) checkPackage(folder string, changed map[string][]byte) error {
	for _, p := range c.packages {
		if p.Module == nil || !p.Module.Main || p.Dir != filepath.Join(c.root, folder) {
			continue
		}
		names := p.GoFiles
		if _, added := changed[path.Join(folder, activeName)]; added {
			names = append(slices.Clip(names), activeName)
		}
		var files []*ast.File
		for _, name := range names {
			file, err := c.parse(path.Join(folder, name), changed)
			if err != nil {
				return err
			}
			files = append(files, file)
		}
		_, err := (&types.Config{Importer: c.importer}).Check(p.ImportPath, c.fset, files, nil)
		return err
	}
	return fmt.Errorf("go list does not know %s", folder)
}

func (c *checker) parse(name string, changed map[string][]byte) (*ast.File, error) {
	if text, is := changed[name]; is {
		return parser.ParseFile(c.fset, name, text, parser.SkipObjectResolution)
	}
	if c.parsed[name] == nil {
		file, err := parser.ParseFile(c.fset, filepath.Join(c.root, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		c.parsed[name] = file
	}
	return c.parsed[name], nil
}

// build compiles packages with changed files.
func build(root string, changed map[string][]byte, folders []string) error {
	dir, err := os.MkdirTemp("", "kvferry-mutant-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	overlay, err := WriteOverlay(dir, root, changed)
	if err != nil {
		return err
	}
	args := []string{"build", "-trimpath", "-overlay", overlay}
	for _, folder := range folders {
		args = append(args, "./"+folder)
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, strings.TrimSpace(string(out)))
	}
	return nil
}
