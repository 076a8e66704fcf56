package sim

import (
	"slices"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/systems/directory"
)

// runFleet runs a seed of the fleet. It returns how long after the last fault a directory still gave a wrong answer,
// and the number of wrong answers.
func runFleet(t testing.TB, seed uint64) (last time.Duration, wrong int) {
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

// After churn the directories of a fleet of 64 instances agree with the true state, and before that they did not.
func TestFleet(t *testing.T) {
	all := 0
	for seed := range uint64(3) {
		_, wrong := runFleet(t, seed)
		all += wrong
	}
	if all == 0 {
		t.Error("no answer was ever wrong: nothing is looked at before they agree")
	}
}

// BenchmarkFleet measures, in simulated time, how long after the last fault all directories of a fleet know the true
// state.
func BenchmarkFleet(b *testing.B) {
	var all []time.Duration
	for seed := range uint64(b.N) {
		last, _ := runFleet(b, seed)
		all = append(all, last)
	}
	slices.Sort(all)
	b.ReportMetric(all[len(all)/2].Seconds(), "s-half")
	b.ReportMetric(all[len(all)*99/100].Seconds(), "s-of-99-in-100")
	b.ReportMetric(all[len(all)-1].Seconds(), "s-longest")
	b.ReportMetric(0, "ns/op")
}
