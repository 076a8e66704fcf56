// Package simtest runs the simulator from go test, for the continuous integration of a project that embeds kvferry. A
// test provides a topology, a workload and promises of its own, and runs any number of seeds, each of which draws
// different faults.
//
// For example, the following test promises that no command is refused because of a drain, unless some node was asked to
// drain. The oracle keeps a bool in each run, and receives each command that a node receives, and each outcome:
//
//	var noDrain = oracle.New("no-drain", "no command is refused for a drain that was never asked for",
//		func(l *oracle.Subscriptions[bool]) {
//			oracle.On(l, func(drained *bool, c *oracle.Call, e *effects.Command) {
//				if _, ok := e.Body.(*rank.Drain); ok {
//					*drained = true
//				}
//			})
//			oracle.On(l, func(drained *bool, c *oracle.Call, e *effects.Deliver) {
//				if e.Code == effects.Draining && !*drained {
//					c.Fail("node %d refuses ticket %d although no node drains", c.Node(), oracle.Ticket(e.Ticket))
//				}
//			})
//		})
//
//	func TestNoDrain(t *testing.T) {
//		simtest.Check(t, simtest.Case{Oracles: []oracle.Oracle{noDrain}})
//	}
//
// If a seed fails, [Check] reduces the plan of the failure, writes the plan under testdata/kvferry together with a page
// that shows the run, and prints the command that runs the plan again, with [ReplayEnv] set to the plan.
// docs/first-oracle.md explains how to write an oracle and how to see it fail.
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

// ReplayEnv is the name of an environment variable. If the variable is set to a seed, or to the file of a plan, [Check]
// runs only this seed or plan.
const ReplayEnv = "KVFERRY_REPLAY"

// DefaultSeeds is the number of seeds of a Case that sets no number. With -short a tenth of them run.
const DefaultSeeds = 200

// A Case selects what to run and what must hold in addition to the promises of kvferry.
type Case struct {
	// Seeds is the number of seeds; 0 means DefaultSeeds.
	Seeds uint64
	// System is the system to run; nil means sim.PD.
	System *sim.System
	// Profile narrows the draws; empty means sim.DefaultProfile. Profile has no effect if Plan is set.
	Profile string
	// Plan draws the plan of a seed, often as a fixed plan with drawn faults: see [sim.Plan.WithFaults]. Several
	// goroutines call Plan at the same time.
	Plan func(seed uint64) sim.Plan
	// Oracles judge promises of the caller.
	Oracles []oracle.Oracle
	// ShrinkRuns limits the number of runs that reduce a failing plan; 0 means sim.DefaultShrinkRuns.
	ShrinkRuns int
}

// Check runs the case on all cores and fails t if any seed breaks a promise. Check reports the failure of the lowest
// such seed.
func Check(t testing.TB, c Case) {
	t.Helper()
	if target := os.Getenv(ReplayEnv); target != "" {
		c.replayTarget(t, target)
		return
	}
	seeds := c.Seeds
	if seeds == 0 {
		seeds = DefaultSeeds
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
		t.Fatalf("%d of %d seeds failed\n%s", s.Failed, s.Seeds, c.shrinkAndSave(t, s.First))
	}
}

// drawSeed returns the plan of a seed.
func (c *Case) drawSeed(t testing.TB, seed uint64) sim.Plan {
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

// shrinkAndSave reduces a failure, writes its plan and page, and returns the description of the failure.
func (c *Case) shrinkAndSave(t testing.TB, f *sim.Failure) string {
	t.Helper()
	s, err := sim.Shrink(context.WithoutCancel(t.Context()), c.drawSeed(t, f.Seed), sim.ShrinkOptions{Runs: c.ShrinkRuns,
		System: c.System, Oracles: c.Oracles})
	if err != nil {
		t.Fatal(err)
	}
	if s.Failure == nil {
		t.Fatalf("seed %d broke %s, but not when it was run again: does an oracle keep state from one run to the next?\n%s",
			f.Seed, f.Property, f)
	}
	file := filepath.Join("testdata", "kvferry", strings.ReplaceAll(t.Name(), "/", "-")+".yaml")
	if err := s.Plan.Write(file); err != nil {
		t.Fatal(err)
	}
	s.Failure.ReplayOverride = fmt.Sprintf("%s=%s go test -run '%s'", ReplayEnv, file, runPattern(t.Name()))
	explained, trace := sim.Explain(s.Failure, sim.Options{Plan: &s.Plan, System: c.System, Oracles: c.Oracles})
	if trace != nil {
		explained.Page = strings.TrimSuffix(file, ".yaml") + ".html"
		if err := report.WriteFile(explained.Page, trace); err != nil {
			t.Fatal(err)
		}
	}
	return explained.String()
}

// runPattern returns the argument of -run for one test.
func runPattern(name string) string { return "^" + strings.ReplaceAll(name, "/", "$/^") + "$" }

// replayTarget runs a single seed or plan.
func (c *Case) replayTarget(t testing.TB, target string) {
	t.Helper()
	var p sim.Plan
	if seed, err := strconv.ParseUint(target, 10, 64); err == nil {
		p = c.drawSeed(t, seed)
	} else if p, err = sim.ReadPlan(target); err != nil {
		t.Fatal(err)
	}
	r, err := sim.Run(sim.Options{Plan: &p, System: c.System, Oracles: c.Oracles})
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range sim.StaleReasons(&p, &r) {
		t.Logf("stale: %s", line)
	}
	if r.Failure != nil {
		r.Failure.ReplayOverride = fmt.Sprintf("%s=%s go test -run '%s'", ReplayEnv, target, runPattern(t.Name()))
		explained, _ := sim.Explain(r.Failure, sim.Options{Plan: &p, System: c.System, Oracles: c.Oracles})
		t.Fatal(explained)
	}
}
