// Reduced prints a pattern for `go test -run` that matches the tests of some packages which do less with -short: those
// that ask testing.Short, by themselves or through what they call. `make race` runs all tests so, and `make unit` runs
// these again, whole.
//
//	go run ./tools/reduced ./runtime/hostile ./runtime/plane/shm
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	names := map[string]bool{}
	for _, folder := range os.Args[1:] {
		found, err := reduced(folder)
		if err != nil {
			fmt.Fprintln(os.Stderr, "reduced:", err)
			os.Exit(1)
		}
		maps.Copy(names, found)
	}
	fmt.Printf("^(%s)$\n", strings.Join(slices.Sorted(maps.Keys(names)), "|"))
}

// reduced finds such tests of one package. Functions are told apart by their names alone, so it may find too many.
func reduced(folder string) (map[string]bool, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		return nil, err
	}
	uses := map[string][]string{}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok && id != f.Name {
					uses[f.Name.Name] = append(uses[f.Name.Name], id.Name)
				}
				return true
			})
		}
	}
	less := map[string]bool{"Short": true}
	for grown := true; grown; {
		grown = false
		for f, of := range uses {
			if !less[f] && slices.ContainsFunc(of, func(name string) bool { return less[name] }) {
				less[f], grown = true, true
			}
		}
	}
	maps.DeleteFunc(less, func(name string, _ bool) bool { return !strings.HasPrefix(name, "Test") })
	return less, nil
}
