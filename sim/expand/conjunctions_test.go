package expand

import (
	"reflect"
	"testing"

	"github.com/kvferry/kvferry/sim/plan"
)

// TestRareStories: some seeds of profile full test a conjunction, and most seeds are the same as without conjunctions.
func TestRareStories(t *testing.T) {
	rare := 0
	const seeds = 300
	for seed := range uint64(seeds) {
		p := plan.Plan{Version: plan.Version, Seed: seed, Profile: "full", Rates: map[plan.Fault]int{}}
		d := Draft{Plan: &p}
		drawWorld(&d, "full", &Profile{})
		drawJobs(&p, &d.Scale)
		drawReads(&p)
		drawEnds(&p, "full")
		p.DrawFaults(&d.Scale.Scheduled)
		drawBounds(&p, "full")
		drawTuning(&p)
		drawAddresses(&p)
		whole := Plan(seed, "full", nil)
		if err := whole.Check(); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		if !reflect.DeepEqual(whole, p) {
			rare++
		}
	}
	if rare < seeds/20 || rare > seeds*conjunctionPermille/1000*3/2 {
		t.Errorf("%d of %d seeds are about something rare, %d in a thousand are drawn", rare, seeds, conjunctionPermille)
	}
}
