// Command guard reports whether a change of the code changed the behaviour of the state machines in the simulator.
//
// A change that only moves or renames code must not change any effect, deadline or random draw. If one of them changes,
// the hash of the event log of a simulated run (docs/simulator.md) changes. Guard builds the command kvferry of a
// commit and of the work tree, runs the same seeds of every profile with both, and compares the hashes. For the first
// seed that differs, guard prints the first line of the event log that differs.
//
//	go run ./tools/guard BASE [-seeds N] [-profile P]
//
// BASE is a commit, such as main or HEAD. Run guard at the root of the work tree. The exit code is 0 if all seeds are
// the same, 1 if a seed differs, and 2 if the comparison failed.
//
// Example: go run ./tools/guard main -seeds 50
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// linesAround is the number of lines of an event log that are shown before and after the first line that differs.
const linesAround = 3

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	same, err := compareTrees(ctx, os.Stdout, os.Args[1:])
	stop()
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "guard:", err)
		os.Exit(2)
	case !same:
		os.Exit(1)
	}
}

// compareTrees compares the work tree with the commit that the arguments name, and reports whether both run all seeds
// in the same way.
func compareTrees(ctx context.Context, w io.Writer, args []string) (same bool, err error) {
	flags := flag.NewFlagSet("guard", flag.ContinueOnError)
	seeds := flags.Uint64("seeds", 200, "how many seeds of each profile to run")
	profile := flags.String("profile", "", "the profile; all of them if empty")
	base := ""
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		base, args = args[0], args[1:]
	}
	if err := flags.Parse(args); err != nil {
		return false, err
	}
	switch {
	case base == "" || flags.NArg() > 0:
		return false, errors.New("usage: guard BASE [-seeds N] [-profile P]")
	case *seeds == 0:
		return false, errors.New("-seeds is 0; give 1 or more")
	}
	folder, err := os.MkdirTemp("", "kvferry-guard-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(folder) //nolint:errcheck // The system clears its temporary folder too.
	before, err := buildCommit(ctx, folder, base)
	if err != nil {
		return false, err
	}
	after, err := buildTree(ctx, ".", filepath.Join(folder, "now"))
	if err != nil {
		return false, err
	}
	profiles := []string{*profile}
	if *profile == "" {
		if profiles, err = sharedProfiles(ctx, w, before, after, base); err != nil {
			return false, err
		}
	}
	same = true
	for _, p := range profiles {
		all := seedRange{profile: p, n: *seeds}
		differs, err := all.isDifferent(ctx, before, after)
		if err != nil {
			return false, err
		}
		if !differs {
			fmt.Fprintf(w, "same: %s, %d seeds\n", p, *seeds)
			continue
		}
		fmt.Fprintf(w, "differs: %s\n", p)
		if same {
			if err := explainDifference(ctx, w, before, after, all, base); err != nil {
				return false, err
			}
		}
		same = false
	}
	return same, nil
}

// A binary is the path of the command kvferry that was built from a tree.
type binary string

// buildTree builds the command kvferry from a tree.
func buildTree(ctx context.Context, tree, path string) (binary, error) {
	// Without paths in the objects, packages that are the same in both trees are compiled once.
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", path, "./cmd/kvferry")
	cmd.Dir = tree
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w\n%s", tree, err, out)
	}
	return binary(path), nil
}

// buildCommit builds the command of a commit, in a git worktree that is removed afterwards.
func buildCommit(ctx context.Context, folder, commit string) (built binary, err error) {
	tree := filepath.Join(folder, "tree")
	if _, err := runProgram(ctx, "git", "worktree", "add", "--detach", tree, commit); err != nil {
		return "", err
	}
	defer func() { // The worktree is removed even after an interruption.
		_, removeErr := runProgram(context.WithoutCancel(ctx), "git", "worktree", "remove", "--force", tree)
		err = errors.Join(err, removeErr)
	}()
	return buildTree(ctx, tree, filepath.Join(folder, "before"))
}

