package main

import (
	"bytes"
	"cmp"
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
func hunt(ctx context.Context, w io.Writer, mutants []mutant, seeds int, o options) (finds []find, failed int,
	err error) {
	s, done, err := newScratch(o)
	if err != nil {
		return nil, 0, err
	}
	defer done()
	if err := s.clean(ctx, mutants, seeds); err != nil {
		return nil, 0, err
	}
	if err := os.Rename(s.binary, s.healthy); err != nil {
		return nil, 0, err
	}
	return s.tryAll(ctx, w, mutants, func(m mutant) (find, string, error) { return s.try(ctx, m, seeds) })
}

// newScratch copies the work tree. What done does is for the end.
func newScratch(o options) (s scratch, done func(), err error) {
	root, err := os.MkdirTemp("", "kvferry-mutants-")
	if err != nil {
		return s, nil, err
	}
	done = func() { _ = os.RemoveAll(root) } // The system clears its temporary folder too.
	plans, absolute := filepath.Abs(o.plans) // Programs are run in the copy.
	s = scratch{dir: filepath.Join(root, "tree"), binary: filepath.Join(root, "kvferry"), timeout: o.timeout,
		plans: plans, keep: o.keep, healthy: filepath.Join(root, "healthy")}
	if err := errors.Join(absolute, copyTree(s.dir)); err != nil {
		done()
		return s, nil, err
	}
	return s, done, nil
}

// tryAll tries each mutant in turn and says what came of it.
func (s scratch) tryAll(ctx context.Context, w io.Writer, mutants []mutant,
	try func(mutant) (found find, verdict string, err error)) (finds []find, failed int, err error) {
	for _, m := range mutants {
		start := time.Now()
		found, verdict, err := try(m)
		if err == nil {
			err = ctx.Err()
		}
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
		where := [2]string{m.profile, m.scope + m.test}
		if tried[where] || m.planned {
			continue
		}
		tried[where] = true
		report, code, err := s.report(ctx, m, "./cmd/kvferry", s.args(m, seeds))
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
			return fmt.Errorf("without any defect, the kept plan of %s ended with exit code %d; mend that first:\n%s", m.name,
				code, tail(report))
		}
	}
	return nil
}

// try returns how m was found, and why it does not count, or "".
func (s scratch) try(ctx context.Context, m mutant, seeds int) (found find, verdict string, err error) {
	verdict, err = s.with(ctx, m, func() (string, error) {
		report, code, err := s.report(ctx, m, "./cmd/kvferry", s.args(m, seeds))
		if err != nil {
			return err.Error(), nil
		}
		found = findOf(m, report)
		verdict := m.judge(report, code, seeds)
		if verdict != "" || m.scope != "" || m.planned || m.test != "" {
			return verdict, nil
		}
		return s.plan(ctx, m, report)
	})
	return found, verdict, err
}

// with calls do while the patch of m is applied.
func (s scratch) with(ctx context.Context, m mutant, do func() (string, error)) (verdict string, err error) {
	if out, err := s.git(ctx, "apply", m.path); err != nil {
		return fmt.Sprintf("the patch no longer applies; make it anew: %s", out), nil
	}
	verdict, err = do()
	if out, reversed := s.git(ctx, "apply", "--reverse", m.path); reversed != nil {
		err = errors.Join(err, fmt.Errorf("taking the patch out again: %s", out))
	}
	return verdict, err
}

// judge says why a report of the simulator does not count for m, or "".
func (m mutant) judge(report []byte, code, seeds int) string {
	switch {
	case code == 0 && m.test != "":
		return m.test + " passes"
	case code == 0 && m.scope != "":
		return fmt.Sprintf("%d states of scope %s found nothing", statesMax, m.scope)
	case code == 0 && m.planned:
		return stalePlan + ", for it breaks nothing under the patch, and nothing else finds that"
	case code == 0:
		return fmt.Sprintf("%d seeds found nothing", seeds)
	case code != 1:
		return fmt.Sprintf("the simulator ended with exit code %d instead of a finding:\n%s", code, tail(report))
	}
	for _, p := range m.properties {
		if !mentions(report, p) {
			return fmt.Sprintf("something was found, but not a breach of %s:\n%s", p, tail(report))
		}
	}
	return ""
}

// args are what the simulator is run with: seeds, or the mutant's scope or plan.
func (s scratch) args(m mutant, seeds int) []string {
	switch {
	case m.planned:
		return []string{"sim", "replay", "--plan", s.planOf(m)}
	case m.scope != "":
		return []string{"sim", "explore", "--scope", m.scope, "--states", fmt.Sprint(statesMax)}
	}
	profile := cmp.Or(m.profile, "swarm")
	return []string{"sim", "run", "--seeds", fmt.Sprint(seeds), "--profile", profile}
}

// report is what the simulator says, or the mutant's test.
func (s scratch) report(ctx context.Context, m mutant, command string, args []string) ([]byte, int, error) {
	if m.test == "" {
		return s.simulate(ctx, command, args)
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	name, folder, ok := strings.Cut(m.test, " of ")
	if !ok {
		folder = "sim"
	}
	run := exec.CommandContext(ctx, "go", "test", "-short", "-run", "^"+name+"$", "./"+folder)
	run.Dir = s.dir
	run.Env = append(os.Environ(), "CGO_ENABLED=0")
	report, err := run.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return nil, 0, fmt.Errorf("it took longer than %v", s.timeout)
	case bytes.Contains(report, []byte("[build failed]")):
		return nil, 0, fmt.Errorf("it does not compile:\n%s", tail(report))
	case errors.As(err, &exit):
		return report, exit.ExitCode(), nil
	default:
		return report, 0, err
	}
}

// simulate builds a command of the copy as it is and runs it. Paths are left out of what is built, so that packages
// without a defect are taken from another copy's build.
func (s scratch) simulate(ctx context.Context, command string, args []string) (report []byte, code int, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", s.binary, command)
	build.Dir = s.dir
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, 0, fmt.Errorf("it does not compile: %w\n%s", err, tail(out))
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
