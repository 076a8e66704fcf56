package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// A scratch is a copy of the work tree in which patches come and go.
type scratch struct {
	dir     string // of the copy
	binary  string // built from it
	timeout time.Duration
	plans   string // folder of the kept plans, by the names of the mutants
	keep    bool   // write them anew
	healthy string // a binary without any defect
}

// hunt tries the unharmed copy, which must be clean, and then each mutant, which must not.
// A mutant that is found although its kept plan breaks nothing any more has failed too.
func hunt(ctx context.Context, w io.Writer, mutants []mutant, seeds int, o options) (passed, failed int, err error) {
	root, err := os.MkdirTemp("", "kvferry-mutants-")
	if err != nil {
		return 0, 0, err
	}
	defer os.RemoveAll(root) //nolint:errcheck // The system clears its temporary folder too.
	s := scratch{dir: filepath.Join(root, "tree"), binary: filepath.Join(root, "kvferry"), timeout: o.timeout,
		plans: o.plans, keep: o.keep, healthy: filepath.Join(root, "healthy")}
	if err := copyTree(s.dir); err != nil {
		return 0, 0, err
	}
	if report, code, err := s.simulate(ctx, seeds, ""); err != nil {
		return 0, 0, err
	} else if code != 0 {
		return 0, 0, fmt.Errorf("without any defect, sim run ended with exit code %d; mend that first:\n%s", code, report)
	}
	if err := os.Rename(s.binary, s.healthy); err != nil {
		return 0, 0, err
	}
	for _, m := range mutants {
		start := time.Now()
		verdict, err := s.try(ctx, m, seeds)
		if err != nil {
			return passed, failed, fmt.Errorf("%s: %w", m.name, err)
		}
		word := "found "
		if verdict != "" {
			word = "MISSED"
			if strings.HasPrefix(verdict, stalePlan) {
				word = "STALE "
			}
			failed++
		} else {
			passed++
		}
		fmt.Fprintf(w, "%s %-36s %6.1f s  %s\n", word, m.name, time.Since(start).Seconds(), m.what)
		if verdict != "" {
			fmt.Fprintf(w, "       %s\n", strings.ReplaceAll(strings.TrimSpace(verdict), "\n", "\n       "))
		}
	}
	return passed, failed, nil
}

// try returns why m was not found, or "".
func (s scratch) try(ctx context.Context, m mutant, seeds int) (verdict string, err error) {
	if out, err := s.git(ctx, "apply", m.path); err != nil {
		return fmt.Sprintf("the patch no longer applies; make it anew: %s", out), nil
	}
	report, code, simErr := s.simulate(ctx, seeds, m.profile)
	stale := ""
	if simErr == nil && code == 1 {
		stale, err = s.plan(ctx, m, report)
	}
	if out, err := s.git(ctx, "apply", "--reverse", m.path); err != nil {
		return "", fmt.Errorf("taking the patch out again: %s", out)
	}
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case err != nil:
		return "", err
	case simErr != nil:
		return simErr.Error(), nil
	case code == 0:
		return fmt.Sprintf("%d seeds found nothing", seeds), nil
	case code != 1:
		return fmt.Sprintf("sim run ended with exit code %d instead of a finding:\n%s", code, tail(report)), nil
	}
	for _, p := range m.properties {
		if !mentions(report, p) {
			return fmt.Sprintf("something was found, but not a breach of %s:\n%s", p, tail(report)), nil
		}
	}
	return stale, nil
}

// simulate builds the copy as it is and runs the simulator.
func (s scratch) simulate(ctx context.Context, seeds int, profile string) (report []byte, code int, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	build := exec.CommandContext(ctx, "go", "build", "-o", s.binary, "./cmd/kvferry")
	build.Dir = s.dir
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, 0, fmt.Errorf("it does not compile: %w\n%s", err, tail(out))
	}
	args := []string{"sim", "run", "--seeds", fmt.Sprint(seeds)}
	if profile != "" {
		args = append(args, "--profile", profile)
	}
	run := exec.CommandContext(ctx, s.binary, args...)
	run.Dir = s.dir
	report, err = run.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return nil, 0, fmt.Errorf("it took longer than %v", s.timeout)
	case errors.As(err, &exit):
		return report, exit.ExitCode(), nil
	default:
		return report, 0, err
	}
}

// git runs git in the copy, which is no repository, whatever lies above it.
func (s scratch) git(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(s.dir))
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// copyTree copies the files of the work tree that git knows or would add, as they are now.
func copyTree(to string) error {
	out, err := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		return fmt.Errorf("git ls-files: %w", err)
	}
	for name := range bytes.SplitSeq(bytes.TrimSuffix(out, []byte{0}), []byte{0}) {
		path := string(name)
		data, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			continue // Deleted, and not committed yet.
		} else if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Join(to, filepath.Dir(path)), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, path), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// tail keeps the end of a long output, where the reason usually stands.
func tail(out []byte) string {
	const most = 2000
	if len(out) > most {
		out = out[len(out)-most:]
	}
	return string(out)
}
