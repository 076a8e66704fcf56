package walls

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// kept lists types that share a package with others and keep their unexported fields private: only methods of the type,
// of its friends, and the type's constructor may select such a field. A composite literal does not count as a
// selection.
var kept = map[string]map[string][]string{
	"fsm/rank/flows/deferred": {"Offers": nil, "Fetches": nil},
	"fsm/rank/flows/engine":   {"Gets": nil, "Op": nil, "proxy": nil, "requests": {"proxy"}, "reserves": nil},
	"fsm/rank/kernel":         {"Tickets": nil},
	"fsm/rank/peers/lease":    {"Owner": nil, "Renewals": nil, "Renewers": nil},
	"fsm/rank/peers/link":     {"Breakers": nil, "pace": nil, "changedPeers": nil},
	"fsm/rank/flows/pull":     {"roomQueue": {"Source"}, "pullIDTable": nil, "Target": nil},
	"fsm/rank/flows/put":      {"Table": nil},
}

// A compiled is a package in the output of go list.
type compiled struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
}

// compile lists a package of this module and all its imports, by import path.
func compile(t *testing.T, path string) map[string]compiled {
	t.Helper()
	const fields = "-json=ImportPath,Dir,Export,GoFiles"
	out, err := exec.Command("go", "list", "-export", "-deps", fields, module+"/"+path).Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	all := map[string]compiled{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var c compiled
		if err := d.Decode(&c); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all[c.ImportPath] = c
	}
}

// check parses and type-checks a package of this module.
func check(t *testing.T, path string) (*token.FileSet, []*ast.File, *types.Package, *types.Info) {
	t.Helper()
	all, fset := compile(t, path), token.NewFileSet()
	files := []*ast.File{}
	for _, name := range all[module+"/"+path].GoFiles {
		f, err := parser.ParseFile(fset, filepath.Join(all[module+"/"+path].Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	from := func(imported string) (io.ReadCloser, error) { return os.Open(all[imported].Export) }
	info := &types.Info{Selections: map[*ast.SelectorExpr]*types.Selection{}}
	cfg := types.Config{Importer: importer.ForCompiler(fset, "gc", from)}
	p, err := cfg.Check(module+"/"+path, fset, files, info)
	if err != nil {
		t.Fatal(err)
	}
	return fset, files, p, info
}

// TestKeptFields checks which functions select the fields of each kept type.
func TestKeptFields(t *testing.T) {
	for _, path := range slices.Sorted(maps.Keys(kept)) {
		fset, files, p, info := check(t, path)
		owner := map[types.Object]string{}
		for name := range kept[path] {
			of, ok := p.Scope().Lookup(name).(*types.TypeName)
			if !ok {
				t.Errorf("%s has no type %s whose fields could be kept", path, name)
				continue
			}
			for field := range of.Type().Underlying().(*types.Struct).Fields() {
				if !field.Exported() {
					owner[field] = name
				}
			}
		}
		for _, f := range files {
			for _, decl := range f.Decls {
				who := receiverOf(decl)
				ast.Inspect(decl, func(n ast.Node) bool {
					if x, ok := n.(*ast.SelectorExpr); ok && info.Selections[x] != nil {
						of := owner[info.Selections[x].Obj()]
						if of != "" && of != who && !slices.Contains(kept[path][of], who) {
							t.Errorf("%s: a method of %q selects %s, which %s keeps to itself", fset.Position(x.Pos()), who, x.Sel.Name, of)
						}
					}
					return true
				})
			}
		}
	}
}

// receiverOf returns the type to which a declaration belongs as a method or as a constructor: newT belongs to t.
func receiverOf(decl ast.Decl) string {
	f, ok := decl.(*ast.FuncDecl)
	if !ok {
		return ""
	}
	if f.Recv == nil {
		made, _ := strings.CutPrefix(f.Name.Name, "new")
		return strings.ToLower(made[:min(1, len(made))]) + made[min(1, len(made)):]
	}
	of := f.Recv.List[0].Type
	if star, ok := of.(*ast.StarExpr); ok {
		of = star.X
	}
	switch generic := of.(type) {
	case *ast.IndexExpr:
		of = generic.X
	case *ast.IndexListExpr:
		of = generic.X
	}
	if name, ok := of.(*ast.Ident); ok {
		return name.Name
	}
	return ""
}
