package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// guarding is a command in which seed 4 breaks S2 and seed 7 S4 when its constant is not what it should be.
const guarding = `package main

import (
	"fmt"
	"os"
	"strconv"
)

const quarantine = 1

func main() {
	if quarantine == 1 {
		fmt.Println("every promise held")
		return
	}
	if os.Args[1] != "seed" {
		fmt.Println("S4 broken by", os.Args[1:])
		os.Exit(1)
	}
	first, _ := strconv.Atoi(os.Args[3])
	n, _ := strconv.Atoi(os.Args[4])
	if n < 1 {
		os.Exit(2)
	}
	if first < 5 {
		fmt.Println("seed 4 breaks S2: torn")
	}
	if first+n > 7 && len(os.Args) > 5 && os.Args[5] == "S4" {
		fmt.Println("seed 7 breaks S4: a free page was written")
	}
	os.Exit(1)
}
`

func TestQuickHunt(t *testing.T) {
	t.Chdir(t.TempDir())
	if out, err := exec.Command("git", "init", "-q").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	write := func(name, text string) {
		t.Helper()
		if err := writeFile(name, text); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module example\n\ngo 1.26\n")
	write("tools/guard/main.go", guarding)
	write("list.md", "- `known`: a. Like b.\n  S4, first seed 4, 9 fail.\n"+
		"- `late`: a. Like b.\n  S4, first seed 6, 9 fail.\n- `never`: a. Like b.\n  S4, first seed 5, 9 fail.\n"+
		"- `beyond`: a. Like b.\n  S4, first seed 30, 9 fail.\n")
	cases := []struct{ name, head, line, want string }{
		{"known", "Property: S4", "const quarantine = 0", "  seed 4 "},
		{"late", "Property: S4", "const quarantine = 0", "  seed 7, which it was not"},
		{"planned", "Plan: kept\nProperty: S4", "const quarantine = 0", "found "},
		{"explored", "Scope: push\nProperty: S4", "const quarantine = 0", "found "},
		{"never", "Property: S4", "const quarantine = 1 * 1", "15 seeds found nothing"},
		{"beyond", "Property: S4", "const quarantine = 0", "  seed 7 "}, // The known seed is run, though 20 are asked for.
		{"other", "Property: S2, S9", "const quarantine = 0", "not a breach of S9"},
	}
	var mutants []mutant
	for _, c := range cases {
		path := "sim/mutants/" + c.name + ".patch"
		patch := patchTo("What: no quarantine.\n"+c.head, c.line)
		patch = strings.ReplaceAll(patch, "cmd/kvferry/", "tools/guard/")
		patch = strings.Replace(patch, "@@ -6,5 +6,5 @@", "@@ -7,5 +7,5 @@", 1)
		write(path, patch)
		m, err := readMutant(path)
		if err != nil {
			t.Fatal(err)
		}
		mutants = append(mutants, m)
	}
	var out bytes.Buffer
	o := options{timeout: 10 * time.Minute, plans: "plans"}
	finds, failed, err := quickHunt(context.Background(), &out, mutants, "list.md", 20, o)
	if err != nil || len(finds) != 5 || failed != 2 {
		t.Fatalf("got %d passed, %d failed, %v\n%s", len(finds), failed, err, &out)
	}
	for _, c := range cases {
		_, after, _ := strings.Cut("\n"+out.String(), " "+c.name+" ")
		if c.want == "found " {
			after = out.String()
		}
		if !strings.Contains(after, c.want) {
			t.Errorf("%s: want %q in\n%s", c.name, c.want, &out)
		}
	}

	t.Log("# what is not found so is looked for in full, if that is wished")
	out.Reset()
	o.fallback = true
	write("cmd/kvferry/main.go", "package main\n\nfunc main() {}\n")
	_, failed, err = quickHunt(context.Background(), &out, mutants[4:5], "list.md", 20, o)
	if err != nil || failed != 1 || !strings.Contains(out.String(), "never: 15 seeds found nothing; once more in full") ||
		!strings.Contains(out.String(), "20 seeds found nothing") {
		t.Errorf("%d failed, %v\n%s", failed, err, &out)
	}
	if _, _, err := quickHunt(context.Background(), &out, mutants, "none.md", 20, o); !os.IsNotExist(err) {
		t.Errorf("without a list: %v", err)
	}
}
