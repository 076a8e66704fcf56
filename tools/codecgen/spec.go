package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// A message is a declared map: a message with a tag, a message behind a prefix, or a map inside a message.
type declaredMap struct {
	goName   string
	wireName string
	title    string     // of a nested map, in text for people
	fields   []field    // in wire order, with the fields of embedded and inlined structs, without the extension
	ext      *extension // the extension, nil if the message has none

	tagged   bool
	json     bool   // the message may arrive as JSON
	given    bool   // the message has a method that reports which fields are set
	nested   bool   // a map inside a message
	prefix   string // the constant with the bytes before the map, or ""
	validate bool   // the struct has a method validate
}

// A part is an extension: a struct whose fields follow the fields of a message. The first field announces the others.
type extension struct {
	goName   string
	byHand   bool // the codec of the message is written by hand and needs the names of the fields
	fields   []field
	validate bool
}

// A field is an entry of a map on the wire.
type field struct {
	wire     string   // name on the wire
	path     string   // of the Go field, from the struct: "Stamps.ClockNS"
	goType   string   // as it is written in the struct
	array    []string // the paths of several Go fields that make one array on the wire
	group    string   // the path of a struct that is present as a whole or not at all: "Layout"
	kind     kind
	optional bool   // may be absent
	omitZero bool   // is not written when it is zero
	flag     string // name of the bool that says whether the field is on the wire
	setsFlag bool   // the field's presence sets that bool
	nilFlag  string // the zero value is written as nil; if this is a path, it names the bool that is false for nil
	promoted bool   // the Go field belongs to an embedded struct
	initial  string // the value of an absent field, if not zero
	length   string // the wire name of the list that has the same length
	orEmpty  bool   // or the list is empty
}

// A spec is the description of all messages that the structs of a package give.
type spec struct {
	messages []*declaredMap
	parts    []*extension
	byHand   []handWritten
	structs  map[string]*ast.StructType
	aliases  map[string]string // type HeartbeatMsg RegisterMsg
	methods  map[string]bool   // "EngineCall.validate"
}

// A handWritten is a tag of a message with a codec that is written by hand.
type handWritten struct{ tag, wireName, schema, value string }

// directive is the start of the comments that mark structs as messages.
const directive = "//wire:"

// parseFolder parses the files of a package in the order of their names, except tests and the generated file.
func parseFolder(fset *token.FileSet, folder string) (files []*ast.File, err error) {
	names, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") || filepath.Base(name) == output {
			continue
		}
		file, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	return files, nil
}

// readSpec reads the structs of the package in a folder.
func readSpec(folder string) (*spec, error) {
	fset := token.NewFileSet()
	s := &spec{structs: map[string]*ast.StructType{}, aliases: map[string]string{}, methods: map[string]bool{}}
	files, err := parseFolder(fset, folder)
	if err != nil {
		return nil, err
	}
	type marked struct {
		name string
		doc  *ast.CommentGroup
	}
	var all []marked
	for _, file := range files {
		for _, decl := range file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Recv != nil {
					s.methods[strings.TrimPrefix(typeSource(d.Recv.List[0].Type), "*")+"."+d.Name.Name] = true
				}
			case *ast.GenDecl:
				for _, x := range d.Specs {
					t, ok := x.(*ast.TypeSpec)
					if !ok {
						continue
					}
					switch under := t.Type.(type) {
					case *ast.StructType:
						s.structs[t.Name.Name] = under
					case *ast.Ident:
						s.aliases[t.Name.Name] = under.Name
					}
					doc := t.Doc
					if doc == nil {
						doc = d.Doc
					}
					all = append(all, marked{t.Name.Name, doc})
				}
			}
		}
	}
	for _, m := range all {
		if m.doc == nil {
			continue
		}
		for _, line := range m.doc.List {
			if !strings.HasPrefix(line.Text, directive) {
				continue
			}
			if err := s.addDirective(m.name, strings.TrimPrefix(line.Text, directive)); err != nil {
				return nil, fmt.Errorf("%s: %s: %w", filepath.Base(fset.Position(line.Pos()).String()), m.name, err)
			}
		}
	}
	return s, nil
}

// addDirective reads a directive above a type.
func (s *spec) addDirective(name, text string) error {
	words := strings.Fields(text)
	if words[0] == "tag" { // //wire:tag TagX Name schema value...
		if len(words) < 5 {
			return fmt.Errorf("want a tag, a name, a schema and a value, found %q", text)
		}
		s.byHand = append(s.byHand, handWritten{words[1], words[2], words[3], strings.Join(words[4:], " ")})
		return nil
	}
	if words[0] == "part" {
		p, err := s.partOf(name)
		if err == nil {
			p.byHand = true
		}
		return err
	}
	m := &declaredMap{goName: name, wireName: name, validate: s.methods[name+".validate"]}
	switch words[0] {
	case "message":
		m.tagged = true
	case "untagged":
	case "map":
		m.nested = true
	default:
		return fmt.Errorf("no directive %q", words[0])
	}
	for _, word := range words[1:] {
		option, value, _ := strings.Cut(word, "=")
		switch option {
		case "json":
			m.json = true
		case "given":
			m.given = true
		case "prefix":
			m.prefix = value
		case "name":
			m.wireName = value
		case "title":
			m.title = strings.ReplaceAll(value, "_", " ")
		default:
			return fmt.Errorf("no option %q", option)
		}
	}
	s.messages = append(s.messages, m)
	err := s.addFields(name, "", "", func(f field) { m.fields = append(m.fields, f) }, func(ext string) (err error) {
		m.ext, err = s.partOf(ext)
		return err
	})
	if err != nil {
		return err
	}
	return s.checkMessage(m)
}

