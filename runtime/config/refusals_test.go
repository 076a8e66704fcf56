package config

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// named is what looks like a key of a configuration in a message.
var named = regexp.MustCompile(`\b(?:(?:tables|limits|layerwise|register|share|pull|link|data|directory|gateway|recall|` +
	`hccl|npu|nixl|store|log)\.[a-z][a-z0-9_]+|(?:pd|p2p|os|lmcache|controller)_[a-z0-9_]+|[a-z]+_(?:pct|timeout|ttl))\b`)

// notKeys look like keys and are none: messages' fields and names of others.
var notKeys = []string{"nixl.md", "lmcache_instance_1", "pd_proxy_"}

// refusalsWithoutKey are refusals for want of room that no key changes, by their first text, and why.
var refusalsWithoutKey = map[string]string{
	"grants":       "a rank has 4,096, or as many as its blocks take: what waits for one goes on when a transfer has ended",
	" of these (":  "the flow that takes the put says which key it is (put.Fitting)",
	"Reason":       "what a peer is told of a failure is short by its message",
	"alloc_failed": "what a receiver of another kind says",
}

// messages are the texts of one refusal.
type messages struct {
	at    token.Position
	texts []string
}

// refusals are all that say in a machine or a node that there is no room, or never will be: values of the type Why or
// Error beside, or in, what names one of the codes NoMemory, TooMany and TooLarge.
func refusals(t *testing.T) (all []messages) {
	t.Helper()
	files := token.NewFileSet()
	for _, root := range []string{"../../fsm", "../../runtime"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") ||
				strings.Contains(path, "/plane/") || strings.Contains(path, "/control/") || strings.Contains(path, "/directory/") {
				return err // Planes and sockets have texts of their own, and no Why.
			}
			file, err := parser.ParseFile(files, path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				switch n.(type) {
				case *ast.ReturnStmt, *ast.ExprStmt, *ast.AssignStmt:
					if m := refusalIn(files, n); m.texts != nil {
						all = append(all, m)
						return false
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func refusalIn(files *token.FileSet, n ast.Node) (m messages) {
	full, why := false, false
	ast.Inspect(n, func(x ast.Node) bool {
		switch x := x.(type) {
		case *ast.FuncLit, *ast.BlockStmt:
			return false
		case *ast.SelectorExpr:
			full = full || slices.Contains([]string{"NoMemory", "TooMany", "TooLarge"}, x.Sel.Name)
			if x.Sel.Name == "ConfigKey" { // memory.Pool.ConfigKey: the key that says how large the pool is.
				m.texts = append(m.texts, bufferKey)
			}
		case *ast.CompositeLit:
			if s, is := x.Type.(*ast.SelectorExpr); is && s.Sel.Name == "Why" {
				why = true
			}
		case *ast.BasicLit:
			if text, err := strconv.Unquote(x.Value); err == nil && x.Kind == token.STRING {
				m.texts = append(m.texts, text)
			}
		}
		return true
	})
	if m.at = files.Position(n.Pos()); !full || !why {
		m.texts = nil
	}
	return m
}

// Each refusal for want of room names the key that is its bound, or is listed here with why there is none.
func TestRefusalsNameTheirBound(t *testing.T) {
	found := refusals(t)
	if len(found) < 15 {
		t.Fatalf("only %d refusals were found", len(found))
	}
	for _, m := range found {
		all := strings.Join(m.texts, " ")
		keys := slices.DeleteFunc(named.FindAllString(all, -1), func(s string) bool { return !isKey(s) })
		if len(keys) == 0 && !slices.ContainsFunc(m.texts, func(s string) bool { return refusalsWithoutKey[s] != "" }) {
			t.Errorf("%s: %q names no key of a configuration", m.at, all)
		}
	}
}

// What any message of a machine or a node calls a key is one.
func TestMessagesNameKeysThatExist(t *testing.T) {
	files := token.NewFileSet()
	seen := 0
	for _, root := range []string{"../../fsm", "../../runtime"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(files, path, nil, parser.ParseComments)
			if err != nil {
				return err
			}
			look := func(at token.Pos, text string) {
				for _, name := range named.FindAllString(text, -1) {
					seen++
					if !isKey(name) && !slices.Contains(notKeys, name) {
						t.Errorf("%s: %s is no key", files.Position(at), name)
					}
				}
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if x, is := n.(*ast.BasicLit); is && x.Kind == token.STRING {
					if text, err := strconv.Unquote(x.Value); err == nil && strings.ContainsAny(text, " .") {
						look(x.Pos(), text)
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if seen < 100 {
		t.Errorf("only %d names were looked at", seen)
	}
}

func isKey(name string) bool {
	for _, s := range []*schema{&nodeSchema, &directorySchema} {
		if s.findKey(name) != nil || s.findKey(extraPrefix+name) != nil {
			return true
		}
	}
	return false
}
