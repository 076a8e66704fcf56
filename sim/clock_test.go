package sim

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/systems"
	"github.com/kvferry/kvferry/sim/world"
)

func TestClockAndBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := world.Clock{Offset: rapid.Int64Range(0, 1<<41).Draw(t, "offset"),
			Drift: world.PPM(rapid.Int64Range(-300_000, 300_000).Draw(t, "drift"))}
		want := effects.Time(n.Offset + rapid.Int64Range(0, 1<<45).Draw(t, "time"))
		at := n.InstantOf(want)
		if n.ReadingAt(at) < want || n.ReadingAt(at-1) >= want {
			t.Fatalf("the clock shows %d at %d and %d before, want the first instant of %d", n.ReadingAt(at), at, n.ReadingAt(at-1),
				want)
		}
		d := effects.Duration(rapid.Int64Range(0, 1<<40).Draw(t, "span"))
		if end := at + int64(n.LongestSpan(d)); n.ReadingAt(end).Sub(n.ReadingAt(at)) < d {
			t.Fatalf("a span of %d lasts longer than %d", d, n.LongestSpan(d))
		}
	})
}

// TestLeasesHoldWithAnyConfiguredDrift lets writes take about as long as their lease, with clocks that drift apart by far
// more than LeaseGuard covers (S24). The ranks are configured for that drift.
func TestLeasesHoldWithAnyConfiguredDrift(t *testing.T) {
	for seed := range uint64(100) {
		p, err := systems.Expand(seed, "leased")
		if err != nil {
			t.Fatal(err)
		}
		p.Timeouts.Lease, p.Timeouts.LeaseGuard, p.Delays.Device = 60*time.Millisecond, 2*time.Millisecond, 8*time.Millisecond
		p.Topology.DriftPPM = nil
		for i := range p.NodeCount() {
			drift := 150_000
			if i < p.Topology.Senders {
				drift = -drift
			}
			p.Topology.DriftPPM = append(p.Topology.DriftPPM, drift)
		}
		if r := mustRun(t, Options{Plan: &p}); r.Failure != nil {
			t.Fatalf("seed %d: %s", seed, r.Failure)
		}
	}
}
