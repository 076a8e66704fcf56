package table

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// program has a function for each form that a switch must be able to call.
const program = `package main

import "fmt"

type counter[T any] struct{ n int }

func (c *counter[T]) add(n int, _ T) { c.n += n }

func (counter[T]) name() string { return "counter" }

func sum(_ string, numbers ...int) (total int) {
	for _, n := range numbers {
		total += n
	}
	return total
}

func first[K comparable, V any](m map[K]V, key K) V { return m[key] }

func both(int, string) (int, error) { return 1, nil }

const limit = 5

func main() {
	c := &counter[string]{}
	c.add(2, "")
	n, err := both(0, "")
	fmt.Println(c.n, c.name(), sum("", 1, 2, 3), first(map[string]int{"a": 1}, "a"), n, err, limit)
}
`

// A combined build runs the mutant that the environment names, and the code without defects otherwise.
func TestCombine(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module example\n\ngo 1.26\n", "p/main.go": program} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	edit := func(in, old, new string) Edit { return Edit{In: "p." + in, Old: old, New: new} }
	mutants := []Mutant{
		{Name: "add-twice", Edits: []Edit{edit("(*counter).add", "c.n += n", "c.n += n + n")}},
		{Name: "add-nothing", Edits: []Edit{edit("(*counter).add", "c.n += n", "c.n += 0")}},
		{Name: "other-name", Edits: []Edit{edit("counter.name", `"counter"`, `"other"`)}},
		{Name: "two-places", Edits: []Edit{edit("sum", "total += n", "total -= n"), edit("first", "return m[key]", "var zero V\nreturn zero")}},
		{Name: "both-fail", Edits: []Edit{{In: "p.both", Old: "nil", New: "errors.New(\"no\")", Import: []string{"errors"}}}},
		{Name: "constant", Edits: []Edit{edit("limit", "5", "6")}},
		{Name: "stale", Edits: []Edit{edit("sum", "total *= n", "total = 0")}},
	}
	want := map[string]string{
		"": "2 counter 6 1 1 <nil> 5", "add-twice": "4 counter 6 1 1 <nil> 5", "add-nothing": "0 counter 6 1 1 <nil> 5",
		"other-name": "2 other 6 1 1 <nil> 5", "two-places": "2 counter -6 0 1 <nil> 5", "both-fail": "2 counter 6 1 1 no 5",
	}
	files, numbers, err := Combine(dir, mutants)
	if err != nil {
		t.Fatal(err)
	}
	numbers[""] = 0
	if got := slices.Sorted(maps.Keys(numbers)); !slices.Equal(got, slices.Sorted(maps.Keys(want))) {
		t.Errorf("numbered are %q", got)
	}
	overlay, err := WriteOverlay(t.TempDir(), dir, files)
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(t.TempDir(), "p")
	build := exec.Command("go", "build", "-overlay", overlay, "-o", binary, "./p")
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for name, number := range numbers {
		run := exec.Command(binary)
		run.Env = append(os.Environ(), ActiveVariable+"="+string(rune('0'+number)))
		if out, err := run.CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != want[name] {
			t.Errorf("%q: %s, %v; want %s", name, out, err, want[name])
		}
	}
}
