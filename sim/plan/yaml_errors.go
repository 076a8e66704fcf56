package plan

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// The errors of the YAML library name types of Go. A plan is written by hand, so errors are rewritten here to name the
// fields of the plan.

var (
	unknownField = regexp.MustCompile(`field (.+) not found in type (\S+)$`)
	wrongType    = regexp.MustCompile("cannot construct !!\\S+ (?:`(.*)` )?into (\\S+)$")
)

// explainYAML returns the errors of the YAML library in terms of the plan: the line, the field, the value and what is
// allowed.
func explainYAML(text []byte, err error) error {
	var all *yaml.LoadErrors
	if len(strings.TrimSpace(string(text))) == 0 {
		return errors.New("the plan is empty: a plan begins with version: 1")
	}
	if !errors.As(err, &all) {
		return err
	}
	fields := fieldNamesAt(text)
	var lines []string
	for _, e := range all.Errors {
		message := e.Message
		if inner := e.Unwrap(); inner != nil {
			message = inner.Error()
		}
		if m := unknownField.FindStringSubmatch(message); m != nil {
			message = fmt.Sprintf("%s is not a field there: the fields are %s", m[1], strings.Join(fieldsOf(m[2]), ", "))
		} else if m := wrongType.FindStringSubmatch(message); m != nil {
			name := fields[[2]int{e.Mark.Line, e.Mark.Column}]
			message = fmt.Sprintf("%s is %s: give %s", name, m[1], describeType(m[2]))
			last := name[strings.LastIndexByte(name, '.')+1:]
			switch {
			case m[2] == "bool" && !slices.Contains(fieldsOf(""), last): // Flags of flows are also fields, and are boolean.
				message = fmt.Sprintf("%s is neither a field nor a flow's flag (true or false) there", name)
			case m[1] == "":
				message = fmt.Sprintf("%s has the wrong type: use %s", name, describeType(m[2]))
			}
		}
		lines = append(lines, fmt.Sprintf("line %d: %s", e.Mark.Line, message))
	}
	return errors.New(strings.Join(lines, "; "))
}

// describeType describes the values of a Go type in a plan.
func describeType(typ string) string {
	switch {
	case typ == "time.Duration":
		return "a duration, such as 1.5s or 200ms"
	case typ == "bool":
		return "true or false"
	case strings.HasPrefix(typ, "uint"):
		return "a whole number from 0 on that fits the field"
	case strings.HasPrefix(typ, "int"):
		return "a whole number"
	case typ == "string":
		return "text"
	case strings.HasPrefix(typ, "[]"):
		return "a list"
	case strings.HasPrefix(typ, "map["):
		return "names with values"
	}
	return "its fields"
}

// fieldNamesAt returns the names of the fields by the line and column of their values.
func fieldNamesAt(text []byte) map[[2]int]string {
	at := map[[2]int]string{}
	var root yaml.Node
	if yaml.Load(text, &root) != nil {
		return at
	}
	var walk func(n *yaml.Node, name string)
	walk = func(n *yaml.Node, name string) {
		at[[2]int{n.Line, n.Column}] = name
		for i, c := range n.Content {
			switch {
			case n.Kind != yaml.MappingNode:
				walk(c, name)
			case i%2 == 1:
				walk(c, strings.TrimPrefix(name+"."+n.Content[i-1].Value, "."))
			}
		}
	}
	walk(&root, "")
	return at
}

// fieldsOf returns the fields that a part of a plan may have, given the Go name of the part's type. The empty name
// selects the fields of all parts.
func fieldsOf(name string) (fields []string) {
	seen := map[reflect.Type]bool{}
	var walk func(t reflect.Type)
	walk = func(t reflect.Type) {
		for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct || seen[t] {
			return
		}
		seen[t] = true
		for i := range t.NumField() {
			f := t.Field(i)
			tag, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
			if (t.String() == name || name == "") && f.IsExported() && tag != "-" {
				if tag == "" {
					tag = strings.ToLower(f.Name)
				}
				fields = append(fields, tag)
			}
			walk(f.Type)
		}
	}
	walk(reflect.TypeFor[Plan]())
	slices.Sort(fields)
	return fields
}
