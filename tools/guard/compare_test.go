package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFiguresAreCounted(t *testing.T) {
	kept := filepath.Join("..", "..", figuresFile)
	rows, err := readFigures(kept, 50)
	if err != nil || len(rows) < 2 {
		t.Fatalf("got %v, %v", rows, err)
	}
	var out bytes.Buffer
	if differ, err := compareFigures(&out, rows); err != nil || differ != 0 {
		t.Errorf("%d differ, %v\n%s", differ, err, &out)
	}
	rows[1].States--
	if differ, err := compareFigures(&out, rows); err != nil || differ != 1 ||
		!strings.Contains(out.String(), "and not "+rows[1].String()) {
		t.Errorf("%d differ, %v\n%s", differ, err, &out)
	}
	rows[1].Scope = "none"
	if _, err := compareFigures(&out, rows); err == nil {
		t.Error("a scope that there is not was counted")
	}
	path := filepath.Join(t.TempDir(), "scopes.txt")
	for _, bad := range []string{"", "push 1 2 3", "push 1 2 3 x", "push 1 9999 3 4"} {
		if err := os.WriteFile(path, []byte(bad+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if rows, err := readFigures(path, 50); err == nil {
			t.Errorf("%q was read as %v", bad, rows)
		}
	}
}

func TestCountsAreComparedByTodaysNames(t *testing.T) {
	renames, err := parseRenames("# words\n\nloan => lease\nsender's put => push\n")
	if err != nil {
		t.Fatal(err)
	}
	before := countsOf([]string{"3 swarm: mark loan taken", "2 swarm: loans", "4 swarm: step sender's put moving", ""},
		renames)
	now := countsOf([]string{"3 swarm: mark lease taken", "2 swarm: loans", "4 swarm: step push moving"}, nil)
	var out bytes.Buffer
	if n := compareCounts(&out, before, now); n != 0 {
		t.Errorf("%d differ\n%s", n, &out)
	}
	now["swarm: loans"], now["full: new"] = 1, 5
	if n := compareCounts(&out, before, now); n != 2 ||
		out.String() != "differs: full: new: 5 times, and 0 before\ndiffers: swarm: loans: 1 times, and 2 before\n" {
		t.Errorf("%d differ\n%s", n, &out)
	}
	for _, bad := range []string{"old new", "=> new", "old =>"} {
		if _, err := parseRenames(bad); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
	if _, err := os.Stat(filepath.Base(namesFile)); err != nil {
		t.Error(err)
	}
}

func TestBenchmarksAreRead(t *testing.T) {
	before, now := samples{}, samples{}
	for _, steps := range []string{"100", "120", "900"} {
		before.add("goos: linux\nBenchmarkSteps-2   \t 100\t " + steps + " steps/s\nPASS\n")
		now.add("BenchmarkSteps-2 100 450 steps/s\nBenchmarkPush1 5 7 ns/op 0 allocs/op\n")
	}
	var out bytes.Buffer
	printSpeed(&out, "abc", before, now)
	want := "Steps steps/s                 900.0          450.0  -50.0 %\n"
	if got := out.String(); !strings.HasSuffix(got, want) {
		t.Errorf("got\n%s", got)
	}
	if b := best("Push ns/step", []float64{4, 1, 3, 2}); b != 1 {
		t.Errorf("the best is %v", b)
	}
	if _, ok := now["Push1 ns/op"]; ok || len(now["Push1 allocs/op"]) != 3 {
		t.Errorf("%v was read", now)
	}
}
