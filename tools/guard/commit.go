package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// A binary is guard as it was built of some commit.
type binary string

// binaryOf builds guard of a commit, once: it is kept in .cache.
func binaryOf(commit string) (b binary, err error) {
	path, err := filepath.Abs(filepath.Join(".cache", "guard-"+commit))
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return binary(path), err
	}
	if _, err := git("cat-file", "-e", commit+":tools/guard/main.go"); err != nil {
		return "", fmt.Errorf("commit %s has no tools/guard: name a later one with -before", commit)
	}
	err = inTreeOf(commit, func(tree string) error {
		// Without paths, packages that did not change are taken from another tree's build.
		build := exec.Command("go", "build", "-trimpath", "-o", path, "./tools/guard")
		build.Dir = tree
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("building guard of commit %s: %w\n%s", commit, err, out)
		}
		return nil
	})
	return binary(path), err
}

// inTreeOf calls do with a folder that has the files of a commit, while it lasts.
func inTreeOf(commit string, do func(tree string) error) error {
	folder, err := os.MkdirTemp("", "kvferry-guard-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder) //nolint:errcheck // The system clears its temporary folder too.
	tree := filepath.Join(folder, "tree")
	if _, err := git("worktree", "add", "--detach", tree, commit); err != nil {
		return err
	}
	err = do(tree)
	_, removed := git("worktree", "remove", "--force", tree)
	return errors.Join(err, removed)
}

func (b binary) output(args ...string) (string, error) { return output(string(b), args...) }

// commitsBefore are those that a difference is shown against, in turn: the last one that is not what stands here, and
// the one that wrote the hashes, if it is another.
func commitsBefore(named string) (commits []string, err error) {
	names := []string{named}
	if named == "" {
		changed, err := git("status", "--porcelain", "--", "*.go")
		if err != nil {
			return nil, err
		}
		names[0] = "HEAD^"
		if changed != "" {
			names[0] = "HEAD"
		}
		wrote, err := git("log", "-1", "--format=%H", "--", hashesFile)
		if err != nil {
			return nil, err
		}
		if wrote != "" {
			names = append(names, wrote)
		}
	}
	for _, name := range names {
		commit, err := git("rev-parse", "--verify", "--short=12", name)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(commits, commit) {
			commits = append(commits, commit)
		}
	}
	return commits, nil
}

func git(args ...string) (string, error) {
	out, err := output("git", args...)
	return strings.TrimSpace(out), err
}

// output runs a program and returns what it printed. An error tells what it complained of.
func output(name string, args ...string) (string, error) {
	var complaint strings.Builder
	cmd := exec.Command(name, args...)
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", filepath.Base(name), strings.Join(args, " "), err, complaint.String())
	}
	return string(out), nil
}
