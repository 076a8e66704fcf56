package main

import (
	"bytes"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/kvferry/kvferry/sim"
	"github.com/kvferry/kvferry/sim/oracle"
)

// breaks is a promise that every so manieth seed breaks. It counts the runs.
func breaks(name string, every uint64, runs *atomic.Int64) oracle.Oracle {
	return oracle.Of(name, "", func(l *oracle.Listen[struct{}]) {
		oracle.On(l, func(_ *struct{}, c *oracle.Call, e sim.Ended) {
			runs.Add(1)
			if e.Result.Seed%every == every-1 {
				c.Fail("on purpose")
			}
		})
	})
}

// A search ends once the properties that are named broke, and finds the same however many seeds run at once.
func TestASearchEnds(t *testing.T) {
	for _, c := range []struct {
		properties []string
		n          int
		want       string
		most       int64 // runs by one worker; by several, one may lag behind while the others go on as far as they like
	}{
		{nil, 1000, "third 2", 10},
		{[]string{"fifth"}, 1000, "third 2 fifth 4", 10},
		{[]string{"fifth", "third"}, 1000, "third 2 fifth 4", 10},
		{[]string{"S1"}, 12, "third 2 fifth 4", 100},
		{nil, 2, "", 2},
	} {
		for _, workers := range []int{1, 3} {
			var runs, ends atomic.Int64
			s := search{profile: "calm", n: c.n, properties: c.properties,
				own: []oracle.Oracle{breaks("third", 3, &runs), breaks("fifth", 5, &ends)}}
			found, err := s.run(workers)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range found {
				got = append(got, f.Property, string(rune('0'+f.Seed)))
			}
			if strings.Join(got, " ") != c.want || workers == 1 && runs.Load() > c.most {
				t.Errorf("%q by %d workers: got %q in %d runs, want %q", c.properties, workers, got, runs.Load(), c.want)
			}
		}
	}
}

// What breaks nothing is said so; tools/mutants has tests of what does.
func TestNothingIsFoundInTheTreeAsItIs(t *testing.T) {
	var out bytes.Buffer
	for _, err := range []error{
		findSeed(&out, []string{"calm", "3"}),
		findSeed(&out, []string{"", "3", "2", "S1"}),
		findPlan(&out, []string{"../../sim/testdata/regressions/hold-dropped.yaml"}),
		findScope(&out, []string{"push", "100"}),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	if n := strings.Count(out.String(), "every promise held"); n != 4 {
		t.Errorf("got\n%s", &out)
	}
	for _, bad := range [][]string{{}, {"calm"}, {"calm", "x"}, {"none", "1"}, {"calm", "1", "x"},
		{"calm", "1", "0"}, {"calm", "1", "-3"}} {
		if err := findSeed(&out, bad); err == nil || errors.Is(err, errFound) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
