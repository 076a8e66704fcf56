// Command guard says whether a change of the code changed what the machines do in the simulator.
//
// Code that is moved or renamed must leave every effect, deadline and draw where it was. The hash over the event log of
// a simulated run (docs/simulator.md) changes if any of them does. Guard builds the command kvferry twice, of a commit
// and of the work tree, runs the same seeds of every profile on both, and compares the hashes. For the first seed that
// differs, it prints the first line of the event log that differs.
//
//	go run ./tools/guard BASE [-seeds N] [-profile P]
//
// BASE is a commit, such as main or HEAD. Run it at the root of the work tree. The exit code is 0 if all seeds are the
// same, 1 if one differs, and 2 if this could not be found out.
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

// linesAround is how many lines of an event log are shown before and after the first one that differs.
const linesAround = 3

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	same, err := guard(ctx, os.Stdout, os.Args[1:])
	stop()
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "guard:", err)
		os.Exit(2)
	case !same:
		os.Exit(1)
	}
}

// guard compares the work tree with the commit that the arguments name, and reports whether they are the same.
func guard(ctx context.Context, w io.Writer, args []string) (same bool, err error) {
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
	now, err := build(ctx, ".", filepath.Join(folder, "now"))
	if err != nil {
		return false, err
	}
	profiles := []string{*profile}
	if *profile == "" {
		if profiles, err = sharedProfiles(ctx, w, before, now, base); err != nil {
			return false, err
		}
	}
	same = true
	for _, p := range profiles {
		whole := span{profile: p, n: *seeds}
		differs, err := whole.differs(ctx, before, now)
		if err != nil {
			return false, err
		}
		if !differs {
			fmt.Fprintf(w, "same: %s, %d seeds\n", p, *seeds)
			continue
		}
		fmt.Fprintf(w, "differs: %s\n", p)
		if same {
			if err := explain(ctx, w, before, now, whole, base); err != nil {
				return false, err
			}
		}
		same = false
	}
	return same, nil
}

// A binary is the path of the command kvferry as it was built of one tree.
type binary string

// build builds the command of a tree.
func build(ctx context.Context, tree, path string) (binary, error) {
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
func buildCommit(ctx context.Context, folder, commit string) (b binary, err error) {
	tree := filepath.Join(folder, "tree")
	if _, err := output(ctx, "git", "worktree", "add", "--detach", tree, commit); err != nil {
		return "", err
	}
	defer func() { // An interrupted run removes it too.
		_, removeErr := output(context.WithoutCancel(ctx), "git", "worktree", "remove", "--force", tree)
		err = errors.Join(err, removeErr)
	}()
	return build(ctx, tree, filepath.Join(folder, "before"))
}

// sharedProfiles returns the profiles that both binaries know, and prints those that only one of them knows.
func sharedProfiles(ctx context.Context, w io.Writer, before, now binary, base string) (shared []string, err error) {
	known := map[binary][]string{}
	for _, b := range []binary{before, now} {
		list, err := output(ctx, string(b), "sim", "run", "--profile", "list")
		if err != nil {
			return nil, err
		}
		known[b] = strings.Fields(list)
	}
	for _, p := range known[before] {
		if !slices.Contains(known[now], p) {
			fmt.Fprintf(w, "not compared: %s, which only %s has\n", p, base)
		}
	}
	for _, p := range known[now] {
		if slices.Contains(known[before], p) {
			shared = append(shared, p)
		} else {
			fmt.Fprintf(w, "not compared: %s, which %s does not have\n", p, base)
		}
	}
	return shared, nil
}

// A span is a number of seeds of a profile, one after the other.
type span struct {
	profile  string
	first, n uint64
}

// outcome is what is compared of a span: the sum of the hashes of its event logs, and how many seeds broke a promise.
type outcome struct {
	Hash   string            `json:"log_hash"`
	Failed map[string]uint64 `json:"failures_by_property"`
}

// differs reports whether two binaries run a span differently.
func (s span) differs(ctx context.Context, before, now binary) (bool, error) {
	a, err := s.run(ctx, before)
	if err != nil {
		return false, err
	}
	b, err := s.run(ctx, now)
	return a.Hash != b.Hash || !maps.Equal(a.Failed, b.Failed), err
}

func (s span) run(ctx context.Context, b binary) (o outcome, err error) {
	text, err := output(ctx, string(b), "sim", "run", "--json", "--profile", s.profile, "--start", fmt.Sprint(s.first),
		"--seeds", fmt.Sprint(s.n), "--out", filepath.Join(filepath.Dir(string(b)), "failures"))
	if err != nil {
		return o, err
	}
	if err := json.Unmarshal([]byte(text), &o); err != nil || o.Hash == "" {
		return o, fmt.Errorf("sim run --json of %s printed no log_hash: %w", s.profile, err)
	}
	return o, nil
}

// explain finds the first seed of a span that differs, and prints the first line of its event log that does.
func explain(ctx context.Context, w io.Writer, before, now binary, s span, base string) error {
	for s.n > 1 {
		half := span{s.profile, s.first, s.n / 2}
		differs, err := half.differs(ctx, before, now)
		if err != nil {
			return err
		}
		if !differs {
			half = span{s.profile, s.first + half.n, s.n - half.n}
		}
		s = half
	}
	fmt.Fprintf(w, "seed %d of %s is the first that differs; - is %s, + is the work tree:\n", s.first, s.profile, base)
	var logs [2][]string
	for i, b := range []binary{before, now} {
		log, err := output(ctx, string(b), "sim", "replay", "--log", "--profile", s.profile, "--seed", fmt.Sprint(s.first))
		if err != nil {
			return err
		}
		logs[i] = strings.Split(strings.TrimSuffix(log, "\n"), "\n")
	}
	printDifference(w, logs[0], logs[1])
	return nil
}

// printDifference prints the first line that two logs do not share, with some around it. Where only the line below the
// logs differs, which has their hashes, the difference is in bytes of a message that no line shows.
func printDifference(w io.Writer, before, now []string) {
	at := 0
	for at < len(before) && at < len(now) && before[at] == now[at] {
		at++
	}
	for _, line := range now[max(0, at-linesAround):at] {
		fmt.Fprintf(w, "  %s\n", line)
	}
	for _, side := range []struct {
		sign  string
		lines []string
	}{{"-", before}, {"+", now}} {
		for _, line := range side.lines[at:min(at+1+linesAround, len(side.lines))] {
			fmt.Fprintf(w, "%s %s\n", side.sign, line)
		}
	}
}

// output runs a program and returns what it printed. Exit code 1 of the command kvferry says that a promise was broken,
// which is an outcome too.
func output(ctx context.Context, name string, args ...string) (string, error) {
	var complaint strings.Builder
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil && (cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != 1 || name == "git") {
		return "", fmt.Errorf("%s %s: %w\n%s", filepath.Base(name), strings.Join(args, " "), err, complaint.String())
	}
	return string(out), nil
}
