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

	"github.com/kvferry/kvferry/tools/mutants/table"
)

// options holds the options of a hunt.
type options struct {
	table     string        // file of the mutants
	plans     string        // folder of the kept plans
	timeout   time.Duration // of one mutant, to build it and to find it
	keepPlans bool          // write the kept plans anew
	record    bool          // write into the table how each mutant was found
	fallback  bool          // a mutant that a quick hunt does not find is looked for in full
}

// A hunter builds the work tree with and without defects, and runs the binaries in a temporary folder.
type hunter struct {
	options
	dir      string            // the temporary folder
	healthy  string            // the binary without any defect
	combined string            // the overlay file with all mutants that a build can switch between
	numbers  map[string]int    // the numbers of these mutants, by name
	built    map[string]string // the binaries with combined mutants, by command
	current  defect
}

// A defect is how builds and runs get the defect of the current mutant.
type defect struct {
	overlay string // the overlay file, or "" for none
	number  int    // the number among the combined mutants, or 0
	binary  string // the binary that was built last
}

// statesMax bounds the exploration of a scope in which a defect is looked for.
const statesMax = 400_000

// huntMutants runs all checks without a defect, which must pass, and then tries each mutant, whose check must fail. A
// mutant that is found although its kept plan no longer fails counts as failed too.
func huntMutants(ctx context.Context, w io.Writer, mutants []table.Mutant, seeds int, o options) (finds []finding, failed int,
	err error) {
	h, done, err := newHunter(mutants, o)
	if err != nil {
		return nil, 0, err
	}
	defer done()
	if err := h.checkHealthy(ctx, mutants, seeds); err != nil {
		return nil, 0, err
	}
	return h.tryAll(ctx, w, mutants, func(m *table.Mutant) (finding, string, error) {
		found, verdict, err := h.tryMutant(ctx, m, seeds)
		if err == nil && verdict == "" && h.record {
			err = table.RecordFound(h.table, m.Name, found.how)
		}
		return found, verdict, err
	})
}

// newHunter returns a hunter with a temporary folder. The caller must call done to remove the folder.
func newHunter(mutants []table.Mutant, o options) (h *hunter, done func(), err error) {
	dir, err := os.MkdirTemp("", "kvferry-mutants-")
	if err != nil {
		return nil, nil, err
	}
	done = func() { _ = os.RemoveAll(dir) } // The system clears its temporary folder too.
	h = &hunter{options: o, dir: dir, healthy: filepath.Join(dir, "healthy"), built: map[string]string{}}
	h.plans, err = filepath.Abs(o.plans)
	if err == nil {
		err = h.combine(mutants)
	}
	if err != nil {
		done()
		return nil, nil, err
	}
	return h, done, nil
}

// combine writes the overlay with the mutants that one build can have all at once.
func (h *hunter) combine(mutants []table.Mutant) error {
	files, numbers, err := table.Combine(".", mutants)
	if err != nil {
		return err
	}
	h.numbers = numbers
	dir := filepath.Join(h.dir, "combined")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	h.combined, err = table.WriteOverlay(dir, ".", files)
	return err
}

// tryAll tries each mutant in turn and prints the result.
func (h *hunter) tryAll(ctx context.Context, w io.Writer, mutants []table.Mutant,
	try func(*table.Mutant) (found finding, verdict string, err error)) (finds []finding, failed int, err error) {
	for i := range mutants {
		m, start := &mutants[i], time.Now()
		found, verdict, err := try(m)
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return finds, failed, fmt.Errorf("%s: %w", m.Name, err)
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
		fmt.Fprintf(w, "%s %-36s %6.1f s  %-24s %s\n", word, m.Name, time.Since(start).Seconds(), found, m.What)
		if verdict != "" {
			fmt.Fprintf(w, "       %s\n", strings.ReplaceAll(strings.TrimSpace(verdict), "\n", "\n       "))
		}
	}
	return finds, failed, nil
}

// checkHealthy returns an error if a check fails without a defect: a profile, scope, test or plan that a mutant names.
func (h *hunter) checkHealthy(ctx context.Context, mutants []table.Mutant, seeds int) error {
	if err := h.buildCommand(ctx, h.healthy, "./cmd/kvferry"); err != nil {
		return err
	}
	tried := map[string]bool{}
	for i := range mutants {
		m := &mutants[i]
		args := h.kvferryArgs(m, seeds)
		check := strings.Join(append(args, m.Test), " ")
		if tried[check] {
			continue
		}
		tried[check] = true
		report, code, err := h.runCheck(ctx, m, h.healthy, args)
		if err != nil {
			return err
		}
		if code != 0 {
			return fmt.Errorf("without any defect, the check that finds %s ended with exit code %d; correct that first:\n%s",
				m.Name, code, outputTail(report))
		}
	}
	return nil
}

// tryMutant runs the full check of m. It returns how m was found, and the reason that this does not count, or "".
func (h *hunter) tryMutant(ctx context.Context, m *table.Mutant, seeds int) (found finding, verdict string, err error) {
	verdict, err = h.withDefect(m, func() (string, error) {
		if err := h.buildFor(ctx, m, "./cmd/kvferry"); err != nil {
			return err.Error(), nil
		}
		report, code, err := h.runCheck(ctx, m, h.current.binary, h.kvferryArgs(m, seeds))
		if err != nil {
			return err.Error(), nil
		}
		found = parseFinding(m, report)
		verdict := missedReason(m, report, code, seeds)
		switch {
		case verdict != "":
			return verdict, nil
		case found.how.By == "":
			return "the report does not say which check found the defect:\n" + outputTail(report), nil
		case found.how.By != "seed":
			return "", nil
		}
		return h.checkPlan(ctx, m, report)
	})
	return found, verdict, err
}

