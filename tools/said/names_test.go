package said

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
	"unicode/utf8"
)

var (
	fenced  = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	inline  = regexp.MustCompile("`([^`\n]+)`")
	isFile  = regexp.MustCompile(`^[\w./-]+\.(go|txt|md|yaml|c)$`)
	isDir   = regexp.MustCompile(`^(cmd|contract|deploy|effects|fsm|fuzz|protocol|runtime|sim|snapshot|tools)(/\w+)*$`)
	isName  = regexp.MustCompile(`^(?:\w+\.)?(\w+)\.([A-Z]\w*)$`)
	isTest  = regexp.MustCompile(`^((Test|Fuzz|Benchmark|Example)[A-Z]|test_)\w*$`)
	tests   = regexp.MustCompile(`(?m)^ *(?:func|(?:async )?def) ((?:Test|Fuzz|Benchmark|Example|test_)\w*)\(`)
	linked  = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	dropped = regexp.MustCompile(`[^\p{L}\p{N} _-]`) // of a heading, where its anchor is made
)

// documents are what people read, by name.
func documents(t *testing.T) map[string]string {
	t.Helper()
	all := sources(t, "docs", ".md")
	for _, name := range []string{"README.md", "CONTRIBUTING.md"} {
		all[name] = read(t, name)
	}
	return all
}

// Files, folders and tests that documents name are there: who moves one finds here who speaks of it.
func TestWhatDocumentsName(t *testing.T) {
	files, funcs := []string{}, map[string]bool{}
	for _, end := range []string{".go", ".txt", ".md", ".yaml", ".c", ".py"} {
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
				t.Errorf("%s names `%s`, which is not there: say what it is called now, or take the name out", doc, name)
			}
		}
	}
	if checked < 300 {
		t.Errorf("only %d names were found", checked)
	}
}

// members are what packages and types have, by the name of each: declarations, methods, fields.
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

// receiver is the type whose method a function is, else its package.
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

// What documents name as a package's or a type's is one of its own.
func TestIdentifiersThatDocumentsName(t *testing.T) {
	all, checked := members(t), 0
	for doc, text := range documents(t) {
		for _, m := range inline.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
			name := isName.FindStringSubmatch(m[1])
			if name == nil || all[name[1]] == nil { // Of nothing of ours, errors.Is for one.
				continue
			}
			if checked++; !all[name[1]][name[2]] {
				t.Errorf("%s names `%s`, which is not there: say what it is called now, or take the name out", doc, m[1])
			}
		}
	}
	if checked < 30 {
		t.Errorf("only %d names were found", checked)
	}
}

// Links between documents lead somewhere.
func TestLinksOfDocuments(t *testing.T) {
	docs := documents(t)
	for doc, text := range docs {
		for _, m := range linked.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
			to, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(to, "://") {
				continue
			}
			file := doc
			if to != "" {
				file = filepath.Join(filepath.Dir(doc), to)
			}
			if _, err := os.Stat(filepath.Join(root, file)); err != nil {
				t.Errorf("%s links to %s, which is not there", doc, m[1])
			}
			if anchor != "" && !slices.Contains(anchors(docs[file]), anchor) {
				t.Errorf("%s links to %s, and %s has no such heading", doc, m[1], file)
			}
		}
	}
}

// Lines of documents fit a screen, tables and pictures as well. What is to be pasted, in fences, is as long as it is.
func TestLinesOfDocuments(t *testing.T) {
	const columns = 140
	for doc, text := range documents(t) {
		at, fenced := 0, false
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "```") {
				fenced = !fenced
			}
			if at++; !fenced && utf8.RuneCountInString(strings.TrimRight(line, "\n")) > columns {
				t.Errorf("%s:%d has more than %d columns: break it, or make a row of a table an item of a list", doc, at, columns)
			}
		}
	}
}

// Each document is found from README.md.
func TestDocumentsAreFound(t *testing.T) {
	readme := read(t, "README.md")
	for doc := range sources(t, "docs", ".md") {
		if !strings.Contains(readme, "]("+doc+")") {
			t.Errorf("README.md does not link to %s", doc)
		}
	}
}

// anchors are those of a document's headings, as GitHub makes them.
func anchors(text string) []string {
	var all []string
	for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		all = append(all, strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
	}
	return all
}
