package explore_test

import (
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/kvferry/kvferry/sim"
	"github.com/kvferry/kvferry/sim/explore"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems"
)

// small lists scopes of every kind, most of which take at most a second; make scopes also explores the larger scopes.
// compared lists scopes that are also explored a second time stepwise, and slow lists the scopes for which only make
// scopes does so.
var (
	small = []string{"push", "batch", "batches", "early", "waiter", "leased", "push-abort",
		"push-crash-receiver", "push-crash-sender", "push-lost", "leased-crash", "leased-stall",
		"push-device", "push-refused", "push-again", "leased-device", "leased-lost", "push-any",
		"pull", "pull-batch", "pull-crash-sender", "pull-device", "pull-doubled", "pull-lost", "leased-pull",
		"leased-pull-abort", "leased-pull-device", "leased-pull-lost",
		"delayed", "delayed-batch", "delayed-abandon", "delayed-crash-sender", "delayed-device",
		"delayed-early", "delayed-lost", "leased-delayed",
		"leased-delayed-device", "leased-delayed-lost", "agent", "agent-cut"}
	larger = []string{"full", "push-cut", "push-stall", "batch-any", "pull-abort", "delayed-abort", "delayed-cut",
		"leased-any", "leased-pull-stall", "leased-delayed-abort",
		"leased-full", "leased-pull-crash", "leased-delayed-crash", "leased-delayed-stall",
		"leased-delayed-drain", "delayed-stall", "delayed-crash-receiver", "agent-exit", "agent-abort", "agent-detach"}
	compared = []string{"batches", "early", "push-abort", "push-crash-sender", "push-lost",
		"push-device", "push-refused", "push-again", "pull-doubled", "pull-lost", "leased-pull-device", "leased-pull-lost",
		"delayed-batch", "delayed-abandon", "delayed-device", "delayed-early", "leased-delayed", "leased-delayed-lost",
		"agent"}
	slow = []string{"waiter", "full", "leased-full", "push-cut", "push-stall", "push-any", "push-crash-receiver",
		"leased-crash", "pull-abort", "pull-device", "leased-pull-abort",
		"leased-pull-stall", "delayed-abort", "delayed-crash-receiver", "leased-delayed-crash", "agent-cut", "agent-exit",
		"agent-abort", "agent-detach"}
)

func findScope(t testing.TB, name string) explore.Scope {
	t.Helper()
	s, err := sim.FindScope(name)
	if err != nil {
		t.Fatal(err)
	}
	pd := sim.PD()
	s.System = &pd
	return s
}

// TestSmallScopes: every order of events in these scopes keeps every promise.
func TestSmallScopes(t *testing.T) {
	names := small
	if testing.Short() {
		names = compared
	} else if os.Getenv("KVFERRY_SCOPES") != "" {
		names = slices.Concat(small, larger)
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, err := explore.Explore(explore.Options{Scope: findScope(t, name)})
			if err != nil {
				t.Fatal(err)
			}
			if e.Violation != nil {
				t.Fatal(e.Violation)
			}
			if !e.Complete || e.FinalStates == 0 {
				t.Fatalf("not complete: cut at %s after %d states", e.CutReason, e.States)
			}
			t.Logf("%d states, %d transitions, %d ends, depth %d, %v", e.States, e.Transitions, e.FinalStates, e.Depth, e.Elapsed)
		})
	}
}

// spoiledSystem is a system whose world is about to break a promise.
type spoiledSystem struct{ sim.System }

func (s spoiledSystem) NewRun(of *explore.Scope) (explore.Run, error) {
	run, err := s.System.NewRun(of)
	if err == nil {
		pool := run.BaseWorld().Nodes[1].Pool
		pool.Pages[0].Granted = 99
		pool.UpdateInUse(0)
	}
	return run, err
}

