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

// statesMax bounds the exploration of a scope in which a defect is looked for.
const statesMax = 400_000

// hunt tries the unharmed copy, which must be clean, and then each mutant, which must not.
// A mutant that is found although its kept plan breaks nothing any more has failed too.
func hunt(ctx context.Context, w io.Writer, mutants []mutant, seeds int, o options) (finds []find, failed int, err error) {
	root, err := os.MkdirTemp("", "kvferry-mutants-")
	if err != nil {
		return nil, 0, err
	}
	defer os.RemoveAll(root)            //nolint:errcheck // The system clears its temporary folder too.
	plans, err := filepath.Abs(o.plans) // Programs are run in the copy.
	if err != nil {
		return nil, 0, err
	}
	s := scratch{dir: filepath.Join(root, "tree"), binary: filepath.Join(root, "kvferry"), timeout: o.timeout,
		plans: plans, keep: o.keep, healthy: filepath.Join(root, "healthy")}
	if err := copyTree(s.dir); err != nil {
		return nil, 0, err
	}
	if err := s.clean(ctx, mutants, seeds); err != nil {
		return nil, 0, err
	}
	if err := os.Rename(s.binary, s.healthy); err != nil {
		return nil, 0, err
	}
	for _, m := range mutants {
		start := time.Now()
		found, verdict, err := s.try(ctx, m, seeds)
		if err != nil {
			return finds, failed, fmt.Errorf("%s: %w", m.name, err)
		}
		word := "found "
		if verdict != "" {
			word = "MISSED"
			if strings.HasPrefix(verdict, stalePlan) {
				word = "STALE "
			}
			failed++
		} else {
			finds = append(finds, found)
		}
		fmt.Fprintf(w, "%s %-36s %6.1f s  %-24s %s\n", word, m.name, time.Since(start).Seconds(), found, m.what)
		if verdict != "" {
			fmt.Fprintf(w, "       %s\n", strings.ReplaceAll(strings.TrimSpace(verdict), "\n", "\n       "))
		}
	}
	return finds, failed, nil
}

// clean demands that nothing is found without a defect, in no profile or scope that a mutant names.
func (s scratch) clean(ctx context.Context, mutants []mutant, seeds int) error {
	tried := map[[2]string]bool{}
	for _, m := range append([]mutant{{}}, mutants...) {
		where := [2]string{m.profile, m.scope}
		if tried[where] || m.planned {
			continue
		}
		tried[where] = true
		report, code, err := s.simulate(ctx, m, seeds)
		if err != nil {
			return err
		}
		if code != 0 {
			return fmt.Errorf("without any defect, the simulator ended with exit code %d; mend that first:\n%s", code, report)
		}
	}
	for _, m := range mutants {
		if !m.planned {
			continue
		}
		report, code, err := s.replay(ctx, s.binary, s.planOf(m))
		if err != nil {
			return err
		}
		if code != 0 {
			return fmt.Errorf("without any defect, the kept plan of %s ended with exit code %d; mend that first:\n%s", m.name, code, tail(report))
		}
	}
	return nil
}

// try returns how m was found, and why it does not count, or "".
func (s scratch) try(ctx context.Context, m mutant, seeds int) (found find, verdict string, err error) {
	if out, err := s.git(ctx, "apply", m.path); err != nil {
		return found, fmt.Sprintf("the patch no longer applies; make it anew: %s", out), nil
	}
	report, code, simErr := s.simulate(ctx, m, seeds)
	stale := ""
	if simErr == nil && code == 1 && m.scope == "" && !m.planned {
		stale, err = s.plan(ctx, m, report)
	}
	if out, err := s.git(ctx, "apply", "--reverse", m.path); err != nil {
		return found, "", fmt.Errorf("taking the patch out again: %s", out)
	}
	switch {
	case ctx.Err() != nil:
		return found, "", ctx.Err()
	case err != nil:
		return found, "", err
	case simErr != nil:
		return found, simErr.Error(), nil
	case code == 0 && m.scope != "":
		return found, fmt.Sprintf("%d states of scope %s found nothing", statesMax, m.scope), nil
	case code == 0 && m.planned:
		return found, stalePlan + ", for it breaks nothing under the patch, and nothing else finds that", nil
	case code == 0:
		return found, fmt.Sprintf("%d seeds found nothing", seeds), nil
	case code != 1:
		return found, fmt.Sprintf("the simulator ended with exit code %d instead of a finding:\n%s", code, tail(report)), nil
	}
	for _, p := range m.properties {
		if !mentions(report, p) {
			return found, fmt.Sprintf("something was found, but not a breach of %s:\n%s", p, tail(report)), nil
		}
	}
	return findOf(m, report), stale, nil
}

// simulate builds the copy as it is and runs the simulator, or explores the mutant's scope.
func (s scratch) simulate(ctx context.Context, m mutant, seeds int) (report []byte, code int, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	build := exec.CommandContext(ctx, "go", "build", "-o", s.binary, "./cmd/kvferry")
	build.Dir = s.dir
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, 0, fmt.Errorf("it does not compile: %w\n%s", err, tail(out))
	}
	if m.planned {
		return s.replay(ctx, s.binary, s.planOf(m))
	}
	args := []string{"sim", "run", "--seeds", fmt.Sprint(seeds)}
	switch {
	case m.scope != "":
		args = []string{"sim", "explore", "--scope", m.scope, "--states", fmt.Sprint(statesMax)}
	case m.profile != "":
		args = append(args, "--profile", m.profile)
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
