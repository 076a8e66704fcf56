package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// command is a simulator with two profiles. In the second profile, the event log has a different line from some seed
// on.
const command = `package main

import (
	"fmt"
	"os"
	"strconv"
)

const differs = %d

func main() {
	var seed, n int
	profile := ""
	for i, arg := range os.Args[:len(os.Args)-1] {
		switch arg {
		case "--seed", "--start":
			seed, _ = strconv.Atoi(os.Args[i+1])
		case "--seeds":
			n, _ = strconv.Atoi(os.Args[i+1])
		case "--profile":
			profile = os.Args[i+1]
		}
	}
	switch {
	case profile == "list":
		fmt.Println("calm\nswarm\n%s")
	case profile == "broken":
		os.Exit(3)
	case os.Args[2] == "run":
		fmt.Printf("{\"log_hash\": \"%%t\"}\n", profile == "swarm" && seed+n > differs)
		os.Exit(1)
	default:
		fmt.Printf("one\ntwo\nthree\nfour\nfive %%t\nsix\n", seed >= differs)
	}
}
`

func TestGuard(t *testing.T) {
	t.Chdir(t.TempDir())
	write := func(differs int, profile string) {
		t.Helper()
		if err := os.MkdirAll("cmd/kvferry", 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{
			"go.mod": "module example\n\ngo 1.26\n", "cmd/kvferry/main.go": fmt.Sprintf(command, differs, profile),
		} {
			if err := os.WriteFile(filepath.FromSlash(name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	write(1000, "old")
	for _, args := range []string{"init -q", "add .", "-c user.name=a -c user.email=a@b commit -q -m a"} {
		if out, err := exec.Command("git", strings.Fields(args)...).CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v: %s", args, err, out)
		}
	}
	write(1000, "broken")
	for _, c := range []struct {
		differs int
		args    string
		same    bool
		says    string
	}{
		{1000, "HEAD", true, "not compared: old, which only HEAD has\nnot compared: broken, which HEAD does not have\n" +
			"same: calm, 200 seeds\nsame: swarm, 200 seeds\n"},
		{7, "HEAD -profile swarm", false, "differs: swarm\n" +
			"seed 7 of swarm is the first that differs; - is HEAD, + is the work tree:\n" +
			"  two\n  three\n  four\n- five false\n- six\n+ five true\n+ six\n"},
		{7, "HEAD -profile swarm -seeds 7", true, "same: swarm, 7 seeds\n"},
		{0, "HEAD -profile swarm -seeds 1", false, "seed 0 of swarm"},
	} {
		write(c.differs, "broken")
		var out strings.Builder
		same, err := compareTrees(t.Context(), &out, strings.Fields(c.args))
		if err != nil || same != c.same || !strings.Contains(out.String(), c.says) {
			t.Errorf("guard %s: %v, %v\n%s", c.args, same, err, out.String())
		}
	}
	for _, args := range []string{"", "HEAD more", "nothing", "HEAD -seeds 0", "HEAD -profile broken"} {
		if _, err := compareTrees(t.Context(), &strings.Builder{}, strings.Fields(args)); err == nil {
			t.Errorf("guard %s found something out", args)
		}
	}
	trees, err := exec.Command("git", "worktree", "list").Output()
	if err != nil || strings.Count(string(trees), "\n") != 1 {
		t.Errorf("worktrees are left: %v\n%s", err, trees)
	}
}
