package sim

import (
	"context"
	"runtime/debug"
	"testing"
)

// BenchmarkSteps says how many steps of machines one core simulates in a second, all oracles included, as kvferry sim
// run has it: in a campaign, with a collector that lets garbage grow.
func BenchmarkSteps(b *testing.B) { benchmarkSteps(b, "") }

// BenchmarkFull does so with the full mix of faults.
func BenchmarkFull(b *testing.B) { benchmarkSteps(b, "full") }

func benchmarkSteps(b *testing.B, profile string) {
	defer debug.SetGCPercent(debug.SetGCPercent(800))
	b.ReportAllocs()
	s, err := Campaign(context.Background(), CampaignOptions{Seeds: uint64(b.N), Workers: 1, Profile: profile})
	if err != nil || s.Failed > 0 {
		b.Fatal(err, s.First)
	}
	b.ReportMetric(float64(s.Steps)/b.Elapsed().Seconds(), "steps/s")
	b.ReportMetric(0, "ns/op") // One seed is as good as another only together.
}
