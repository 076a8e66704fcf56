// Package purity is an analysis pass for the packages of the state machines: effects and all packages under fsm.
//
// A state machine must return the same effects whenever it is given the same events, because otherwise the results of
// the simulator would not hold for the real program. So a machine must not depend on the order of a map, on a
// scheduler, a clock or rounding, or on state outside the machine. The state of a machine must be a plain tree of
// values, so that the state can be copied, hashed and printed without special methods.
//
// The pass checks the given packages without their tests. It reports
//
//   - imports that give access to the outside (time, os, net, sync, context, math/rand, ...)
//   - iteration over a map, by range or by package maps
//   - go statements, select, channel types and channel operations
//   - floating-point types, literals and results
//   - functions and foreign interfaces that are stored in structs, containers or variables
//   - package-level variables, except error values, var _ = ..., and tables marked //kvferry:table
//
// A rule cannot be switched off for a line. Code that needs an exception belongs in a driver.
package purity

import (
	"go/ast"
	"go/token"
	"go/types"
	"strconv"
	"strings"

	"golang.org/x/tools/go/analysis"
)

// Analyzer is the pass.
var Analyzer = &analysis.Analyzer{
	Name: "purity",
	Doc:  "report what a pure state machine must not contain",
	Run:  runPass,
}

// tableDirective marks a package-level variable that is initialised in the declaration and never changed.
const tableDirective = "//kvferry:table"

// forbiddenImports lists the imports that are refused, including their sub-packages, with the alternative to each.
var forbiddenImports = []struct{ path, instead string }{
	{"context", "deadlines are state of the machine, there is nothing to cancel outside"},
	{"io", "bytes come in events and leave in effects"},
	{"log", "emit Observe"},
	{"maps", "walk an ordered table beside the map"},
	{"math/rand", "draw from the generator state inside the machine"},
	{"net", "emit an effect"},
	{"os", "emit an effect"},
	{"reflect", "switch over the types"},
	{"runtime", "emit an effect"},
	{"sync", "a machine is single-threaded"},
	{"syscall", "emit an effect"},
	{"time", "time is an argument of Step, an integer of nanoseconds"},
	{"unsafe", "a machine touches no memory but its own"},
}

func runPass(pass *analysis.Pass) (any, error) {
	for _, file := range pass.Files {
		// The main file of a test binary is generated and has a name that does not end in .go.
		name := pass.Fset.File(file.FileStart).Name()
		if strings.HasSuffix(name, "_test.go") || !strings.HasSuffix(name, ".go") {
			continue
		}
		c := checker{pass}
		c.checkImports(file)
		for _, decl := range file.Decls {
			if d, ok := decl.(*ast.GenDecl); ok && d.Tok == token.VAR {
				c.checkPackageVars(d)
			}
		}
		ast.Inspect(file, c.checkNode)
	}
	return nil, nil
}

type checker struct{ pass *analysis.Pass }

func (c checker) checkImports(file *ast.File) {
	for _, spec := range file.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue // The compiler reports the error.
		}
		for _, w := range forbiddenImports {
			if path == w.path || strings.HasPrefix(path, w.path+"/") {
				c.pass.Reportf(spec.Pos(), "import of %s: %s", path, w.instead)
			}
		}
	}
}

// checkPackageVars reports the variables of d that a machine could change, or that could change a machine.
func (c checker) checkPackageVars(d *ast.GenDecl) {
	for _, spec := range d.Specs {
		s := spec.(*ast.ValueSpec)
		if isMarkedTable(d.Doc) || isMarkedTable(s.Doc) {
			continue
		}
		for _, name := range s.Names {
			if name.Name == "_" || types.Identical(c.pass.TypesInfo.TypeOf(name), types.Universe.Lookup("error").Type()) {
				continue
			}
			c.pass.Reportf(name.Pos(), "package-level variable %s: make it a field of the machine, a constant, or mark it %s "+
				"if nothing ever changes it",
				name.Name, tableDirective)
		}
	}
}

func isMarkedTable(doc *ast.CommentGroup) bool {
	if doc == nil {
		return false
	}
	for _, line := range doc.List {
		if line.Text == tableDirective {
			return true
		}
	}
	return false
}

