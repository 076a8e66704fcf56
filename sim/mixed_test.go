package sim_test

import (
	"slices"
	"testing"

	"github.com/kvferry/kvferry/sim"
)

// A campaign of all profiles runs seeds of each profile, and its summary is the sum of the summaries of these seeds.
func TestMixed(t *testing.T) {
	met := map[string]bool{}
	for seed := range uint64(12 * len(sim.Profiles())) {
		profile := sim.ProfileOfSeed(seed, sim.MixedProfile)
		if err := sim.CheckProfile(profile); err != nil {
			t.Fatal(err)
		}
		met[profile] = true
	}
	for _, profile := range sim.Profiles() {
		if met[profile] == (profile == "fleet") {
			t.Errorf("profile %s is met: %v", profile, met[profile])
		}
	}
	const seeds = 12
	all, err := sim.Campaign(t.Context(), sim.CampaignOptions{Profile: sim.MixedProfile, Seeds: seeds, Workers: 2})
	if err != nil || all.Profile != sim.MixedProfile || all.Seeds != seeds || all.Failed > 0 {
		t.Fatalf("%+v: %v", all, err)
	}
	var steps uint64
	for seed := range uint64(seeds) {
		one, err := sim.Run(sim.Options{Seed: seed, Profile: sim.ProfileOfSeed(seed, sim.MixedProfile)})
		if err != nil {
			t.Fatal(err)
		}
		steps += one.Steps
	}
	if steps != all.Steps {
		t.Errorf("%d steps together, and %d one by one", all.Steps, steps)
	}
	if slices.Contains(sim.Profiles(), sim.MixedProfile) {
		t.Error("a seed alone has no such profile")
	}
}
