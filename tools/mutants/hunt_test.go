package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// simulated is a command that finds a breach of S4 when its constant is not what it should be.
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

func patchTo(header, line string) string {
	return header + `
Like: a rule.
diff --git a/cmd/kvferry/main.go b/cmd/kvferry/main.go
--- a/cmd/kvferry/main.go
+++ b/cmd/kvferry/main.go
@@ -6,5 +6,5 @@
 )
 
-const quarantine = 1
+` + line + `
 
 func main() {
`
}

// writeFile writes a file and the folders above it.
func writeFile(name, text string) error {
	return errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644))
}

func TestHunt(t *testing.T) {
	project := t.TempDir()
	t.Chdir(project)
	write := func(name, text string) {
		t.Helper()
		if err := writeFile(name, text); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module example\n\ngo 1.26\n")
	write("cmd/kvferry/main.go", simulated)
	if out, err := exec.Command("git", "init", "-q").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cases := []struct{ name, patch, want string }{
		{"found", patchTo("What: no quarantine.\nProperty: S4", "const quarantine = 0"), "found "},
		{"explored", patchTo("What: no quarantine.\nScope: push\nProperty: S4", "const quarantine = 0"), "7 choices"},
		{"planned", patchTo("What: no quarantine.\nPlan: kept\nProperty: S4", "const quarantine = 0"), "found "},
		{"outgrown", patchTo("What: changes nothing.\nPlan: kept", "const quarantine = 1 * 1"), "its kept plan is stale"},
		{"survivor", patchTo("What: changes nothing.", "const quarantine = 1 * 1"), "5 seeds found nothing"},
		{"other", patchTo("What: no quarantine.\nProperty: S40", "const quarantine = 0"), "not a breach of S40"},
		{"broken", patchTo("What: no program.", "const quarantine = zero"), "does not compile"},
		{"stale", strings.Replace(patchTo("What: gone.", "const quarantine = 0"), "-const quarantine", "-const grace", 1),
			"no longer applies"},
	}
	var mutants []mutant
	for _, c := range cases {
		write("sim/mutants/"+c.name+".patch", c.patch)
		m, err := readMutant("sim/mutants/" + c.name + ".patch")
		if err != nil {
			t.Fatal(err)
		}
		mutants = append(mutants, m)
	}
	var out bytes.Buffer
	finds, failed, err := hunt(context.Background(), &out, mutants, 5, options{timeout: 10 * time.Minute, plans: "plans"})
	if err != nil || len(finds) != 3 || failed != 5 {
		t.Fatalf("got %d passed, %d failed, %v\n%s", len(finds), failed, err, &out)
	}
	if got := finds[0]; got.seed != 2 || got.failed != 3 {
		t.Errorf("found by %s", got)
	}
	if got := finds[1]; got.seed != -1 || got.failed != 7 {
		t.Errorf("found by %s", got)
	}
	if got := finds[2]; got.name != "planned" || got.seed != -1 {
		t.Errorf("%s was found by %s", got.name, got)
	}
	for _, c := range cases {
		_, after, _ := strings.Cut(out.String(), " "+c.name+" ")
		if c.name == "found" {
			after = out.String()
		}
		if !strings.Contains(after, c.want) {
			t.Errorf("%s: want %q in\n%s", c.name, c.want, &out)
		}
	}

	t.Log("# a simulator that is never clean finds everything, and so nothing")
	write("cmd/kvferry/main.go", strings.Replace(simulated, "quarantine = 1", "quarantine = 2", 1))
	if _, _, err := hunt(context.Background(), &out, mutants, 5,
		options{timeout: 10 * time.Minute, plans: "plans"}); err == nil ||
		!strings.Contains(err.Error(), "without any defect") {
		t.Errorf("got %v", err)
	}
}

func TestRewrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mutants.md")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	kept := "- `bb` (calm): B. Like rule.\n  S2, first seed 7, 4 fail.\n" +
		"- `e`: E. Like rule M5.\n  S8, scope `push`, 8 choices.\n"
	gone := "- `a`: was. Like m.\n  S1, first seed 0, 1 fail.\n- `gone`: was. Like m.\n  S1, first seed 0, 1 fail.\n"
	write("before\n" + listBegins + "old\n" + gone + kept + listEnds + "after\n")
	isPatch := func(name string) bool { return name != "gone" }
	finds := []find{
		{mutant: mutant{name: "a", what: "A.", like: "rule M1", properties: []string{"S1"}}, seed: 3, failed: 30},
		{mutant: mutant{name: "b", what: strings.TrimSpace(strings.Repeat("long ", 21)), like: "rule M2",
			properties: []string{"S2"}, profile: "calm"}, seed: 9, failed: 1},
		{mutant: mutant{name: "c", what: "C.", like: "rule M3", properties: []string{"L5"}, scope: "push"}, seed: -1,
			failed: 8},
		{mutant: mutant{name: "d", what: "D.", like: "rule M4", properties: []string{"S7"}, planned: true}, seed: -1},
	}
	if err := rewrite(path, finds, 100, isPatch); err != nil {
		t.Fatal(err)
	}
	want := "before\n" + listBegins + `
Of 100 seeds each:
3 defects are found by seeds; the median of the first ones is 7, the highest 9. Fewer than 20 seeds stand behind ` +
		"`b`,\n`bb`" + `.

- ` + "`a`" + `: A. Like rule M1.
  S1, first seed 3, 30 fail.
- ` + "`b`" + ` (calm): ` + strings.TrimSpace(strings.Repeat("long ", 21)) + `
  Like rule M2.
  S2, first seed 9, 1 fail.
- ` + "`bb`" + ` (calm): B. Like rule.
  S2, first seed 7, 4 fail.
- ` + "`c`" + `: C. Like rule M3.
  L5, scope ` + "`push`" + `, 8 choices.
- ` + "`d`" + `: D. Like rule M4.
  S7, kept plan.
- ` + "`e`" + `: E. Like rule M5.
  S8, scope ` + "`push`" + `, 8 choices.

` + listEnds + "after\n"
	if got, _ := os.ReadFile(path); string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	write("no list")
	if err := rewrite(path, finds, 100, isPatch); err == nil {
		t.Error("a document without a place for the list was accepted")
	}
}

func TestMutantsSayWhatTheyBreak(t *testing.T) {
	path := filepath.Join(t.TempDir(), "silent.patch")
	if err := os.WriteFile(path, []byte("Property: S1\ndiff --git a/x b/x\nWhat: too late\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := readMutant(path); err == nil {
		t.Error("accepted")
	}
}

func TestMentions(t *testing.T) {
	for _, c := range []struct {
		report, property string
		want             bool
	}{{"breach of S1: torn", "S1", true}, {"S14", "S1", false}, {"XS1 S12 S1", "S1", true}, {"", "S1", false}} {
		if got := mentions([]byte(c.report), c.property); got != c.want {
			t.Errorf("%q mentions %s: got %v", c.report, c.property, got)
		}
	}
}
