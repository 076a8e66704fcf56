package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"time"
)

// options of a hunt.
type options struct {
	timeout time.Duration // of one mutant, to build it and to find it
	plans   string        // folder of the kept plans
	keep    bool          // write them anew

	fallback bool // what is not found quickly is looked for in full
}

var planWritten = regexp.MustCompile(`(?m)^again with: kvferry sim replay --plan (\S+)$`)

const stalePlan = "its kept plan is stale"

// plan looks after the kept plan of a mutant while its patch is applied: a plan that no longer breaks
// under it is stale, which is what the answer says. With keep it writes a new one, from the minimised
// plan of the report, once that was seen not to break without the patch.
func (s scratch) plan(ctx context.Context, m mutant, report []byte) (stale string, err error) {
	kept := s.planOf(m)
	if s.keep {
		found := planWritten.FindSubmatch(report)
		if found == nil {
			return "the report names no plan to keep:\n" + tail(report), nil
		}
		text, code, err := s.replay(ctx, s.healthy, string(found[1]), "--write-plan", kept, "--defect", m.what)
		if err != nil || code != 0 {
			return fmt.Sprintf("its plan cannot be kept:\n%s", tail(text)), err
		}
	}
	if _, err := os.Stat(kept); errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	text, code, err := s.replay(ctx, s.binary, kept)
	if err == nil && code != 1 {
		return fmt.Sprintf("%s, for it breaks nothing under the patch; make it anew with make regressions:\n%s", stalePlan,
			tail(text)), nil
	}
	return "", err
}

// planOf is the file of a mutant's kept plan.
func (s scratch) planOf(m mutant) string { return filepath.Join(s.plans, m.name+".yaml") }

func (s scratch) replay(ctx context.Context, binary, plan string, args ...string) ([]byte, int, error) {
	cmd := exec.CommandContext(ctx, binary, append([]string{"sim", "replay", "--plan", plan}, args...)...)
	cmd.Dir = s.dir
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return out, exit.ExitCode(), nil
	}
	return out, 0, err
}
