package sim

import (
	"testing"

	"github.com/kvferry/kvferry/sim/systems"
)

// A run that uses the memory of earlier runs is the same as a run in new memory. This includes ranks, which use the
// memory of ranks of different nodes, roles and incarnations.
func TestRunsAgainInTheirMemory(t *testing.T) {
	for _, profile := range systems.Profiles() {
		for seed := range uint64(10) {
			p, err := Expand(seed, profile)
			if err != nil {
				t.Fatal(err)
			}
			own, err := newTrial(Options{}, &p)
			if err != nil {
				t.Fatal(err)
			}
			own.Journal.KeepsSentHash = p.HasForeign()
			own.RunPhases()
			r, err := Run(Options{Plan: &p})
			if err != nil {
				t.Fatal(err)
			}
			if own.Journal.Hash != r.Hash {
				t.Errorf("seed %d of profile %s: in memory of runs before the log hashes to %016x, in its own to %016x",
					seed, profile, r.Hash, own.Journal.Hash)
			}
		}
	}
}
