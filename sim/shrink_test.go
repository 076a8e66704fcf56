package sim

import (
	"context"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/expand"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems"
)

// noFailedPut is not a promise of kvferry: a put may fail because its transfer fails.
var noFailedPut = oracle.New("no-failed-put", "", func(l *oracle.Subscriptions[struct{}]) {
	oracle.On(l, func(_ *struct{}, c *oracle.Call, e *effects.Deliver) {
		if c.IsSender() && e.Code == effects.Faulted {
			c.Fail("node %d ends a command as %s", c.Node(), e.Code)
		}
	})
})

// TestShrink: whatever the seed, the shrunk plan has one job and the one strike that the failure needs, and is the same
// plan each time.
func TestShrink(t *testing.T) {
	small := 0
	for seed := range uint64(60) {
		p, err := systems.Expand(seed, expand.DefaultProfile)
		if err != nil {
			t.Fatal(err)
		}
		o := ShrinkOptions{Oracles: []oracle.Oracle{noFailedPut}, Runs: 1500}
		s, err := Shrink(context.Background(), p, o)
		if err != nil {
			t.Fatal(err)
		}
		if s.Failure == nil {
			continue
		}
		again := mustRun(t, Options{Plan: &s.Plan, Oracles: o.Oracles})
		if again.Failure == nil || again.Failure.Property != noFailedPut.Name || again.Failure.Story != s.Failure.Story {
			t.Fatalf("seed %d: the shrunk plan does not fail as it was said to: %v", seed, again.Failure)
		}
		if len(again.UnusedFaults) > 0 {
			t.Errorf("seed %d: the shrunk plan keeps what it does not need: %v", seed, again.UnusedFaults)
		}
		if len(s.Plan.Jobs) == 1 && len(s.Plan.Jobs[0].Keys) == 1 && len(s.Plan.Strikes)+len(s.Plan.Faults) <= 2 {
			small++
		} else {
			t.Logf("seed %d: %d jobs, %d faults and %d strikes are left", seed, len(s.Plan.Jobs), len(s.Plan.Faults),
				len(s.Plan.Strikes))
		}
		if small == 3 {
			twice, err := Shrink(context.Background(), p, o)
			if err != nil {
				t.Fatal(err)
			}
			a, _ := s.Plan.Text()
			b, _ := twice.Plan.Text()
			if string(a) != string(b) {
				t.Errorf("seed %d shrinks to\n%s\nand to\n%s", seed, a, b)
			}
			return
		}
	}
	t.Errorf("%d plans of 60 seeds became one job of one chunk; want 3", small)
}

// TestShrinkIsBounded: at its limit Shrink returns the best plan found so far.
func TestShrinkIsBounded(t *testing.T) {
	p := failingPlan(t)
	s, err := Shrink(context.Background(), p, ShrinkOptions{Runs: 5, Oracles: []oracle.Oracle{noFailedPut}})
	if err != nil || s.Failure == nil || s.Runs > 5 || !s.Incomplete {
		t.Errorf("five runs: %d, cut %v, %v", s.Runs, s.Incomplete, err)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	s, err = Shrink(ended, p, ShrinkOptions{Oracles: []oracle.Oracle{noFailedPut}})
	if err != nil || s.Failure == nil || s.Runs != 1 || !s.Incomplete {
		t.Errorf("no time: %d runs, cut %v, %v", s.Runs, s.Incomplete, err)
	}
	if s, err := Shrink(context.Background(), plan.New(), ShrinkOptions{}); err != nil || s.Failure != nil {
		t.Errorf("a plan that breaks nothing: %v, %v", s.Failure, err)
	}
}

// failingPlan returns the plan of a seed in which a put fails.
func failingPlan(t *testing.T) plan.Plan {
	t.Helper()
	for seed := range uint64(200) {
		p, err := systems.Expand(seed, expand.DefaultProfile)
		if err != nil {
			t.Fatal(err)
		}
		if r := mustRun(t, Options{Plan: &p, Oracles: []oracle.Oracle{noFailedPut}}); r.Failure != nil {
			return p
		}
	}
	t.Fatal("no put failed in 200 seeds")
	return plan.Plan{}
}

// TestShrinkShortFaults: durations that are rounded to zero, one fault after the other, do not confuse the passes.
func TestShrinkShortFaults(t *testing.T) {
	p := plan.New()
	p.Jobs = []plan.Job{{From: 0, To: 1, Keys: []uint32{1}, Batch: 1}}
	for i := range 4 {
		p.Faults = append(p.Faults, plan.ScheduledFault{At: time.Duration(i) * 7 * time.Millisecond, Fault: plan.FaultPause,
			Node: plan.Node(i % 2), For: time.Duration(3+i) * time.Millisecond})
	}
	paused := oracle.New("two-pauses", "", func(l *oracle.Subscriptions[struct{}]) {
		oracle.On(l, func(_ *struct{}, c *oracle.Call, e RunEnded) {
			if n := e.Result.Faults[plan.FaultPause.String()]; n >= 2 {
				c.Fail("%d pauses", n)
			}
		})
	})
	s, err := Shrink(context.Background(), p, ShrinkOptions{Oracles: []oracle.Oracle{paused}, Runs: 300})
	if err != nil || s.Failure == nil {
		t.Fatalf("%v, %v", s.Failure, err)
	}
	if len(s.Plan.Faults) != 2 || len(s.Plan.Jobs) != 0 {
		t.Errorf("%d faults and %d jobs are left; want 2 and none", len(s.Plan.Faults), len(s.Plan.Jobs))
	}
}
