package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kvferry/kvferry/tools/mutants/table"
)

// simulated is a command that reports a breach of S4 if its constant has a wrong value.
const simulated = `package main

import (
	"fmt"
	"os"
)

const quarantine = 1

func main() {
	if quarantine == 1 {
		fmt.Println("clean")
		return
	}
	if os.Args[2] == "replay" {
		fmt.Println("S4 broken: a free page was written")
		os.Exit(1)
	}
	if os.Args[2] == "explore" {
		fmt.Println("S4 broken after 7 choices: a free page was written")
		os.Exit(1)
	}
	fmt.Println("3 of 5 seeds failed; the first is seed 2:\n\nS4 broken: a free page was written")
	os.Exit(1)
}
`

// tested is a test of package quarantine that fails if its constant has a wrong value.
const tested = `package quarantine

import "testing"

func TestLock(t *testing.T) {
	if Time != 1 {
		t.Error(Time)
	}
}
`

// entry returns an entry of a table whose defect changes a constant from 1 to another value.
func entry(name, more, constant, value string) string {
	return "- name: " + name + "\n  what: no quarantine.\n  like: a rule.\n" + more +
		"  edits:\n    - in: " + constant + "\n      old: = 1\n      new: = " + value + "\n"
}

// project creates a work tree with the files and a table, and changes into it. It returns the table's mutants.
func project(t *testing.T, files map[string]string, entries ...string) []table.Mutant {
	t.Helper()
	t.Chdir(t.TempDir())
	write(t, "go.mod", "module example\n\ngo 1.26\n")
	for name, text := range files {
		write(t, name, text)
	}
	write(t, "mutants.yaml", strings.Join(entries, ""))
	mutants, err := selectMutants("mutants.yaml", ".")
	if err != nil {
		t.Fatal(err)
	}
	return mutants
}

// write writes a file and creates the folders above it.
func write(t *testing.T, name, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
}

// saysOf checks that the lines about each mutant contain a text.
func saysOf(t *testing.T, out string, want map[string]string) {
	t.Helper()
	for name, text := range want {
		if _, after, ok := strings.Cut("\n"+out, " "+name+" "); !ok || !strings.Contains(after, text) {
			t.Errorf("%s: want %q in\n%s", name, text, out)
		}
	}
}

func testOptions() options {
	return options{table: "mutants.yaml", plans: "plans", timeout: 10 * time.Minute, record: true}
}

func TestHunt(t *testing.T) {
	const command, constant = "cmd/kvferry", "cmd/kvferry.quarantine"
	mutants := project(t, map[string]string{
		command + "/main.go": simulated, "fsm/quarantine/q.go": "package quarantine\n\nconst Time = 1\n",
		"fsm/quarantine/q_test.go": tested,
	},
		entry("broken", "", constant, "zero"),
		entry("explored", "  scope: push\n  property: [S4]\n", constant, "0"),
		entry("found", "  property: [S4]\n  found: seed 9, 1 of 5 fail\n", constant, "0"),
		entry("other", "  property: [S40]\n", constant, "0"),
		entry("outgrown", "  plan: kept\n", constant, "1 * 1"),
		entry("planned", "  plan: kept\n  property: [S4]\n", constant, "0"),
		strings.ReplaceAll(entry("stale", "", constant, "0"), "old: =", "old: grace ="),
		entry("survivor", "", constant, "1 * 1"),
		entry("tested", "  test: TestLock of fsm/quarantine\n  property: [TestLock]\n", "fsm/quarantine.Time", "0"),
	)
	var out bytes.Buffer
	finds, failed, err := huntMutants(context.Background(), &out, mutants, 5, testOptions())
	if err != nil || len(finds) != 4 || failed != 5 {
		t.Fatalf("got %d passed, %d failed, %v\n%s", len(finds), failed, err, &out)
	}
	saysOf(t, out.String(), map[string]string{
		"broken": "does not compile", "explored": "7 choices", "found": "seed 2, 3 of 5 fail", "planned": "plan",
		"other": "not a breach of S40", "outgrown": "its kept plan is stale", "stale": "old occurs 0 times",
		"survivor": "5 seeds found nothing", "tested": "test",
	})
	recorded, err := table.Read("mutants.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range recorded {
		want := map[string]string{"explored": "7 choices", "found": "seed 2, 3 of 5 fail", "planned": "plan", "tested": "test"}
		if got := m.Found; got == nil && want[m.Name] != "" || got != nil && got.String() != want[m.Name] {
			t.Errorf("recorded of %s: %v", m.Name, got)
		}
	}
	if text, _ := os.ReadFile(command + "/main.go"); string(text) != simulated {
		t.Errorf("the work tree was changed:\n%s", text)
	}

	t.Log("# a simulator that is never clean finds everything, and so nothing")
	write(t, "cmd/kvferry/main.go", strings.Replace(simulated, "quarantine = 1", "quarantine = 2", 1))
	if _, _, err := huntMutants(context.Background(), &out, mutants, 5, testOptions()); err == nil ||
		!strings.Contains(err.Error(), "without any defect") {
		t.Errorf("got %v", err)
	}
}

func TestWriteOverlay(t *testing.T) {
	const command, constant = "cmd/kvferry", "cmd/kvferry.quarantine"
	mutants := project(t, map[string]string{command + "/main.go": simulated},
		entry("a", "", constant, "0"), entry("b", "", constant, "2"))
	if err := writeOverlay("both", mutants); err != nil {
		t.Error(err)
	}
	if err := writeOverlay("broken", mutants[:1]); err != nil {
		t.Fatal(err)
	}
	h, done, err := newHunter(nil, testOptions())
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	for overlay, want := range map[string]int{"": 0, "broken/overlay.json": 1} {
		h.current.overlay = overlay
		if _, code, err := runCommand(h.goTool(t.Context(), "run", "./"+command, "sim", "run")); code != want || err != nil {
			t.Errorf("with %q: exit code %d, %v", overlay, code, err)
		}
	}
}

func TestSelected(t *testing.T) {
	project(t, nil, entry("a", "", "cmd", "0"), entry("ab", "", "cmd", "0"))
	for pattern, want := range map[string]int{"b": 1, "a": 2, "^a$": 1, "c": 0, "(": 0} {
		if mutants, err := selectMutants("mutants.yaml", pattern); len(mutants) != want || (err == nil) != (want > 0) {
			t.Errorf("%s: %d mutants, %v", pattern, len(mutants), err)
		}
	}
}

func TestSummarise(t *testing.T) {
	seed := func(name string, seed, failing int) finding {
		return finding{name: name, how: table.Found{By: "seed", Seed: seed, Failing: failing, Of: 100}}
	}
	got := summariseFindings([]finding{seed("a", 3, 30), seed("b", 9, 1), seed("bb", 7, 4), {name: "c", how: table.Found{By: "plan"}}})
	want := "seeds found 3; the median of the first failing seeds is 7, the highest 9\nfewer than 20 seeds found b, bb"
	if got != want {
		t.Errorf("got %s", got)
	}
	if got := summariseFindings(nil); got != "seeds found no defect" {
		t.Errorf("got %s", got)
	}
}

func TestMentions(t *testing.T) {
	for _, c := range []struct {
		report, property string
		want             bool
	}{{"breach of S1: torn", "S1", true}, {"S14", "S1", false}, {"XS1 S12 S1", "S1", true}, {"", "S1", false}} {
		if got := mentionsProperty([]byte(c.report), c.property); got != c.want {
			t.Errorf("%q mentions %s: got %v", c.report, c.property, got)
		}
	}
}