// TestViolation: a page that the ledger believes to be granted already is granted again. The path to the violation is
// as short as possible, and leads to the same violation again, also after a conversion to text.
func TestViolation(t *testing.T) {
	s := findScope(t, "early")
	s.System = spoiledSystem{sim.PD()}
	e, err := explore.Explore(explore.Options{Scope: s})
	if err != nil {
		t.Fatal(err)
	}
	v := e.Violation
	if v == nil || v.Property != "S5" || e.Complete {
		t.Fatalf("found %v, complete %v", v, e.Complete)
	}
	shorter, err := explore.Explore(explore.Options{Scope: s, Depth: len(v.Path) - 1})
	if err != nil || shorter.Violation != nil || shorter.CutReason == "" {
		t.Fatalf("within depth %d: violation %v, cut %q, error %v", len(v.Path)-1, shorter.Violation, shorter.CutReason, err)
	}
	p, err := explore.ParsePath(v.Path.String())
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	again, err := explore.RetracePath(s, p, func(string) { lines++ })
	if err != nil || again == nil || again.Story != v.Story || lines != len(v.Events) || lines <= len(p) {
		t.Fatalf("retraced %v in %d lines, error %v", again, lines, err)
	}
	if _, err := explore.RetracePath(s, explore.Path{0, 1 << 20}, nil); err == nil {
		t.Error("retraced a choice that there is not")
	}
}

// TestEqualStatesGoOnAlike verifies the assumption of the whole method: from two states with the same hash, the
// same choices lead to the same states. Everything that the hash omits, replaces by a name or counts from now
// therefore does not matter.
func TestEqualStatesGoOnAlike(t *testing.T) {
	names := compared
	if os.Getenv("KVFERRY_SCOPES") != "" {
		names = slices.Concat(names, slow)
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var a explore.PathComparer
			if err := a.WalkScope(findScope(t, name)); err != nil {
				t.Fatal(err)
			}
			t.Logf("%d states, of which %d meetings were compared", len(a.Successors), a.Repeats)
		})
	}
}

// TestNothingIsLostByDoingThingsTogether: if the explorer does not combine choices, a scope has exactly the same final
// states.
func TestNothingIsLostByDoingThingsTogether(t *testing.T) {
	names := compared
	if os.Getenv("KVFERRY_SCOPES") != "" {
		names = slices.Concat(names, []string{"push-any", "push-crash-receiver", "pull-device", "leased-pull-abort"})
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var ends [2]map[uint64]bool
			var states [2]int
			for i := range ends {
				var err error
				if ends[i], states[i], err = explore.FinalHashes(findScope(t, name), i == 1); err != nil {
					t.Fatal(err)
				}
			}
			if !maps.Equal(ends[0], ends[1]) {
				t.Fatalf("%d ends, step by step %d, or others", len(ends[0]), len(ends[1]))
			}
			t.Logf("%d ends; %d states, step by step %d", len(ends[0]), states[0], states[1])
		})
	}
}

// TestClonesGoOnAlike: a run of a campaign that is replaced by a clone of itself from time to time writes the same
// event log.
func TestClonesGoOnAlike(t *testing.T) {
	seeds, runs, unused := uint64(5), 0, map[string]int{} // unused counts the runs in which a rule matches nothing
	if testing.Short() {
		seeds = 3
	}
	for _, profile := range systems.Profiles() {
		for seed := range seeds {
			want, err := sim.Run(sim.Options{Seed: seed, Profile: profile})
			if err != nil {
				t.Fatal(err)
			}
			drawn, err := systems.Expand(seed, profile)
			if err != nil {
				t.Fatal(err)
			}
			is, without := explore.RunWithClones(newRun(t, sim.PD(), explore.Scope{AdjustPlan: func(p *plan.Plan) { *p = drawn }}))
			runs++
			for _, rule := range without {
				unused[rule]++
			}
			if is != want.Hash {
				t.Errorf("profile %s seed %d: event log %x, of clones %x", profile, seed, want.Hash, is)
			}
		}
	}
	for rule, in := range unused {
		if in == runs {
			t.Errorf("rule %s matches nothing", rule)
		}
	}
}

// newRun returns the run of a scope.
func newRun(t testing.TB, s sim.System, of explore.Scope) explore.Run {
	t.Helper()
	run, err := s.NewRun(&of)
	if err != nil {
		t.Fatal(err)
	}
	return run
}
