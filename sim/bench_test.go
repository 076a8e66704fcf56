package sim

import "testing"

// BenchmarkSteps says how many steps of machines one core simulates in a second, all
// oracles included.
func BenchmarkSteps(b *testing.B) {
	steps := uint64(0)
	for seed := uint64(0); b.Loop(); seed++ {
		r, err := Run(Options{Seed: seed})
		if err != nil {
			b.Fatal(err)
		}
		if r.Failure != nil {
			b.Fatal(r.Failure.String())
		}
		steps += r.Steps
	}
	b.ReportMetric(float64(steps)/b.Elapsed().Seconds(), "steps/s")
	b.ReportMetric(0, "ns/op")
}
