package sim

import (
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
)

// fetchTime returns how long a fetch of the given number of chunks takes if half a page is read in device/4, a chunk is
// scattered in scatter/4, and nothing else takes time.
func fetchTime(t *testing.T, leased bool, chunks, staging int, device, scatter time.Duration) effects.Duration {
	t.Helper()
	p := plan.New()
	p.Seed = draw.LowestSeed // With this seed every draw is the lowest of its range, so all times are fixed.
	p.Topology.Leased, p.Topology.Pull, p.Topology.Delay = leased, []plan.Node{0}, []plan.Node{1}
	p.Topology.SenderPages, p.Topology.ReceiverPages, p.Bounds.Staging = 64, 64, uint32(staging)
	p.Delays = plan.Delays{Device: device, Scatter: scatter}
	p.Timeouts.Fetch, p.Timeouts.PullTTL, p.Timeouts.Loan = 100*time.Second, 200*time.Second, 200*time.Second
	j := plan.Job{From: 0, To: 1, Batch: chunks}
	for i := range chunks {
		j.Keys = append(j.Keys, uint32(i+1))
	}
	p.Jobs = []plan.Job{j}
	began, took := effects.Duration(-1), effects.Duration(-1)
	ticket := effects.Ticket(0)
	r := mustRun(t, Options{Plan: &p, Oracles: []oracle.Oracle{oracle.New("timed", "", func(l *oracle.Subscriptions[struct{}]) {
		oracle.On(l, func(_ *struct{}, c *oracle.Call, e *effects.Command) {
			if _, ok := e.Body.(*engine.Fetch); ok && ticket == 0 {
				ticket, began = e.Ticket, effects.Duration(c.Now())
			}
		})
		oracle.On(l, func(_ *struct{}, c *oracle.Call, e *effects.Deliver) {
			switch {
			case e.Ticket != ticket || ticket == 0 || c.IsSender():
			case e.Code != effects.OK:
				c.Fail("the fetch ends as %s", e.Code)
			default:
				took = effects.Duration(c.Now()) - began
			}
		})
	})}})
	if r.Failure != nil {
		t.Fatal(r.Failure)
	}
	if took < 0 {
		t.Fatal("nothing was fetched")
	}
	return took
}

// With at least ten batches, a fetch takes at most 5 % longer than the longer of its reads alone and its scatters
// alone, plus a batch of the shorter. Without a second staging page a fetch takes the sum of both.
func TestFetchOverlaps(t *testing.T) {
	for _, leased := range []bool{false, true} {
		for _, chunks := range []int{10, 17, 40} {
			for _, ms := range [][2]time.Duration{{8, 8}, {8, 24}, {24, 8}, {8, 1}, {1, 40}} {
				device, scatter := ms[0]*time.Millisecond, ms[1]*time.Millisecond
				for _, staging := range []int{2, 4, 8} {
					batches := (chunks + staging/2 - 1) / (staging / 2)
					if batches < 10 {
						continue
					}
					reads, scatters := fetchTime(t, leased, chunks, staging, device, 0), fetchTime(t, leased, chunks, staging, 0,
						scatter)
					took := fetchTime(t, leased, chunks, staging, device, scatter)
					most := max(reads, scatters)*105/100 + min(reads, scatters)/effects.Duration(batches)
					if took > most {
						t.Errorf("leased %v: %d chunks by %d staging pages take %d ns; reads alone take %d, scatters %d, so at most %d "+
							"are allowed",
							leased, chunks, staging, took, reads, scatters, most)
					}
				}
				if took, apart := fetchTime(t, leased, chunks, 1, device, scatter), fetchTime(t, leased, chunks, 1, device,
					0)+fetchTime(t, leased, chunks, 1, 0, scatter); took != apart {
					t.Errorf("leased %v: through one staging page %d chunks take %d ns instead of %d", leased, chunks, took, apart)
				}
			}
		}
	}
}