// checkMessage returns an error if a message has two fields of one wire name, or if a tag refers to a field or a flag
// that does not exist.
func (s *spec) checkMessage(m *declaredMap) error {
	seen := map[string]bool{}
	all := m.allFields()
	for _, f := range all {
		if seen[f.wire] {
			return fmt.Errorf("%s has two fields %s", m.goName, f.wire)
		}
		seen[f.wire] = true
		if f.length != "" && !slices.ContainsFunc(all, func(o field) bool { return o.wire == f.length }) {
			return fmt.Errorf("%s is as long as %s, which is no field", f.wire, f.length)
		}
		if f.flag != "" && !s.hasFlag(m.goName, f.flag) {
			return fmt.Errorf("%s has no flag %s", m.goName, f.flag)
		}
	}
	return nil
}

// hasFlag reports whether a struct has a bool of this name.
func (s *spec) hasFlag(name, flag string) bool {
	for _, f := range s.structs[name].Fields.List {
		for _, n := range f.Names {
			if n.Name == flag {
				return typeSource(f.Type) == "bool"
			}
		}
	}
	return false
}

// partOf returns the extension with the given name, and adds it to the spec if it is new.
func (s *spec) partOf(name string) (*extension, error) {
	for _, p := range s.parts {
		if p.goName == name {
			return p, nil
		}
	}
	p := &extension{goName: name, validate: s.methods[name+".validate"]}
	s.parts = append(s.parts, p)
	return p, s.addFields(name, "", "", func(f field) { p.fields = append(p.fields, f) }, func(string) error {
		return fmt.Errorf("%s is an extension and has one", name)
	})
}

// addFields calls add for each field of a struct, in order, and ext for the type of the struct's extension.
func (s *spec) addFields(name, path, with string, add func(field), ext func(string) error) error {
	for s.aliases[name] != "" {
		name = s.aliases[name]
	}
	st := s.structs[name]
	if st == nil {
		return fmt.Errorf("%s is no struct", name)
	}
	for _, f := range st.Fields.List {
		goType := typeSource(f.Type)
		var names []string
		for _, n := range f.Names {
			names = append(names, path+n.Name)
		}
		embedded := f.Names == nil
		if embedded {
			names = []string{path + goType}
		}
		text := ""
		if f.Tag != nil {
			raw, err := strconv.Unquote(f.Tag.Value)
			if err != nil {
				return err
			}
			text = reflect.StructTag(raw).Get("wire")
		}
		switch text {
		case "":
			return fmt.Errorf("%s.%s has no wire tag; one that is not on the wire has wire:\"-\"", name, names[0])
		case "-":
			continue
		}
		wires, options, _ := strings.Cut(text, ",")
		common := field{goType: goType, flag: with, setsFlag: with != ""}
		inline, isExt, as, err := common.parseOptions(path, options)
		if err != nil {
			return fmt.Errorf("%s.%s: %w", name, names[0], err)
		}
		switch wire := strings.Fields(wires); {
		case isExt:
			if err := ext(goType); err != nil {
				return err
			}
		case inline:
			inner := names[0] + "."
			if embedded {
				inner = path
			}
			promote := func(f field) {
				f.promoted = f.promoted || embedded
				add(f)
			}
			if err := s.addFields(goType, inner, common.flag, promote, ext); err != nil {
				return err
			}
		case len(wire) > 1 && len(names) == 1: // A struct of several fields that are present together.
			i := 0
			for _, part := range s.structs[goType].Fields.List {
				for _, n := range part.Names {
					one := common
					one.wire, one.path, one.goType, one.group = wire[i], names[0]+"."+n.Name, typeSource(part.Type), names[0]
					if one.kind, err = kindOf(one.goType, ""); err != nil {
						return fmt.Errorf("%s.%s: %w", name, one.path, err)
					}
					add(one)
					i++
				}
			}
		default:
			if common.kind, err = s.kindOf(goType, as); err != nil {
				return fmt.Errorf("%s.%s: %w", name, names[0], err)
			}
			if len(wire) == 1 && len(names) > 1 {
				common.array = names
				names = names[:1]
			}
			for i, n := range names {
				one := common
				one.wire, one.path = wire[i], n
				if with != "" {
					one.omitZero = false
				}
				add(one)
			}
		}
	}
	return nil
}

// parseOptions reads the options after the wire name in a tag.
func (f *field) parseOptions(path, text string) (inline, ext bool, as string, err error) {
	for option := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(option, "=")
		switch name {
		case "":
		case "inline":
			inline = true
		case "ext":
			ext = true
		case "optional":
			f.optional = true
		case "omitzero":
			f.optional, f.omitZero = true, true
		case "with":
			f.optional, f.flag = true, path+value
			f.setsFlag = !f.omitZero
		case "nil":
			f.nilFlag = "nil"
			if value != "" {
				f.nilFlag = path + value
			}
		case "default":
			f.optional, f.initial = true, value
		case "len":
			f.length, f.orEmpty = strings.CutSuffix(value, "|0")
		case "as", "bin", "max":
			as = option
		default:
			return false, false, "", fmt.Errorf("no option %q", name)
		}
	}
	return inline, ext, as, nil
}

// typeSource returns the Go source of a type expression.
func typeSource(x ast.Expr) string {
	switch t := x.(type) {
	case *ast.Ident:
		return t.Name
	case *ast.StarExpr:
		return "*" + typeSource(t.X)
	case *ast.ArrayType:
		if t.Len == nil {
			return "[]" + typeSource(t.Elt)
		}
		return "[" + t.Len.(*ast.BasicLit).Value + "]" + typeSource(t.Elt)
	case *ast.StructType:
		return "struct{}"
	}
	return fmt.Sprintf("%T", x)
}
