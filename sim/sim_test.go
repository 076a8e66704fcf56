package sim

import (
	"testing"

	"github.com/kvferry/kvferry/sim/systems"
)

// TestSeeds runs some seeds of every profile. The full campaign is kvferry sim run.
func TestSeeds(t *testing.T) {
	for _, profile := range systems.Profiles() {
		t.Run(profile, func(t *testing.T) {
			for seed := range uint64(40) {
				r, err := Run(Options{Seed: seed, Profile: profile})
				if err != nil {
					t.Fatal(err)
				}
				if r.Failure != nil {
					t.Fatal(r.Failure.String())
				}
			}
		})
	}
}

// TestSameSeedSameLog verifies S16. The hash covers every line of the event log and every byte of every message.
func TestSameSeedSameLog(t *testing.T) {
	different := map[uint64]bool{}
	for seed := range uint64(60) {
		a, err := Run(Options{Seed: seed})
		if err != nil {
			t.Fatal(err)
		}
		b, err := Run(Options{Seed: seed, Log: func(string) {}})
		if err != nil {
			t.Fatal(err)
		}
		if a.Hash != b.Hash || a.Steps != b.Steps {
			t.Fatalf("S16: seed %d gave hash %x in %d steps, then %x in %d", seed, a.Hash, a.Steps, b.Hash, b.Steps)
		}
		different[a.Hash] = true
	}
	if len(different) != 60 {
		t.Fatalf("60 seeds gave %d different logs", len(different))
	}
}