// withDefect calls do while builds have the defect of m.
func (h *hunter) withDefect(m *table.Mutant, do func() (string, error)) (verdict string, err error) {
	defer func() { h.current = defect{} }()
	if n := h.numbers[m.Name]; n > 0 {
		h.current = defect{overlay: h.combined, number: n}
		return do()
	}
	changed, err := m.Apply(".")
	if err != nil {
		return fmt.Sprintf("its edits do not apply; correct them: %v", err), nil
	}
	h.current.overlay, err = table.WriteOverlay(h.dir, ".", changed)
	if err != nil {
		return "", err
	}
	return do()
}

// kvferryArgs returns the arguments of kvferry for the check of a mutant: seeds, a scope or a plan.
func (h *hunter) kvferryArgs(m *table.Mutant, seeds int) []string {
	switch {
	case m.Plan != "":
		return []string{"sim", "replay", "--plan", h.planOf(m)}
	case m.Scope != "":
		return []string{"sim", "explore", "--scope", m.Scope, "--states", fmt.Sprint(statesMax)}
	}
	return []string{"sim", "run", "--seeds", fmt.Sprint(seeds), "--profile", cmp.Or(m.Profile, "swarm")}
}

// runCheck runs a binary, or the mutant's test, and returns the output and the exit code. It fails if the check takes
// longer than the timeout.
func (h *hunter) runCheck(ctx context.Context, m *table.Mutant, binary string, args []string) ([]byte, int, error) {
	ctx, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	cmd := h.command(ctx, binary, args...)
	if m.Test != "" {
		name, folder, ok := strings.Cut(m.Test, " of ")
		if !ok {
			folder = "sim"
		}
		cmd = h.goTool(ctx, "test", "-short", "-run", "^"+name+"$", "./"+folder)
	}
	report, code, err := runCommand(cmd)
	switch {
	case ctx.Err() != nil:
		return nil, 0, fmt.Errorf("it took longer than %v", h.timeout)
	case m.Test != "" && bytes.Contains(report, []byte("[build failed]")):
		return nil, 0, fmt.Errorf("it does not compile:\n%s", outputTail(report))
	}
	return report, code, err
}

// buildFor builds a command with the current defect, unless the mutant is found by a test.
func (h *hunter) buildFor(ctx context.Context, m *table.Mutant, command string) error {
	if m.Test != "" {
		return nil
	}
	return h.buildCurrent(ctx, command)
}

// buildCurrent builds a command with the current defect. A binary with combined mutants is built once.
func (h *hunter) buildCurrent(ctx context.Context, command string) error {
	h.current.binary = filepath.Join(h.dir, "kvferry")
	switch {
	case h.current.number == 0:
		return h.buildCommand(ctx, h.current.binary, command)
	case h.built[command] == "":
		binary := filepath.Join(h.dir, "combined-"+filepath.Base(command))
		if err := h.buildCommand(ctx, binary, command); err != nil {
			return err
		}
		h.built[command] = binary
	}
	h.current.binary = h.built[command]
	return nil
}

func (h *hunter) buildCommand(ctx context.Context, binary, command string) error {
	ctx, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	out, code, err := runCommand(h.goTool(ctx, "build", "-buildvcs=false", "-o", binary, command))
	if err == nil && code != 0 {
		err = fmt.Errorf("exit code %d", code)
	}
	if err != nil {
		return fmt.Errorf("it does not compile: %w\n%s", err, outputTail(out))
	}
	return nil
}

// command returns a command that runs a binary with the current defect.
func (h *hunter) command(ctx context.Context, binary string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir, cmd.Env = h.dir, h.environment()
	return cmd
}

// goTool returns a go command that builds with the current defect.
func (h *hunter) goTool(ctx context.Context, command string, args ...string) *exec.Cmd {
	flags := []string{command, "-trimpath"}
	if h.current.overlay != "" {
		flags = append(flags, "-overlay="+h.current.overlay)
	}
	cmd := exec.CommandContext(ctx, "go", append(flags, args...)...)
	cmd.Env = append(h.environment(), "CGO_ENABLED=0")
	return cmd
}

// environment returns the environment of commands that run with the current defect.
func (h *hunter) environment() []string {
	return append(os.Environ(), fmt.Sprintf("%s=%d", table.ActiveVariable, h.current.number))
}

// runCommand runs a command and returns the output and the exit code. An exit code other than 0 is not an error.
func runCommand(cmd *exec.Cmd) (out []byte, code int, err error) {
	out, err = cmd.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return out, exit.ExitCode(), nil
	}
	return out, 0, err
}

// outputTail returns the end of a long output, which usually has the reason of a failure.
func outputTail(out []byte) string {
	const maxBytes = 2000
	if len(out) > maxBytes {
		out = out[len(out)-maxBytes:]
	}
	return string(out)
}
