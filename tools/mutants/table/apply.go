package table

import (
	"cmp"
	"errors"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/tools/go/ast/astutil"
)

// Apply returns the text of each file that the edits of m change, with the defect, by the file's path below root. It
// does not change the files on disk.
func (m *Mutant) Apply(root string) (map[string][]byte, error) {
	changes := map[string]*fileChange{}
	for i := range m.Edits {
		e := &m.Edits[i]
		d, err := findDeclaration(root, e.In)
		if err != nil {
			return nil, err
		}
		c := changes[d.path]
		if c == nil {
			c = &fileChange{text: d.text}
			changes[d.path] = c
		}
		if err := c.addEdit(e, d); err != nil {
			return nil, fmt.Errorf("%s: %w", e.In, err)
		}
	}
	files := map[string][]byte{}
	for name, c := range changes {
		text, err := c.applyEdits()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		files[name] = text
	}
	return files, nil
}

// A declaration is the position of a declaration in a file.
type declaration struct {
	path     string // path of the file below root
	text     []byte // text of the file
	doc      int    // offset of the doc comment, or from if there is no doc comment
	from, to int
}

// findDeclaration finds the declaration with a name such as "fsm/rank.(*Rank).Step". It fails unless there is exactly
// one such declaration.
func findDeclaration(root, name string) (found declaration, err error) {
	folder, member, ok := strings.Cut(path.Base(name), ".")
	if !ok {
		return found, fmt.Errorf("%q does not name a declaration; want, for example, fsm/rank.(*Rank).Step", name)
	}
	folder = path.Join(path.Dir(name), folder)
	paths, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(folder), "*.go"))
	if err != nil {
		return found, err
	}
	n := 0
	for _, p := range paths {
		if strings.HasSuffix(p, "_test.go") {
			continue
		}
		text, err := os.ReadFile(p)
		if err != nil {
			return found, err
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, p, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return found, err
		}
		offset := func(p token.Pos) int { return fset.Position(p).Offset }
		for _, decl := range file.Decls {
			if !slices.Contains(DeclaredNames(decl), member) {
				continue
			}
			n++
			found = declaration{path: path.Join(folder, filepath.Base(p)), text: text, from: offset(decl.Pos()),
				to: offset(decl.End())}
			found.doc = found.from
			if doc := docOf(decl); doc != nil {
				found.doc = offset(doc.Pos())
			}
		}
	}
	if n != 1 {
		return found, fmt.Errorf("%s is declared %d times, not once; correct the name", name, n)
	}
	return found, nil
}

// DeclaredNames returns the names that a declaration declares. The name of a method includes the receiver, as in
// "(*Rank).Step".
func DeclaredNames(decl ast.Decl) (names []string) {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil || len(d.Recv.List) == 0 {
			return []string{d.Name.Name}
		}
		receiver, pointer := d.Recv.List[0].Type, false
		if star, is := receiver.(*ast.StarExpr); is {
			receiver, pointer = star.X, true
		}
		switch generic := receiver.(type) {
		case *ast.IndexExpr:
			receiver = generic.X
		case *ast.IndexListExpr:
			receiver = generic.X
		}
		name := receiver.(*ast.Ident).Name
		if pointer {
			name = "(*" + name + ")"
		}
		return []string{name + "." + d.Name.Name}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				names = append(names, s.Name.Name)
			case *ast.ValueSpec:
				for _, name := range s.Names {
					names = append(names, name.Name)
				}
			}
		}
	}
	return names
}

func docOf(decl ast.Decl) *ast.CommentGroup {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		return d.Doc
	case *ast.GenDecl:
		return d.Doc
	}
	return nil
}

// A fileChange collects the edits of one file.
type fileChange struct {
	text    []byte
	spans   []span
	imports []string
}

// A span is a text that replaces the bytes of a file between two offsets.
type span struct {
	from, to int
	text     string
}

func (c *fileChange) addEdit(e *Edit, d declaration) error {
	c.imports = append(c.imports, e.Import...)
	switch {
	case e.Drop:
		c.spans = append(c.spans, span{d.doc, d.to, ""})
	case e.Add != "":
		c.spans = append(c.spans, span{len(d.text), len(d.text), "\n" + e.Add + "\n"})
	default:
		places, err := findTokens(d.text[d.from:d.to], e.Old)
		if err != nil {
			return err
		}
		if len(places) != 1 {
			return fmt.Errorf("old occurs %d times, not once:\n%s", len(places), e.Old)
		}
		c.spans = append(c.spans, span{d.from + places[0][0], d.from + places[0][1], strings.TrimSpace(e.New)})
	}
	return nil
}

// applyEdits returns the text of the file with all edits, formatted.
func (c *fileChange) applyEdits() ([]byte, error) {
	text, err := c.spliceSpans()
	if err != nil {
		return nil, err
	}
	return c.fixImports(text)
}

// spliceSpans returns the text with all spans replaced.
func (c *fileChange) spliceSpans() ([]byte, error) {
	slices.SortStableFunc(c.spans, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	var text []byte
	at := 0
	for _, s := range c.spans {
		if s.from < at {
			return nil, errors.New("two edits change the same tokens")
		}
		text = append(append(text, c.text[at:s.from]...), s.text...)
		at = s.to
	}
	return append(text, c.text[at:]...), nil
}

// fixImports adds the imports that the edits name, and removes those that are no longer used.
func (c *fileChange) fixImports(text []byte) ([]byte, error) {
	before, err := parser.ParseFile(token.NewFileSet(), "", c.text, 0)
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "", text, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	changed := false
	for _, name := range c.imports {
		changed = astutil.AddImport(fset, file, name) || changed
	}
	for _, spec := range before.Imports {
		name := ""
		if spec.Name != nil {
			name = spec.Name.Name
		}
		of, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, err
		}
		if astutil.UsesImport(before, of) && !astutil.UsesImport(file, of) {
			changed = astutil.DeleteNamedImport(fset, file, name, of) || changed
		}
	}
	if !changed {
		return format.Source(text)
	}
	var out strings.Builder
	if err := format.Node(&out, fset, file); err != nil {
		return nil, err
	}
	return []byte(out.String()), nil
}
