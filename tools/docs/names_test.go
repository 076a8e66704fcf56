package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	fenced = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	inline = regexp.MustCompile("`([^`\n]+)`")
	isFile = regexp.MustCompile(`^[\w./-]+\.(go|txt|md|c)$`)
	isDir  = regexp.MustCompile(`^(cmd|contract|deploy|effects|fsm|fuzz|protocol|runtime|sim|snapshot|tools)(/\w+)*$`)
	isName = regexp.MustCompile(`^(?:\w+\.)?(\w+)\.([A-Z]\w*)$`)
	isTest = regexp.MustCompile(`^((Test|Fuzz|Benchmark|Example)[A-Z]|test_)\w*$`)
	tests  = regexp.MustCompile(`(?m)^ *(?:func|(?:async )?def) ((?:Test|Fuzz|Benchmark|Example|test_)\w*)\(`)
)

// Files, folders and tests that documents name exist.
func TestFilesAndTestsThatDocumentsName(t *testing.T) {
	files, funcs := []string{}, map[string]bool{}
	for _, end := range []string{".go", ".txt", ".md", ".c", ".py"} {
		for file, text := range sources(t, ".", end) {
			files = append(files, "/"+strings.TrimPrefix(file, "./"))
			for _, m := range tests.FindAllStringSubmatch(text, -1) {
				funcs[m[1]] = true
			}
		}
	}
	checked := 0
	for doc, text := range documents(t) {
		for _, m := range inline.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
			var there bool
			name := m[1]
			switch {
			case isFile.MatchString(name):
				there = slices.ContainsFunc(files, func(f string) bool { return strings.HasSuffix(f, "/"+name) })
			case isDir.MatchString(name):
				_, err := os.Stat(filepath.Join(root, name))
				there = err == nil
			case isTest.MatchString(name):
				there = funcs[name]
			default:
				continue
			}
			if checked++; !there {
				t.Errorf("%s names `%s`, which does not exist: write its new name, or remove it", doc, name)
			}
		}
	}
	if checked < 300 {
		t.Errorf("only %d names were found", checked)
	}
}

// members returns the declarations of each package, and the methods and fields of each type, by its name.
func members(t *testing.T) map[string]map[string]bool {
	t.Helper()
	all, fset := map[string]map[string]bool{}, token.NewFileSet()
	add := func(of, name string) {
		if all[of] == nil {
			all[of] = map[string]bool{}
		}
		all[of][name] = true
	}
	for file, text := range sources(t, ".", ".go") {
		if strings.Contains(file, "/testdata/") {
			continue
		}
		parsed, err := parser.ParseFile(fset, file, text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				add(receiver(n, parsed.Name.Name), n.Name.Name)
				return false
			case *ast.ValueSpec:
				for _, name := range n.Names {
					add(parsed.Name.Name, name.Name)
				}
			case *ast.TypeSpec:
				add(parsed.Name.Name, n.Name.Name)
				ast.Inspect(n.Type, func(in ast.Node) bool {
					if f, ok := in.(*ast.Field); ok {
						for _, name := range f.Names {
							add(n.Name.Name, name.Name)
						}
					}
					return true
				})
			}
			return true
		})
	}
	return all
}

// receiver returns the type that a method belongs to, and the package for other functions.
func receiver(f *ast.FuncDecl, pkg string) string {
	of := pkg
	if f.Recv != nil {
		ast.Inspect(f.Recv.List[0].Type, func(n ast.Node) bool {
			if name, ok := n.(*ast.Ident); ok && of == pkg {
				of = name.Name
			}
			return true
		})
	}
	return of
}

// An identifier that documents name with its package or type is declared there.
func TestIdentifiersThatDocumentsName(t *testing.T) {
	all, checked := members(t), 0
	for doc, text := range documents(t) {
		for _, m := range inline.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
			name := isName.FindStringSubmatch(m[1])
			if name == nil || all[name[1]] == nil { // not declared in this module, such as errors.Is
				continue
			}
			if checked++; !all[name[1]][name[2]] {
				t.Errorf("%s names `%s`, which does not exist: write its new name, or remove it", doc, m[1])
			}
		}
	}
	if checked < 30 {
		t.Errorf("only %d names were found", checked)
	}
}

var (
	comment = regexp.MustCompile(`(?m)(^[ \t]*//.*\n)+|//.*`)
	rule    = regexp.MustCompile(`\b[Rr]ules? (M[0-9])`)
)

// Rules that comments and mutants cite are stated in docs/safety.md.
func TestRulesThatCommentsCite(t *testing.T) {
	safety, cited := read(t, "docs/safety.md"), 0
	check := func(file, text string) {
		for _, m := range rule.FindAllStringSubmatch(text, -1) {
			if cited++; !strings.Contains(safety, "**"+m[1]+", ") {
				t.Errorf("%s cites rule %s, which docs/safety.md does not have", file, m[1])
			}
		}
	}
	for file, text := range sources(t, ".", ".go") {
		for _, c := range comment.FindAllString(text, -1) {
			check(file, c)
		}
	}
	check("sim/mutants.yaml", read(t, "sim/mutants.yaml"))
	if cited < 100 {
		t.Errorf("only %d rules are cited", cited)
	}
}
