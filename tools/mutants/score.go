package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/kvferry/kvferry/tools/mutants/table"
)

// The ways in which a mutant can be found by scoreMutants.
const (
	byCampaign = "campaign"
	byTest     = "test"
	byNothing  = "nothing"
)

// scoreMutants tries each mutant as a user would meet the defect: by a campaign over all profiles on one core, and if
// that finds nothing, by the tests of the state machines. A seed counts only if it does not fail without the defect.
// The entries need no properties; any failure counts. A class in the field like, as in "class A; ...", is counted by
// itself.
func scoreMutants(ctx context.Context, w io.Writer, mutants []table.Mutant, campaign time.Duration, o options) error {
	h, done, err := newHunter(mutants, o)
	if err != nil {
		return err
	}
	defer done()
	if err := h.buildCommand(ctx, h.healthy, seekFolder); err != nil {
		return err
	}
	t := scoreTable{counts: map[string]map[string]int{}}
	for i := range mutants {
		m, start := &mutants[i], time.Now()
		var by, how string
		verdict, err := h.withDefect(m, func() (string, error) {
			var err error
			by, how, err = h.tryCampaign(ctx, m, campaign)
			if err == nil && by == byNothing {
				by, how, err = h.tryTests(ctx, m)
			}
			return "", err
		})
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("%s: %w", m.Name, err)
		}
		if verdict != "" {
			by, how = "invalid", verdict
		}
		fmt.Fprintf(w, "%-8s %-40s %6.1f s  %s\n", by, m.Name, time.Since(start).Seconds(), how)
		t.add(m, by)
	}
	t.print(w)
	return nil
}

// mixedProfile is the name by which seek takes the profiles in turn (sim.MixedProfile).
const mixedProfile = "all"

const seekFolder = "./tools/mutants/seek"

// tryCampaign runs seeds of all profiles on one core, until one fails that does not fail without the defect.
func (h *hunter) tryCampaign(ctx context.Context, m *table.Mutant, campaign time.Duration) (by, how string, err error) {
	if err := h.buildCurrent(ctx, seekFolder); err != nil {
		return "", "", err
	}
	for first := 0; ; {
		args := []string{"-time", campaign.String(), mixedProfile, fmt.Sprint(first), "1000000000"}
		report, code, err := h.runOnOneCore(ctx, h.current.binary, args)
		switch {
		case err != nil:
			return "", "", err
		case code == 0:
			return byNothing, "", nil
		case code == 2:
			return byCampaign, "the simulator crashed: " + firstLine(string(report)), nil
		case code == killed:
			return byNothing, "the campaign did not end within " + h.timeout.String(), nil
		case code != 1:
			return "", "", fmt.Errorf("the campaign failed with exit code %d:\n%s", code, outputTail(report))
		}
		seed := firstFailing(report)
		healthy, code, err := h.runOnOneCore(ctx, h.healthy, []string{mixedProfile, fmt.Sprint(seed), "1"})
		if err != nil {
			return "", "", err
		}
		if code == 0 {
			return byCampaign, firstLine(string(report)), nil
		}
		fmt.Printf("seed %d fails without %s too: %s\n", seed, m.Name, firstLine(string(healthy)))
		first = seed + 1
	}
}

// killed is the exit code of a process that a signal ended, as the limit of its time does.
const killed = -1

// runOnOneCore runs a binary with one thread for its goroutines.
func (h *hunter) runOnOneCore(ctx context.Context, binary string, args []string) ([]byte, int, error) {
	ctx, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	cmd := h.command(ctx, binary, args...)
	cmd.Env = append(cmd.Env, "GOMAXPROCS=1")
	return runCommand(cmd)
}

var failedTest = regexp.MustCompile(`(?m)^--- FAIL: (\S+)`)

// tryTests runs the tests of the state machines.
func (h *hunter) tryTests(ctx context.Context, m *table.Mutant) (by, how string, err error) {
	ctx, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	report, code, err := runCommand(h.goTool(ctx, "test", "-short", "-count=1", "./fsm/...", "./effects/..."))
	if err == nil {
		err = ctx.Err()
	}
	if err != nil || code == 0 {
		return byNothing, "", err
	}
	names := map[string]bool{}
	for _, found := range failedTest.FindAllSubmatch(report, -1) {
		names[string(found[1])] = true
	}
	if len(names) == 0 {
		return byTest, firstLine(outputTail(report)), nil
	}
	return byTest, strings.Join(slices.Sorted(maps.Keys(names)), ", "), nil
}

// A scoreTable counts by what mutants were found, for each class and each room.
type scoreTable struct{ counts map[string]map[string]int }

var classOf = regexp.MustCompile(`^(class \w+);`)

func (t *scoreTable) add(m *table.Mutant, by string) {
	rooms := map[string]bool{"all": true}
	if class := classOf.FindStringSubmatch(m.Like); class != nil {
		rooms[class[1]] = true
	}
	for _, e := range m.Edits {
		folder, _, _ := strings.Cut(path.Base(e.In), ".")
		rooms[path.Join(path.Dir(e.In), folder)] = true
	}
	for room := range rooms {
		if t.counts[room] == nil {
			t.counts[room] = map[string]int{}
		}
		t.counts[room][by]++
	}
}

func (t *scoreTable) print(w io.Writer) {
	fmt.Fprintf(w, "\n%-32s %9s %6s %9s\n", "", byCampaign, byTest, byNothing)
	for _, room := range slices.Sorted(maps.Keys(t.counts)) {
		c := t.counts[room]
		fmt.Fprintf(w, "%-32s %9d %6d %9d\n", room, c[byCampaign], c[byTest], c[byNothing])
	}
}
