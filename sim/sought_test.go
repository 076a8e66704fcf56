package sim_test

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim"
)

// Ranks beside directories hold what was promised, and some of what they look for comes from whom those name.
func TestSought(t *testing.T) {
	brought := 0
	look := sim.Property{Name: "look", Watch: func() sim.Watcher {
		return sim.Watcher{Step: func(s sim.Step) error {
			for i := range s.Effects.Len() {
				if e, ok := s.Effects.At(i).(*effects.Observe); ok && e.Fact == effects.FactBrought && e.Count > 0 {
					brought++
				}
			}
			return nil
		}}
	}}
	seeds := uint64(30)
	if testing.Short() {
		seeds = 10
	}
	for seed := range seeds {
		p, err := sim.Expand(seed, "sought")
		if err != nil || p.Profile != "sought" {
			t.Fatal(p.Profile, err)
		}
		r, err := sim.Run(sim.Options{Plan: &p, Properties: []sim.Property{look}})
		if err != nil || r.Failure != nil {
			t.Fatalf("seed %d: %v %v", seed, err, r.Failure)
		}
	}
	if brought == 0 {
		t.Error("nothing was brought")
	}
}
