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

// kept are types that share a package with others and still keep their unexported fields to themselves: only their
// own methods, those of their friends and the function that makes one may select one. A literal selects none.
var kept = map[string]map[string][]string{
	"fsm/rank/flows/deferred": {"Offers": nil, "Fetches": nil},
	"fsm/rank/flows/engine":   {"Gets": nil, "Op": nil, "proxy": nil, "requests": {"proxy"}, "reserves": nil},
	"fsm/rank/kernel":         {"Tickets": nil},
	"fsm/rank/peers/lease":    {"Owner": nil, "Renewals": nil, "Renewers": nil},
	"fsm/rank/peers/link":     {"Breakers": nil, "pace": nil, "changedPeers": nil},
	"fsm/rank/flows/pull":     {"roomQueue": {"Source"}, "pullIDTable": nil, "Target": nil},
	"fsm/rank/flows/put":      {"Table": nil},
}

// compiled is a package as go list builds it.
type compiled struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
}

// compile lists a package of ours and all that it stands on, by import path.
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

// check reads a package of ours with its types.
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

// TestKeptFields holds each kept type's fields against who selects them.
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

// receiverOf is the type that a declaration is a method of, or makes: newT makes a t.
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
