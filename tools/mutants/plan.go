package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"github.com/kvferry/kvferry/tools/mutants/table"
)

var planWritten = regexp.MustCompile(`(?m)^repeat with: kvferry sim replay --plan (\S+)$`)

const stalePlan = "its kept plan is stale"

// checkPlan runs the kept plan of a mutant with the mutant's defect. If the plan does not fail any more, the plan is
// stale, and checkPlan returns a text that says so. With keepPlans, checkPlan first replaces the kept plan by the
// minimised plan of the report, after a check that the new plan does not fail without the defect.
func (h *hunter) checkPlan(ctx context.Context, m *table.Mutant, report []byte) (stale string, err error) {
	kept := h.planOf(m)
	if h.keepPlans {
		found := planWritten.FindSubmatch(report)
		if found == nil {
			return "the report names no plan to keep:\n" + outputTail(report), nil
		}
		text, code, err := h.replayPlan(ctx, h.healthy, string(found[1]), "--write-plan", kept, "--defect", m.What)
		if err != nil || code != 0 {
			return fmt.Sprintf("its plan cannot be kept:\n%s", outputTail(text)), err
		}
	}
	if _, err := os.Stat(kept); errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	text, code, err := h.replayPlan(ctx, h.current.binary, kept)
	if err == nil && code != 1 {
		return fmt.Sprintf("%s: it does not fail with the defect; rewrite it with make regressions:\n%s", stalePlan,
			outputTail(text)), nil
	}
	return "", err
}

// planOf returns the file name of a mutant's kept plan.
func (h *hunter) planOf(m *table.Mutant) string { return filepath.Join(h.plans, m.Name+".yaml") }

func (h *hunter) replayPlan(ctx context.Context, binary, plan string, args ...string) ([]byte, int, error) {
	return runCommand(h.command(ctx, binary, append([]string{"sim", "replay", "--plan", plan}, args...)...))
}
