package condense_test

import (
	"slices"
	"testing"

	"github.com/kvferry/kvferry/sim/condense"
	"github.com/kvferry/kvferry/sim/systems"
)

// TestPlansCanBeRun: every condensed plan can be run, has few requests, and is the same each time.
func TestPlansCanBeRun(t *testing.T) {
	bases := map[string]int{}
	for seed := range uint64(3000) {
		p, err := systems.Expand(seed, condense.Profile)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Check(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		rates := 0
		for _, rate := range p.Rates {
			rates += min(rate, 1)
		}
		if len(p.Jobs) > 8 || len(p.Faults) > 6 || rates > 7 {
			t.Fatalf("seed %d: %d jobs, %d faults, %d rates; want a few", seed, len(p.Jobs), len(p.Faults), rates)
		}
		bases[condense.BaseProfile(seed)]++
	}
	for _, b := range slices.Concat(condense.BaseProfiles, condense.FurtherProfiles) {
		if bases[b] < 100 {
			t.Errorf("%d of 3000 seeds are drawn in profile %s before: want about one in 20", bases[b], b)
		}
	}
}
