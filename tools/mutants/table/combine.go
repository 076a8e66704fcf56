package table

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"slices"
	"strconv"
	"strings"
)

// ActiveVariable is the environment variable with which a build of combined mutants is told which of them runs.
const ActiveVariable = "KVFERRY_MUTANT"

// activeName and activeFile are the name and the text of a file that Combine adds to each package that a mutant changes.
const activeName = "kvf_active.go"

const activeFile = `package %s

import (
	"os"
	"strconv"
)

// kvfActive is the number of the mutant that runs, or 0 if none does.
var kvfActive, _ = strconv.Atoi(os.Getenv("` + ActiveVariable + `"))
`

// Combine returns files that have all mutants at once, by path below root. A build with these files runs the mutant
// whose number, its index in mutants plus 1, is in the environment variable ActiveVariable. Without the variable, it
// runs the code without defects. For example, two mutants of one method become
//
//	func (t *Target) OnSignal(e *Env, s Signal) {
//		switch kvfActive {
//		case 5:
//			t.OnSignal__abandoned_read_goes_on(e, s)
//			return
//		case 9:
//			t.OnSignal__done_twice(e, s)
//			return
//		}
//		... // the method without a defect
//	}
//
// and a copy of the method for each. So all mutants are compiled once, instead of everything that depends on a changed
// package once for each mutant.
//
// Only functions and methods that keep their parameters can be switched in this way. A mutant that edits something else,
// or whose edits do not apply, is left out, and has no number.
func Combine(root string, mutants []Mutant) (files map[string][]byte, numbers map[string]int, err error) {
	c := combiner{root: root, functions: map[string]*switchedFunction{}}
	numbers = map[string]int{}
	for i := range mutants {
		if c.addMutant(&mutants[i], i+1) {
			numbers[mutants[i].Name] = i + 1
		}
	}
	files, err = c.writeFiles()
	return files, numbers, err
}

type combiner struct {
	root      string
	functions map[string]*switchedFunction // by name, as in the field in of an edit; nil if no function has the name
}

// A switchedFunction is a function that mutants change.
type switchedFunction struct {
	declaration
	cases   []switchCase
	imports []string
}

// A switchCase is a copy of a function with the defect of one mutant.
type switchCase struct {
	number int
	suffix string // of the copy's name
	text   string // the declaration of the copy
}

// addMutant adds the cases of a mutant to the functions that the mutant changes. It reports false, and adds nothing, if
// the mutant cannot be switched.
func (c *combiner) addMutant(m *Mutant, number int) bool {
	changes := map[string]*fileChange{}
	for i := range m.Edits {
		e := &m.Edits[i]
		f := c.function(e.In)
		if f == nil || e.Old == "" {
			return false
		}
		text := f.text[f.from:f.to]
		if changes[e.In] == nil {
			changes[e.In] = &fileChange{text: text}
		}
		if changes[e.In].addEdit(e, declaration{to: len(text), text: text}) != nil {
			return false
		}
	}
	suffix := "__" + strings.ReplaceAll(m.Name, "-", "_")
	copies := map[string]switchCase{}
	for name, change := range changes {
		text, err := change.spliceSpans()
		if err != nil {
			return false
		}
		decl, begin, err := parseFunction(text)
		if err != nil || !hasSameHead(c.functions[name], text[:int(decl.Body.Lbrace)-begin]) {
			return false
		}
		end := int(decl.Name.End()) - begin
		copies[name] = switchCase{number, suffix, string(text[:end]) + suffix + string(text[end:])}
	}
	for name, copied := range copies {
		f := c.functions[name]
		f.cases = append(f.cases, copied)
		f.imports = append(f.imports, changes[name].imports...)
	}
	return true
}

// function returns the function with a name, or nil if no function has it.
func (c *combiner) function(name string) *switchedFunction {
	if f, known := c.functions[name]; known {
		return f
	}
	d, err := findDeclaration(c.root, name)
	if err != nil || !bytes.HasPrefix(d.text[d.from:], []byte("func")) {
		c.functions[name] = nil
		return nil
	}
	f := &switchedFunction{declaration: d}
	c.functions[name] = f
	return f
}

