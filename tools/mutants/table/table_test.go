package table

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// write writes a file and creates the folders above it.
func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

const pool = `package memory

import (
	"fmt"
	"slices"
)

// A Pool is pages.
type Pool[T any] struct {
	stack []int // of free pages
	most  int
}

const (
	small = 1
	large = 2
)

// Free gives a page back.
func (p *Pool[T]) Free(i int) {
	// Nobody may hold it.
	if p.held(i) > 0 && // neither here
		p.most > 0 { // nor there
		return
	}
	p.stack = append(p.stack, i)
	fmt.Println(small, large,
		i,
	)
}

// Sort sorts.
func (p *Pool[T]) Sort() { slices.Sort(p.stack) }

func (p Pool[T]) held(i int) int { return i }
`

func TestApply(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "fsm", "memory", "pool.go"), pool)
	write(t, filepath.Join(root, "fsm", "memory", "pool_test.go"), "package memory\n\nfunc (p *Pool[T]) Free(i int) {}\n")
	const at = "fsm/memory."
	for _, c := range []struct {
		name  string
		edits []Edit
		want  []string // pairs of replaced text and replacement in pool.go
		err   string
	}{
		{"comments and line breaks do not matter", []Edit{
			{In: at + "(*Pool).Free", Old: "if p.held(i) > 0 && p.most > 0", New: "if p.held(i) > 9"},
			{In: at + "(*Pool).Free", Old: "small, large, i)", New: "i)"},
		}, []string{"if p.held(i) > 0 && // neither here\n\t\tp.most > 0 { // nor there", "if p.held(i) > 9 { // nor there",
			"small, large,\n\t\ti,\n\t", "i"}, ""},
		{"a comma that a line break would need", []Edit{
			{In: at + "(*Pool).Free", Old: "append(\np.stack,\ni,\n)", New: "nil"},
		}, []string{"append(p.stack, i)", "nil"}, ""},
		{"fields and constants", []Edit{
			{In: at + "Pool", Old: "most int", New: "most uint8"}, {In: at + "large", Old: "large = 2", New: "large = 3"},
		}, []string{"most  int", "most  uint8", "large = 2", "large = 3"}, ""},
		{"an import that is no longer used", []Edit{{In: at + "(*Pool).Sort", Drop: true}},
			[]string{"import (\n\t\"fmt\"\n\t\"slices\"\n)", "import (\n\t\"fmt\"\n)",
				"// Sort sorts.\nfunc (p *Pool[T]) Sort() { slices.Sort(p.stack) }\n\n", ""}, ""},
		{"a new declaration, with its import", []Edit{
			{In: at + "Pool", Add: "func now() string { return os.Getenv(\"x\") }", Import: []string{"os"}},
		}, []string{"\t\"slices\"", "\t\"os\"\n\t\"slices\"", "int { return i }\n",
			"int { return i }\n\nfunc now() string { return os.Getenv(\"x\") }\n"}, ""},

		{"twice", []Edit{{In: at + "(*Pool).Free", Old: "> 0"}}, nil, "old occurs 2 times, not once"},
		{"not there", []Edit{{In: at + "(*Pool).Free", Old: "> 1"}}, nil, "old occurs 0 times, not once"},
		{"part of a token", []Edit{{In: at + "(*Pool).Free", Old: "pp"}}, nil, "old occurs 0 times, not once"},
		{"on top of another", []Edit{{In: at + "(*Pool).Free", Old: "p.held(i) > 0"}, {In: at + "(*Pool).Free", Old: "0 &&"}},
			nil, "two edits change the same tokens"},
		{"no such method", []Edit{{In: at + "Pool.Free", Drop: true}}, nil, "declared 0 times"},
		{"no such package", []Edit{{In: "fsm/store.New", Drop: true}}, nil, "declared 0 times"},
		{"no name", []Edit{{In: "fsm/memory", Drop: true}}, nil, "does not name a declaration"},
		{"not Go", []Edit{{In: at + "large", Old: "= 2", New: "= ="}}, nil, "expected operand"},
	} {
		m := Mutant{Edits: c.edits}
		files, err := m.Apply(root)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: got %v, want an error that says %q", c.name, err, c.err)
			}
			continue
		}
		want := strings.NewReplacer(c.want...).Replace(pool)
		if got := string(files["fsm/memory/pool.go"]); err != nil || got != want || len(files) != 1 {
			t.Errorf("%s: %v, got\n%s\nwant\n%s", c.name, err, got, want)
		}
	}
}

const two = `# A comment.
- name: a
  what: 'A: breaks.'
  property: [S1, S2]
  like: rule M1.
  edits:
    - in: fsm/memory.large
      old: = 2
- name: a-b
  what: >-
    B
    breaks.
  like: rule M2.
  scope: push
  found: 7 choices
  edits:
    - in: fsm/memory.large
      drop: true
`

func TestRecord(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mutants.yaml")
	write(t, path, two)
	for name, found := range map[string]Found{
		"a": {By: "seed", Seed: 3, Failing: 4, Of: 2000}, "a-b": {By: "choices", Choices: 8},
	} {
		if err := RecordFound(path, name, found); err != nil {
			t.Fatal(err)
		}
	}
	want := strings.NewReplacer("7 choices", "8 choices", "rule M1.\n", "rule M1.\n  found: seed 3, 4 of 2000 fail\n").
		Replace(two)
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("%v, got\n%s", err, got)
	}
	all, err := Read(path)
	if err != nil || len(all) != 2 || all[0].Found.Seed != 3 || all[1].Found.Choices != 8 || all[1].What != "B breaks." ||
		len(all[0].Properties) != 2 {
		t.Errorf("%v, got %+v", err, all)
	}
	if err := RecordFound(path, "b", Found{By: "plan"}); err == nil {
		t.Error("how an unknown mutant was found was recorded")
	}
}

func TestReadRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mutants.yaml")
	for _, c := range []struct{ old, new, want string }{
		{"  like: rule M1.\n", "", "like is empty"},
		{"what: 'A: breaks.'", "what: ''", "what is empty"},
		{"- name: a\n", "- name: b\n", "sort the table"},
		{"- name: a\n", "- name: A\n", "a name consists of"},
		{"drop: true", "drop: true\n      new: x", "new without old"},
		{"drop: true", "drop: true\n      add: x", "exactly one of"},
		{"drop: true", "new: x", "exactly one of"},
		{"7 choices", "somehow", "found is \"somehow\""},
		{"scope: push", "plan: lost", "plan is \"lost\""},
		{"scope: push", "scop: push", "scop"},
		{"    - in: fsm/memory.large\n      drop: true\n", "    []\n", "edits is empty"},
	} {
		write(t, path, strings.Replace(two, c.old, c.new, 1))
		if _, err := Read(path); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: got %v, want an error that says %q", c.new, err, c.want)
		}
	}
	if _, err := Read(path + ".none"); !os.IsNotExist(err) {
		t.Errorf("got %v", err)
	}
}
