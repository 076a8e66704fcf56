package sim

import "testing"

// TestSameSeedSameLog verifies S16. The hash covers every line of the event log and every byte of every message.
func TestSameSeedSameLog(t *testing.T) {
	different := map[uint64]bool{}
	for seed := range uint64(30) {
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
	if len(different) != 30 {
		t.Fatalf("30 seeds gave %d different logs", len(different))
	}
}
