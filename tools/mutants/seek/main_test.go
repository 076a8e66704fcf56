package main

import (
	"bytes"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/kvferry/kvferry/sim"
	"github.com/kvferry/kvferry/sim/oracle"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// breaks is an oracle that fails for every n-th seed and counts the runs.
func breaks(name string, every uint64, runs *atomic.Int64) oracle.Oracle {
	return oracle.New(name, "", func(l *oracle.Subscriptions[struct{}]) {
		oracle.On(l, func(_ *struct{}, c *oracle.Call, e sim.RunEnded) {
			runs.Add(1)
			if e.Result.Seed%every == every-1 {
				c.Fail("on purpose")
			}
		})
	})
}

// A search ends when all named properties have been broken, and the result does not depend on the number of workers.
func TestASearchEnds(t *testing.T) {
	for _, c := range []struct {
		properties []string
		n          int
		want       string
		most       int64 // maximum number of runs with one worker; with several, fast workers may run ahead
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
				extraOracles: []oracle.Oracle{breaks("third", 3, &runs), breaks("fifth", 5, &ends)}}
			found, _, err := s.runSeeds(workers)
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

func TestSeek(t *testing.T) {
	for _, args := range [][]string{{"calm", "3", "1"}, {"", "3", "2", "S1"}} {
		var out bytes.Buffer
		if found, err := runSearch(&out, args); found || err != nil || !strings.HasPrefix(out.String(), "every promise held") {
			t.Errorf("%q: %v, %v, %s", args, found, err, &out)
		}
	}
	for _, bad := range [][]string{{}, {"calm", "1"}, {"calm", "x", "1"}, {"none", "1", "1"}, {"calm", "1", "x"},
		{"calm", "1", "0"}, {"calm", "1", "-3"}} {
		if _, err := runSearch(&bytes.Buffer{}, bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}
