package sim

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/plan"
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

// TestLeaseArgumentFailsBeyondItsBound is the second half of S24: if the clocks drift further than the guard allows,
// the oracle must report that the same machines break S24. Otherwise the oracle could not confirm that S24 holds within
// the bound.
func TestLeaseArgumentFailsBeyondItsBound(t *testing.T) {
	const seeds = 100
	broken := 0
	within := func(p *plan.Plan, share int) []int {
		var clocks []int
		most := share * int(world.DriftMax(effects.Duration(p.Timeouts.Lease), effects.Duration(p.Timeouts.LeaseGuard)))
		for i := range p.NodeCount() {
			if i < p.Topology.Senders {
				clocks = append(clocks, -most)
			} else {
				clocks = append(clocks, most)
			}
		}
		return clocks
	}
	for seed := range uint64(seeds) {
		p, err := systems.Expand(seed, "leased")
		if err != nil {
			t.Fatal(err)
		}
		// Writes take about as long as their lease.
		p.Timeouts.Lease, p.Timeouts.LeaseGuard, p.Delays.Device = 60*time.Millisecond, 7*time.Millisecond, 8*time.Millisecond
		p.Topology.DriftPPM = within(&p, 1)
		if r := mustRun(t, Options{Plan: &p}); r.Failure != nil {
			t.Fatalf("seed %d, clocks as far off as allowed: %s", seed, r.Failure)
		}
		p.Topology.DriftPPM = within(&p, 3)
		switch r := mustRun(t, Options{Plan: &p}); {
		case r.Failure == nil:
		case r.Failure.Property == "S24" || r.Failure.Property == "S3":
			broken++
		default:
			t.Fatalf("seed %d: %s", seed, r.Failure)
		}
	}
	if broken < 5 {
		t.Errorf("of %d seeds with clocks three times as far off as allowed, %d broke S24, want at least 5", seeds, broken)
	}
	t.Logf("broken in %d of %d seeds", broken, seeds)
}
