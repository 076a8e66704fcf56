// Package simtest runs the simulator from go test: a topology and a workload of your
// own, promises of your own, seeds, and one line that replays what failed.
//
//	func TestMyPromise(t *testing.T) {
//		simtest.Check(t, simtest.Case{Properties: []sim.Property{mine}})
//	}
//
// A failure is made smaller, kept under testdata/kvferry as a plan and as a page to look
// at, and told with the line that runs it again, which sets [Replay] to the plan.
package simtest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/sim"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/report"
)

// Replay is the environment variable that makes [Check] run one thing alone: the seed,
// or the file of a plan, that is its value.
const Replay = "KVFERRY_REPLAY"

// SeedsDefault is how many seeds a Case runs that says nothing else; a tenth with -short.
const SeedsDefault = 200

// A Case is what to run, and what has to hold besides the promises of kvferry.
type Case struct {
	// Seeds is how many; 0 is SeedsDefault.
	Seeds uint64
	// System is what runs; nil is sim.PD.
	System *sim.System
	// Profile narrows what is drawn; empty is sim.DefaultProfile. It does not matter if
	// Plan is given.
	Profile string
	// Plan draws the plan of a seed instead, often a fixed one whose faults alone are
	// drawn: see [sim.Plan.WithFaults]. It is called from several goroutines.
	Plan func(seed uint64) sim.Plan
	// Oracles judge promises of the caller's own.
	Oracles []oracle.Oracle
	// ShrinkRuns bounds how long a failing plan is made smaller; 0 is sim.DefaultShrinkRuns.
	ShrinkRuns int
}

// Check runs the case on all cores and fails t with the first broken promise.
func Check(t testing.TB, c Case) {
	t.Helper()
	if one := os.Getenv(Replay); one != "" {
		c.replay(t, one)
		return
	}
	seeds := c.Seeds
	if seeds == 0 {
		seeds = SeedsDefault
		if testing.Short() {
			seeds /= 10
		}
	}
	o := sim.CampaignOptions{Seeds: seeds, Workers: runtime.GOMAXPROCS(0), Profile: c.Profile, System: c.System,
		Oracles: c.Oracles}
	if c.Plan != nil {
		o.Plan = func(seed uint64) (sim.Plan, error) { return c.Plan(seed), nil }
	}
	s, err := sim.Campaign(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if s.First != nil {
		t.Fatalf("%d of %d seeds failed\n%s", s.Failed, s.Seeds, c.keep(t, s.First))
	}
}

func (c *Case) plan(t testing.TB, seed uint64) sim.Plan {
	t.Helper()
	if c.Plan != nil {
		return c.Plan(seed)
	}
	p, err := c.System.Expand(seed, c.Profile)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// keep makes a failure smaller, writes its plan, and tells the story.
func (c *Case) keep(t testing.TB, f *sim.Failure) string {
	t.Helper()
	s, err := sim.Shrink(context.WithoutCancel(t.Context()), c.plan(t, f.Seed), sim.ShrinkOptions{Runs: c.ShrinkRuns,
		System: c.System, Oracles: c.Oracles})
	if err != nil {
		t.Fatal(err)
	}
	if s.Failure == nil {
		t.Fatalf("seed %d broke %s, and did not when it was run again: does a property remember one run in the next?\n%s",
			f.Seed, f.Property, f)
	}
	file := filepath.Join("testdata", "kvferry", strings.ReplaceAll(t.Name(), "/", "-")+".yaml")
	if err := s.Plan.Write(file); err != nil {
		t.Fatal(err)
	}
	s.Failure.Again = fmt.Sprintf("%s=%s go test -run '%s'", Replay, file, pattern(t.Name()))
	told, trace := sim.Explain(s.Failure, sim.Options{Plan: &s.Plan, System: c.System, Oracles: c.Oracles})
	if trace != nil {
		told.Page = strings.TrimSuffix(file, ".yaml") + ".html"
		if err := report.WriteFile(told.Page, trace); err != nil {
			t.Fatal(err)
		}
	}
	return told.String()
}

// pattern is the -run argument for one test.
func pattern(name string) string { return "^" + strings.ReplaceAll(name, "/", "$/^") + "$" }

// replay runs one seed or one plan.
func (c *Case) replay(t testing.TB, one string) {
	t.Helper()
	var p sim.Plan
	if seed, err := strconv.ParseUint(one, 10, 64); err == nil {
		p = c.plan(t, seed)
	} else if p, err = sim.ReadPlan(one); err != nil {
		t.Fatal(err)
	}
	r, err := sim.Run(sim.Options{Plan: &p, System: c.System, Oracles: c.Oracles})
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range sim.Stale(&p, &r) {
		t.Logf("stale: %s", line)
	}
	if r.Failure != nil {
		r.Failure.Again = fmt.Sprintf("%s=%s go test -run '%s'", Replay, one, pattern(t.Name()))
		told, _ := sim.Explain(r.Failure, sim.Options{Plan: &p, System: c.System, Oracles: c.Oracles})
		t.Fatal(told)
	}
}
