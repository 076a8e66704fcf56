package walls

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// timeOfDay lists the functions and methods with which Go code reads the time of day as a number. Such numbers jump
// when an administrator or NTP sets the clock. A time.Time and values computed from it keep Go's monotonic reading.
var timeOfDay = []string{"Unix", "UnixNano", "UnixMilli", "UnixMicro", "UnixDate", "ModTime", "CLOCK_REALTIME"}

// daysAllowed lists the files that may use the time of day, with the reason.
var daysAllowed = map[string]string{
	"runtime/plane/epochs/channel.go":       "an instant that is surely over ends a read",
	"runtime/plane/epochs/outgoing_link.go": "an instant that is surely over ends a read",
	"runtime/plane/shm/listen.go":           "a folder that was left behind is as old as its file says; a connection decides",
}

// No deadline of a real node depends on the time of day, because the clock may be set.
func TestNoTimeOfDay(t *testing.T) {
	used := map[string]bool{}
	for _, folder := range []string{"runtime", "cmd", "protocol", "identity"} {
		err := filepath.WalkDir(filepath.Join("..", "..", folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			files := token.NewFileSet()
			file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			name, err := filepath.Rel(filepath.Join("..", ".."), path)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				s, is := n.(*ast.SelectorExpr)
				if !is || !slices.Contains(timeOfDay, s.Sel.Name) {
					return true
				}
				if used[name] = true; daysAllowed[name] == "" {
					t.Errorf("%v: %s is the time of day, which jumps: keep a time.Time, or count from one that the process took "+
						"at its start", files.Position(s.Pos()), s.Sel.Name)
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for name := range daysAllowed {
		if !used[name] {
			t.Errorf("%s uses no time of day: take it off the list", name)
		}
	}
}