func (c checker) checkNode(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GoStmt:
		c.pass.Reportf(n.Pos(), "go statement: a machine is single-threaded")
	case *ast.SelectStmt:
		c.pass.Reportf(n.Pos(), "select statement: events come to Step one at a time")
	case *ast.ChanType:
		c.pass.Reportf(n.Pos(), "channel type: events come to Step one at a time")
	case *ast.SendStmt:
		c.pass.Reportf(n.Pos(), "channel send: emit an effect")
	case *ast.UnaryExpr:
		if n.Op == token.ARROW {
			c.pass.Reportf(n.Pos(), "channel receive: events come to Step one at a time")
		}
	case *ast.RangeStmt:
		c.checkRange(n)
	case *ast.BasicLit:
		if n.Kind == token.FLOAT || n.Kind == token.IMAG {
			c.pass.Reportf(n.Pos(), "floating-point literal %s: use integers, such as nanoseconds or basis points", n.Value)
		}
	case *ast.Ident:
		if t, ok := c.pass.TypesInfo.Uses[n].(*types.TypeName); ok && t.Pkg() == nil && isFloat(t.Type()) {
			c.pass.Reportf(n.Pos(), "floating-point type %s: use integers, such as nanoseconds or basis points", n.Name)
		}
	case *ast.CallExpr:
		// A conversion is reported at the name of the type.
		if tv := c.pass.TypesInfo.Types[n.Fun]; !tv.IsType() && isFloat(c.pass.TypesInfo.TypeOf(n)) {
			c.pass.Reportf(n.Pos(), "floating-point result: use integers, such as nanoseconds or basis points")
		}
	case *ast.StructType:
		for _, f := range n.Fields.List {
			c.checkStored(f.Type, "field")
		}
	case *ast.ArrayType:
		c.checkStored(n.Elt, "element")
	case *ast.MapType:
		c.checkStored(n.Value, "element")
	}
	return true
}

func (c checker) checkRange(n *ast.RangeStmt) {
	switch {
	case canRangeOver[*types.Map](c.pass.TypesInfo.TypeOf(n.X)):
		c.pass.Reportf(n.Pos(), "range over a map: its order differs from run to run; walk an ordered table beside it")
	case canRangeOver[*types.Chan](c.pass.TypesInfo.TypeOf(n.X)):
		c.pass.Reportf(n.Pos(), "range over a channel: events come to Step one at a time")
	}
}

// checkStored reports a function type or a foreign interface type in a place where only data may be stored, because
// such a value could not be copied, hashed or printed.
func (c checker) checkStored(at ast.Expr, where string) {
	t := c.pass.TypesInfo.TypeOf(at)
	if t == nil {
		return
	}
	switch u := t.Underlying().(type) {
	case *types.Signature:
		c.pass.Reportf(at.Pos(), "%s of function type: keep data, and switch over it", where)
	case *types.Interface:
		if _, isParam := t.(*types.TypeParam); !isParam && !c.ownInterface(t, u) {
			c.pass.Reportf(at.Pos(), "%s of foreign interface type %s: keep values of this module's own types", where, t)
		}
	}
}

// ownInterface reports whether the interface t can hold only types of the package that declares t, because t has an
// unexported method, or whether t is at least declared in the module of the machines.
func (c checker) ownInterface(t types.Type, u *types.Interface) bool {
	for m := range u.Methods() {
		if !m.Exported() {
			return true
		}
	}
	named, ok := types.Unalias(t).(*types.Named)
	if !ok || named.Obj().Pkg() == nil {
		return false
	}
	return modulePath(named.Obj().Pkg().Path()) == modulePath(c.pass.Pkg.Path())
}

// modulePath returns the part of an import path that names the module, as far as this pass needs the module: the first
// three elements of a path that begins with a host, or the first element of any other path.
func modulePath(path string) string {
	parts := strings.Split(path, "/")
	if n := 3; strings.Contains(parts[0], ".") && len(parts) > n {
		return strings.Join(parts[:n], "/")
	} else if strings.Contains(parts[0], ".") {
		return path
	}
	return parts[0]
}

// canRangeOver reports whether a range over a value of type t iterates over a T. For a type parameter, it reports
// whether this is possible.
func canRangeOver[T types.Type](t types.Type) bool {
	if t == nil {
		return false
	}
	if p, ok := t.(*types.TypeParam); ok {
		for e := range p.Constraint().Underlying().(*types.Interface).EmbeddedTypes() {
			if u, ok := e.(*types.Union); ok {
				for term := range u.Terms() {
					if canRangeOver[T](term.Type()) {
						return true
					}
				}
			} else if canRangeOver[T](e) {
				return true
			}
		}
		return false
	}
	_, ok := t.Underlying().(T)
	return ok
}

func isFloat(t types.Type) bool {
	if t == nil {
		return false
	}
	b, ok := t.Underlying().(*types.Basic)
	return ok && b.Info()&(types.IsFloat|types.IsComplex) != 0
}
