package sim_test

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim"
	"github.com/kvferry/kvferry/sim/oracle"
)

// Ranks that use directories keep their promises, and receive some of the chunks that they look up from the nodes that
// the directories name.
func TestSought(t *testing.T) {
	brought := 0
	look := oracle.New("look", "", func(l *oracle.Subscriptions[struct{}]) {
		oracle.On(l, func(_ *struct{}, _ *oracle.Call, e *effects.Observe) {
			if e.Fact == effects.FactBrought && e.Count > 0 {
				brought++
			}
		})
	})
	seeds := uint64(30)
	if testing.Short() {
		seeds = 10
	}
	for seed := range seeds {
		p, err := sim.Expand(seed, "sought")
		if err != nil || p.Profile != "sought" {
			t.Fatal(p.Profile, err)
		}
		r, err := sim.Run(sim.Options{Plan: &p, Oracles: []oracle.Oracle{look}})
		if err != nil || r.Failure != nil {
			t.Fatalf("seed %d: %v %v", seed, err, r.Failure)
		}
	}
	if brought == 0 {
		t.Error("nothing was brought")
	}
}
