package walls

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// finds names what makes a package's tests fail on goroutines that are left: goleak, or what calls it.
var finds = []string{"goleak.VerifyTestMain", "goleak.Find(", "planetest.Main"}

// TestLeaksAreLookedFor: the tests of a package that starts goroutines fail on those that are left. Packages without
// tests are helpers of others' tests, which look.
func TestLeaksAreLookedFor(t *testing.T) {
	const root = "../.."
	for path := range list(t) {
		sources, err := filepath.Glob(filepath.Join(root, path, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		var starts string // where
		tests, looked := 0, false
		for _, source := range sources {
			text, err := os.ReadFile(source)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(source, "_test.go") {
				tests++
				for _, name := range finds {
					looked = looked || strings.Contains(string(text), name)
				}
				continue
			}
			if starts == "" {
				starts = started(t, source, text)
			}
		}
		if starts != "" && tests > 0 && !looked {
			t.Errorf("%s starts a goroutine (%s), and its tests look for none that is left; give it a TestMain with %s", path,
				starts, finds[0])
		}
	}
}

// started is where a file starts a goroutine: by a go statement, or by the method Go of a group with a function alone.
func started(t *testing.T, name string, text []byte) (where string) {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, text, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			where = set.Position(n.Pos()).String()
		case *ast.CallExpr:
			method, ok := n.Fun.(*ast.SelectorExpr)
			if ok && method.Sel.Name == "Go" && len(n.Args) == 1 {
				where = set.Position(n.Pos()).String()
			}
		}
		return where == ""
	})
	return where
}
