package sim_test

import (
	"fmt"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/kvferry/kvferry/sim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestWithRapid states a property of whole clusters: no promise is broken, whatever the seed and the profile, and no
// chunk is read that no node wrote.
func TestWithRapid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, err := sim.Run(sim.Options{
			Seed:    rapid.Uint64Range(0, 999).Draw(t, "seed"),
			Profile: rapid.SampledFrom(sim.Profiles()).Draw(t, "profile"),
		})
		if err != nil {
			t.Fatal(err)
		}
		if r.Failure != nil {
			t.Fatal(r.Failure)
		}
		stored, taken := r.Coverage.Counts("outcome")["store ok"], r.Coverage.Counts("mark")["push/taken"]
		if r.Chunks > 0 && r.Grants == 0 && stored == 0 && taken == 0 {
			t.Fatalf("seed %d read %d chunks that nobody wrote", r.Seed, r.Chunks)
		}
	})
}

// TestCampaign: the summary is the same with one worker as with three workers.
func TestCampaign(t *testing.T) {
	one, err := sim.Campaign(t.Context(), sim.CampaignOptions{FirstSeed: 500, Seeds: 60, Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	three, err := sim.Campaign(t.Context(), sim.CampaignOptions{FirstSeed: 500, Seeds: 60, Workers: 3})
	if err != nil {
		t.Fatal(err)
	}
	if one.Hash != three.Hash || one.Steps != three.Steps || one.Chunks != three.Chunks {
		t.Fatalf("S16: %x %d %d with one worker, %x %d %d with three",
			one.Hash, one.Steps, one.Chunks, three.Hash, three.Steps, three.Chunks)
	}
	if one.First != nil {
		t.Fatal(one.First)
	}
}

func TestUnknownProfile(t *testing.T) {
	if _, err := sim.Run(sim.Options{Profile: "sunny"}); err == nil {
		t.Error("Run took an unknown profile")
	}
	if _, err := sim.Campaign(t.Context(), sim.CampaignOptions{Seeds: 1, Profile: "sunny"}); err == nil {
		t.Error("Campaign took an unknown profile")
	}
}

func ExampleRun() {
	r, err := sim.Run(sim.Options{Seed: 7, Profile: "calm"})
	if err != nil {
		fmt.Println(err)
		return
	}
	if r.Failure != nil {
		fmt.Println(r.Failure)
		return
	}
	fmt.Println("every promise held")
	// Output: every promise held
}
