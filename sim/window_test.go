package sim

import (
	"testing"

	"github.com/kvferry/kvferry/sim/systems"
)

// With several requests in flight on each alloc lane, all promises hold in every profile under all faults.
func TestWindows(t *testing.T) {
	for _, profile := range systems.Profiles() {
		for seed := range uint64(6) {
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
