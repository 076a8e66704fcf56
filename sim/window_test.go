package sim

import (
	"testing"

	"github.com/kvferry/kvferry/sim/systems"
)

// Several requests are in flight on each alloc lane, in every profile: whatever strikes, all that is promised holds.
func TestWindows(t *testing.T) {
	seeds := uint64(30)
	if testing.Short() {
		seeds = 15
	}
	for _, profile := range systems.Profiles() {
		for seed := range seeds {
			for _, window := range []uint32{2, 16} {
				plan, err := systems.Expand(seed, profile)
				if err != nil {
					t.Fatal(err)
				}
				plan.Bounds.Window = window
				if r := mustRun(t, Options{Plan: &plan}); r.Failure != nil {
					t.Errorf("profile %s, seed %d, window %d: %v", profile, seed, window, r.Failure)
				}
			}
		}
	}
}