// hasSameHead reports whether a copy of f begins with the text of f before the body. Callers of f cannot call a copy that
// has other parameters.
func hasSameHead(f *switchedFunction, head []byte) bool {
	return bytes.HasPrefix(f.text[f.from:f.to], head)
}

// parseFunction parses the text of one function. An offset in text is the position in decl minus begin.
func parseFunction(text []byte) (decl *ast.FuncDecl, begin int, err error) {
	const head = "package p\n"
	file, err := parser.ParseFile(token.NewFileSet(), "", head+string(text), parser.SkipObjectResolution)
	if err != nil {
		return nil, 0, err
	}
	return file.Decls[0].(*ast.FuncDecl), len(head) + 1, nil
}

// writeFiles returns the text of each file with a changed function.
func (c *combiner) writeFiles() (map[string][]byte, error) {
	changes := map[string]*fileChange{}
	for name, f := range c.functions {
		if f == nil || len(f.cases) == 0 {
			continue
		}
		text, err := f.dispatch()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		change := changes[f.path]
		if change == nil {
			change = &fileChange{text: f.text}
			changes[f.path] = change
		}
		change.imports = append(change.imports, f.imports...)
		change.spans = append(change.spans, span{f.from, f.to, text})
	}
	files := map[string][]byte{}
	for file, change := range changes {
		text, err := change.applyEdits()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		files[file] = text
		parsed, err := parser.ParseFile(token.NewFileSet(), "", text, parser.PackageClauseOnly)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		files[path.Join(path.Dir(file), activeName)] = fmt.Appendf(nil, activeFile, parsed.Name.Name)
	}
	return files, nil
}

// dispatch returns the function with a switch at its begin, followed by the copies that the switch calls.
func (f *switchedFunction) dispatch() (string, error) {
	text := f.text[f.from:f.to]
	decl, begin, err := parseFunction(text)
	if err != nil {
		return "", err
	}
	var named fileChange // the function with a name for each parameter
	named.text = text
	callee := decl.Name.Name
	receiver := ""
	if decl.Recv != nil {
		receiver = named.nameFields(decl.Recv, begin, "kvfReceiver")[0] + "."
	}
	if types := decl.Type.TypeParams; types != nil {
		var names []string
		for _, field := range types.List {
			for _, name := range field.Names {
				names = append(names, name.Name)
			}
		}
		callee += "%s[" + strings.Join(names, ", ") + "]"
	} else {
		callee += "%s"
	}
	arguments := strings.Join(named.nameFields(decl.Type.Params, begin, "kvfArgument"), ", ")
	if n := len(decl.Type.Params.List); n > 0 {
		if _, variadic := decl.Type.Params.List[n-1].Type.(*ast.Ellipsis); variadic {
			arguments += "..."
		}
	}
	var cases, copies strings.Builder
	for _, x := range f.cases {
		call := receiver + fmt.Sprintf(callee, x.suffix) + "(" + arguments + ")"
		if decl.Type.Results == nil {
			fmt.Fprintf(&cases, "case %d:\n%s\nreturn\n", x.number, call)
		} else {
			fmt.Fprintf(&cases, "case %d:\nreturn %s\n", x.number, call)
		}
		copies.WriteString("\n\n" + x.text)
	}
	body := int(decl.Body.Lbrace) - begin + 1
	named.spans = append(named.spans, span{body, body, "\nswitch kvfActive {\n" + cases.String() + "}\n"})
	out, err := named.spliceSpans()
	return string(out) + copies.String(), err
}

// nameFields gives a name to each parameter that has none, and returns all names.
func (c *fileChange) nameFields(fields *ast.FieldList, begin int, prefix string) (names []string) {
	for _, field := range fields.List {
		if len(field.Names) == 0 {
			name := prefix + strconv.Itoa(len(names))
			at := int(field.Type.Pos()) - begin
			c.spans = append(c.spans, span{at, at, name + " "})
			names = append(names, name)
		}
		for _, ident := range field.Names {
			name := ident.Name
			if name == "_" {
				name = prefix + strconv.Itoa(len(names))
				at := int(ident.Pos()) - begin
				c.spans = append(c.spans, span{at, at + 1, name})
			}
			names = append(names, name)
		}
	}
	return slices.Clip(names)
}
