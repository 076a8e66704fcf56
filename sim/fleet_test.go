package sim

import (
	"slices"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/systems/directory"
)

// converging runs one seed of the fleet, and says how long after its last fault a directory gave a wrong answer.
func converging(t testing.TB, seed uint64) (last time.Duration, wrong int) {
	t.Helper()
	s := System(directory.Fleet)
	s.Oracles = append(slices.Clone(s.Oracles), directory.WrongAnswers(func(after effects.Duration) {
		last, wrong = max(last, time.Duration(after)), wrong+1
	}))
	p, err := s.Expand(seed, s.Name)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Run(Options{Plan: &p, System: &s})
	if err != nil || r.Failure != nil {
		t.Fatal(err, r.Failure)
	}
	return last, wrong
}

// A fleet of 64 instances agrees with what is so after churn, and did not before.
func TestFleet(t *testing.T) {
	all := 0
	for seed := range uint64(3) {
		_, wrong := converging(t, seed)
		all += wrong
	}
	if all == 0 {
		t.Error("no answer was ever wrong: nothing is looked at before they agree")
	}
}

// BenchmarkFleet says how long after the last fault all directories of a fleet know what is so, in simulated time.
func BenchmarkFleet(b *testing.B) {
	var all []time.Duration
	for seed := range uint64(b.N) {
		last, _ := converging(b, seed)
		all = append(all, last)
	}
	slices.Sort(all)
	b.ReportMetric(all[len(all)/2].Seconds(), "s-half")
	b.ReportMetric(all[len(all)*99/100].Seconds(), "s-of-99-in-100")
	b.ReportMetric(all[len(all)-1].Seconds(), "s-longest")
	b.ReportMetric(0, "ns/op")
}
