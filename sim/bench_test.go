package sim

import (
	"context"
	"runtime/debug"
	"syscall"
	"testing"
	"time"
)

// BenchmarkSteps measures how many machine steps a core simulates per second, including all oracles, under the
// conditions of kvferry sim run: in a campaign, with a garbage collector that runs rarely. The metric steps/cpu-s divides
// by processor time instead of elapsed time, for machines that have other work too.
func BenchmarkSteps(b *testing.B) { benchmarkSteps(b, "") }

// BenchmarkFull is BenchmarkSteps with the full mix of faults.
func BenchmarkFull(b *testing.B) { benchmarkSteps(b, "full") }

func benchmarkSteps(b *testing.B, profile string) {
	defer debug.SetGCPercent(debug.SetGCPercent(800))
	b.ReportAllocs()
	before := processorTime()
	s, err := Campaign(context.Background(), CampaignOptions{Seeds: uint64(b.N), Workers: 1, Profile: profile})
	if err != nil || s.Failed > 0 {
		b.Fatal(err, s.First)
	}
	b.ReportMetric(float64(s.Steps)/b.Elapsed().Seconds(), "steps/s")
	b.ReportMetric(float64(s.Steps)/(processorTime()-before).Seconds(), "steps/cpu-s")
	b.ReportMetric(0, "ns/op") // Seeds differ too much for a time per operation.
}

// processorTime returns the processor time of this process so far.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
