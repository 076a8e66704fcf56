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

// finds matches the calls with which a package's tests fail if goroutines are left: goleak, or a helper that calls
// goleak.
var finds = []string{"goleak.VerifyTestMain", "goleak.Find(", "planetest.Main"}

// TestLeaksAreLookedFor checks that the tests of every package that starts goroutines look for goroutines that are
// left. Packages without tests are helpers of other tests, which look.
func TestLeaksAreLookedFor(t *testing.T) {
	const root = "../.."
	for path := range list(t) {
		sources, err := filepath.Glob(filepath.Join(root, path, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		var starts string // position of the first start of a goroutine
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

// started returns the position at which a file starts a goroutine, with a go statement or with the method Go of a
// group.
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
