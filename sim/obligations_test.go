package sim_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/sim"
	"github.com/kvferry/kvferry/sim/oracle"
)

// Every configured time, limit, quota and share of a machine has an entry in sim/obligations.yaml, which names its judges
// or says what is missing. A field that is added needs an entry.
func TestObligations(t *testing.T) {
	known := knownJudges()
	stated := map[string]bool{}
	for _, o := range sim.Obligations() {
		if stated[o.Field] {
			t.Errorf("%s has two entries", o.Field)
		}
		stated[o.Field] = true
		if len(o.Judges) == 0 && o.Missing == "" && o.None == "" {
			t.Errorf("%s names no judge, and does not say why", o.Field)
		}
		for _, j := range o.Judges {
			if !slices.Contains([]string{"not before", "not after", "at most", "at least", "as stated"}, j.Side) {
				t.Errorf("%s is judged as %q", o.Field, j.Side)
			}
			if !known[j.Check] {
				t.Errorf("%s: there is no check %q", o.Field, j.Check)
			}
		}
	}
	for _, field := range settingsFields(t) {
		if !stated[field] {
			t.Errorf("%s has no entry in sim/obligations.yaml: name the checks that depend on its value, or what is missing", field)
		}
		delete(stated, field)
	}
	for field := range stated {
		t.Errorf("sim/obligations.yaml has an entry for %s, which does not exist", field)
	}
}

// knownJudges returns the names of all checks.
func knownJudges() map[string]bool {
	known := map[string]bool{sim.EveryStep: true}
	for _, c := range oracle.Checks() {
		known[c.String()] = true
	}
	return known
}

// settingsTypes are the names of types whose exported fields are settings of a machine. The parts of a rank's
// configuration have Settings of their own; of the other machines Config is what the driver sets.
var settingsTypes = []string{"Settings", "GrantSettings", "OfferSettings", "ReadSettings", "Tuning", "Limits", "Config"}

// settingsFields returns the settings of all machines, as obligations name them.
func settingsFields(t *testing.T) (all []string) {
	t.Helper()
	visit := func(folder string) {
		err := filepath.WalkDir(filepath.Join("..", folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			at := filepath.ToSlash(strings.TrimPrefix(filepath.Dir(path), ".."+string(filepath.Separator)))
			for _, decl := range file.Decls {
				all = append(all, fieldsOf(at, decl)...)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	visit("fsm")
	visit("effects")
	return all
}

// fieldsOf returns the settings that a declaration in a folder declares.
func fieldsOf(folder string, decl ast.Decl) (all []string) {
	d, ok := decl.(*ast.GenDecl)
	if !ok {
		return nil
	}
	for _, spec := range d.Specs {
		x, ok := spec.(*ast.TypeSpec)
		if !ok || !slices.Contains(settingsTypes, x.Name.Name) {
			continue
		}
		// Within a rank, a Config is made of settings by the rank.
		if x.Name.Name == "Config" && strings.HasPrefix(folder, "fsm/rank/") {
			continue
		}
		structure, ok := x.Type.(*ast.StructType)
		if !ok {
			continue
		}
		for _, field := range structure.Fields.List {
			if part, is := field.Type.(*ast.Ident); is && part.Name == "Tuning" {
				continue // Its fields have entries of their own.
			}
			for _, name := range field.Names {
				if name.IsExported() {
					all = append(all, folder+"."+x.Name.Name+"."+name.Name)
				}
			}
		}
	}
	return all
}