// sharedProfiles returns the profiles that both binaries know, and prints the profiles that only one binary knows.
func sharedProfiles(ctx context.Context, w io.Writer, before, after binary, base string) (shared []string, err error) {
	known := map[binary][]string{}
	for _, b := range []binary{before, after} {
		list, err := runProgram(ctx, string(b), "sim", "run", "--profile", "list")
		if err != nil {
			return nil, err
		}
		known[b] = strings.Fields(list)
	}
	for _, p := range known[before] {
		if !slices.Contains(known[after], p) {
			fmt.Fprintf(w, "not compared: %s, which only %s has\n", p, base)
		}
	}
	for _, p := range known[after] {
		if slices.Contains(known[before], p) {
			shared = append(shared, p)
		} else {
			fmt.Fprintf(w, "not compared: %s, which %s does not have\n", p, base)
		}
	}
	return shared, nil
}

// A seedRange is a range of consecutive seeds of a profile.
type seedRange struct {
	profile  string
	first, n uint64
}

// An outcome is the result of running a range of seeds: the sum of the hashes of the event logs, and the number of
// seeds that broke each promise.
type outcome struct {
	Hash   string            `json:"log_hash"`
	Failed map[string]uint64 `json:"failures_by_property"`
}

// isDifferent reports whether two binaries run the range differently.
func (s seedRange) isDifferent(ctx context.Context, before, after binary) (bool, error) {
	a, err := s.runSeeds(ctx, before)
	if err != nil {
		return false, err
	}
	b, err := s.runSeeds(ctx, after)
	return a.Hash != b.Hash || !maps.Equal(a.Failed, b.Failed), err
}

func (s seedRange) runSeeds(ctx context.Context, b binary) (o outcome, err error) {
	text, err := runProgram(ctx, string(b), "sim", "run", "--json", "--profile", s.profile, "--start", fmt.Sprint(s.first),
		"--seeds", fmt.Sprint(s.n), "--out", filepath.Join(filepath.Dir(string(b)), "failures"))
	if err != nil {
		return o, err
	}
	if err := json.Unmarshal([]byte(text), &o); err != nil || o.Hash == "" {
		return o, fmt.Errorf("sim run --json of %s printed no log_hash: %w", s.profile, err)
	}
	return o, nil
}

// explainDifference finds the first seed of a range that differs, and prints the first line of the seed's event log
// that differs.
func explainDifference(ctx context.Context, w io.Writer, before, after binary, s seedRange, base string) error {
	for s.n > 1 {
		half := seedRange{s.profile, s.first, s.n / 2}
		differs, err := half.isDifferent(ctx, before, after)
		if err != nil {
			return err
		}
		if !differs {
			half = seedRange{s.profile, s.first + half.n, s.n - half.n}
		}
		s = half
	}
	fmt.Fprintf(w, "seed %d of %s is the first that differs; - is %s, + is the work tree:\n", s.first, s.profile, base)
	var logs [2][]string
	for i, b := range []binary{before, after} {
		log, err := runProgram(ctx, string(b), "sim", "replay", "--log", "--profile", s.profile, "--seed", fmt.Sprint(s.first))
		if err != nil {
			return err
		}
		logs[i] = strings.Split(strings.TrimSuffix(log, "\n"), "\n")
	}
	printDifference(w, logs[0], logs[1])
	return nil
}

// printDifference prints the first line in which two logs differ, with some lines around it. If only the last line
// differs, which has the hash, the difference is in bytes of a message that no line shows.
func printDifference(w io.Writer, before, after []string) {
	at := 0
	for at < len(before) && at < len(after) && before[at] == after[at] {
		at++
	}
	for _, line := range after[max(0, at-linesAround):at] {
		fmt.Fprintf(w, "  %s\n", line)
	}
	for _, side := range []struct {
		sign  string
		lines []string
	}{{"-", before}, {"+", after}} {
		for _, line := range side.lines[at:min(at+1+linesAround, len(side.lines))] {
			fmt.Fprintf(w, "%s %s\n", side.sign, line)
		}
	}
}

// runProgram runs a program and returns the standard output. Exit code 1 of the command kvferry is not an error,
// because it means that a promise was broken.
func runProgram(ctx context.Context, name string, args ...string) (string, error) {
	var stderr strings.Builder
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil && (cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != 1 || name == "git") {
		return "", fmt.Errorf("%s %s: %w\n%s", filepath.Base(name), strings.Join(args, " "), err, stderr.String())
	}
	return string(out), nil
}
