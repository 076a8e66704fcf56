package sim

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/sim/oracle"
)

// checkActivity reports the checks that judged nothing in a profile although testdata/activity.txt expects them to
// judge.
func checkActivity(t *testing.T, profile string, c *Coverage) {
	t.Helper()
	idle := idleChecks(t, profile)
	judged := c.Counts("judged")
	for _, c := range oracle.Checks() {
		if judged[c.String()] == 0 && !slices.Contains(idle, c.String()) {
			t.Errorf("%q judged nothing in profile %s: is it still called, or void everywhere? %s", c, profile,
				"If there is nothing to judge, say so in testdata/activity.txt")
		}
	}
}

// idleChecks returns the checks that need not judge in a profile.
func idleChecks(t *testing.T, profile string) (idle []string) {
	t.Helper()
	text, err := os.ReadFile("testdata/activity.txt")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range oracle.Checks() {
		names = append(names, c.String())
	}
	alone := false
	out, kept, mine := false, []string{}, false // kept lists the checks that must judge in a profile with the rule "alone"
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		name, inside := strings.CutPrefix(line, "\t")
		word, rest, _ := strings.Cut(line, " ")
		profiles, why, _ := strings.Cut(rest, " -- ")
		switch {
		case line == "" || word == "#":
		case inside && !slices.Contains(names, name):
			t.Fatalf("testdata/activity.txt: nothing is called %q", name)
		case inside && mine:
			kept = append(kept, name)
		case inside && out:
			idle = append(idle, name)
		case inside:
		case why == "" || word != "only" && word != "not" && word != "alone":
			t.Fatalf("testdata/activity.txt: %q: want only, not or alone, profiles, and -- why", line)
		default:
			named := slices.Contains(strings.Split(profiles, ", "), profile)
			mine, out = named && word != "not", word != "alone" && named == (word == "not")
			alone = alone || named && word == "alone"
		}
	}
	if !alone {
		return idle
	}
	return slices.DeleteFunc(names, func(name string) bool { return slices.Contains(kept, name) })
}

// Code that fails a check also counts how often the check judged, so that for every check that can fail the number of
// judgements is known.
func TestFailingChecksCount(t *testing.T) {
	var files []string
	for _, pattern := range []string{"*.go", "*/*.go", "systems/*/*.go", "systems/*/*/*.go"} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, names...)
	}
	fails, counted := map[string]bool{}, map[string]bool{} // By folder.
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		checksInCalls(file, []string{"countJudged", "CountJudged", "countChecks"}, func(arg string) { counted[filepath.Dir(name)+arg] = true })
		checksInCalls(file, []string{"fail", "Fail", "FailCheck"}, func(arg string) { fails[filepath.Dir(name)+arg] = true })
	}
	for check := range fails {
		if !counted[check] {
			t.Errorf("%s can fail, and nobody counts that it judged", check)
		}
	}
	ofOracles := 0 // The oracles of systems fail by their own names, such as "directory: holders".
	for _, c := range oracle.Checks() {
		if strings.HasSuffix(c.Property(), ":") {
			ofOracles++
		}
	}
	if len(fails)+ofOracles != len(oracle.Checks()) {
		t.Errorf("%d checks can fail, and %d oracles of systems; there are %d checks", len(fails), ofOracles, len(oracle.Checks()))
	}
}

// checksInCalls visits the checks among the arguments of calls of the given methods.
func checksInCalls(file *ast.File, methods []string, found func(check string)) {
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if name, ok := call.Fun.(*ast.SelectorExpr); !ok || !slices.Contains(methods, name.Sel.Name) {
			return true
		}
		for _, a := range call.Args {
			checksIn(a, found)
			if chosen, ok := a.(*ast.CallExpr); ok { // A function of the file chooses the check.
				checksOfFunc(file, chosen.Fun, found)
			}
		}
		return true
	})
}

// checksOfFunc visits the checks that a function of the file mentions.
func checksOfFunc(file *ast.File, name ast.Expr, found func(check string)) {
	for _, d := range file.Decls {
		id, named := name.(*ast.Ident)
		if f, ok := d.(*ast.FuncDecl); ok && named && f.Name.Name == id.Name {
			checksIn(f.Body, found)
		}
	}
}

// checksIn visits the checks that a part of a file mentions.
func checksIn(part ast.Node, found func(check string)) {
	ast.Inspect(part, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && strings.HasPrefix(id.Name, "check") {
			found(id.Name)
		}
		return true
	})
}
