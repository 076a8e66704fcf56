package sim_test

import (
	"bytes"
	"flag"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var rewriteAPI = flag.String("rewrite-api", "",
	"write testdata/api anew, for a change that CHANGELOG.md tells in these words")

// stable are the packages whose exported names a user's module may rely on, and where they lie: folders, or the one
// file of a package whose types sim gives to its users by other names.
var stable = map[string]string{"effects": "../effects", "sim": ".", "sim-oracle": "oracle", "sim-simtest": "simtest",
	"sim-coverage": "coverage", "sim-result": "world/result.go",
	"sim-scope": "explore/scope.go", "sim-exploration": "explore/found.go"}

// TestAPI: what is stable changes only with a word in CHANGELOG.md. After such a change:
//
//	go test ./sim -run '^TestAPI$' -rewrite-api 'words of the line in CHANGELOG.md'
func TestAPI(t *testing.T) {
	if testing.Short() {
		t.Skip("is for a whole tree")
	}
	text, err := os.ReadFile("../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	changelog := strings.Join(strings.Fields(string(text)), " ")
	for name, folder := range stable {
		is, file := exported(t, folder), filepath.Join("testdata", "api", name+".txt")
		kept, err := os.ReadFile(file)
		if err != nil && *rewriteAPI == "" {
			t.Fatal(err)
		}
		head, was, _ := strings.Cut(string(kept), "\n")
		if is != was && *rewriteAPI != "" {
			head, was = "# "+*rewriteAPI, is
			if err := os.WriteFile(file, []byte(head+"\n"+is), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if is != was {
			t.Errorf("what package %s exports is not as in %s any more:\n%s\n"+
				"If that is meant, tell it in CHANGELOG.md and run: go test ./sim -run '^TestAPI$' -rewrite-api 'those words'",
				name, file, difference(was, is))
		}
		if words := strings.TrimPrefix(head, "# "); !strings.Contains(changelog, words) || words == "" {
			t.Errorf("%s changed last for %q, which CHANGELOG.md does not tell", file, words)
		}
	}
}

// exported are the exported declarations of a package, without what they do and what is said of them, sorted.
func exported(t *testing.T, folder string) string {
	t.Helper()
	if filepath.Ext(folder) != ".go" {
		folder = filepath.Join(folder, "*.go")
	}
	files, err := filepath.Glob(folder)
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files in %s: %v", len(files), folder, err)
	}
	var all []string
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if !ast.FileExports(f) {
			continue
		}
		for _, d := range f.Decls {
			if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.IMPORT {
				continue
			}
			if fn, ok := d.(*ast.FuncDecl); ok {
				if !reachable(fn) {
					continue
				}
				fn.Body = nil
			}
			var b bytes.Buffer
			if err := printer.Fprint(&b, fset, d); err != nil {
				t.Fatal(err)
			}
			all = append(all, b.String()+"\n")
		}
	}
	slices.Sort(all)
	return strings.Join(all, "")
}

// reachable says whether a function is no method, or one of a type with an exported name.
func reachable(fn *ast.FuncDecl) bool {
	if fn.Recv == nil {
		return true
	}
	of := fn.Recv.List[0].Type
	if p, ok := of.(*ast.StarExpr); ok {
		of = p.X
	}
	if x, ok := of.(*ast.IndexExpr); ok {
		of = x.X
	}
	id, ok := of.(*ast.Ident)
	return !ok || id.IsExported()
}

// difference are the lines that only one of two texts has.
func difference(was, is string) string {
	var b strings.Builder
	old, fresh := strings.Split(was, "\n"), strings.Split(is, "\n")
	for _, l := range old {
		if !slices.Contains(fresh, l) {
			b.WriteString("- " + l + "\n")
		}
	}
	for _, l := range fresh {
		if !slices.Contains(old, l) {
			b.WriteString("+ " + l + "\n")
		}
	}
	return b.String()
}
