package sim

import (
	"slices"
	"testing"

	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems"
	"github.com/kvferry/kvferry/sim/world"
)

// runFailingAlone runs the plan of a seed in which every scheduled fault is replaced: ranks fail alone, and no node
// crashes.
func runFailingAlone(t *testing.T, seed uint64, profile string, careless world.DriverMistake) Result {
	t.Helper()
	p, err := systems.Expand(seed, profile)
	if err != nil {
		t.Fatal(err)
	}
	p.Faults = slices.DeleteFunc(p.Faults, func(f plan.ScheduledFault) bool {
		return f.Fault != plan.FaultRankAlone && f.Fault != plan.FaultCrash
	})
	for i := range p.Faults {
		p.Faults[i].Fault = plan.FaultRankAlone
	}
	return mustRun(t, Options{Plan: &p, driverMistake: careless})
}

// TestCarelessFailuresAreFound: the oracles find a driver that breaks a promise when its rank fails. Otherwise the
// oracles could not confirm that correct drivers keep the promise.
func TestCarelessFailuresAreFound(t *testing.T) {
	for _, c := range []struct {
		name     string
		careless world.DriverMistake
		profile  string
		finds    []string
	}{
		{"memory given to the next rank", world.MemoryReused, "leased", []string{"S1", "S3"}},
		{"peers not told", world.PeersNotNotified, "crash", []string{"L1"}},
		{"memory given back at once", world.MemoryReturnedEarly, "leased", []string{"S19"}},
		{"memory given back at once, to be read", world.MemoryReturnedEarly, "pull", []string{"S1", "S19"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for seed := range uint64(300) {
				r := runFailingAlone(t, seed, c.profile, c.careless)
				if r.Failure == nil {
					continue
				}
				if !slices.Contains(c.finds, r.Failure.Property) {
					t.Errorf("seed %d breaks %s: %s", seed, r.Failure.Property, r.Failure.Story)
				}
				if r := runFailingAlone(t, seed, c.profile, 0); r.Failure != nil {
					t.Errorf("seed %d, nothing done wrong: %s", seed, r.Failure)
				}
				t.Logf("seed %d: %s", seed, r.Failure.Story)
				return
			}
			t.Error("nothing was found")
		})
	}
}
