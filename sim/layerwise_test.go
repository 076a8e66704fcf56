package sim

import (
	"fmt"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/layerwise"
	"github.com/kvferry/kvferry/sim/plan"
)

// Layers that come one by one in more than the time that a chunk of them stands, but each within that of the one
// before, come whole: progress renews it. Nothing goes wrong in these worlds.
func TestSlowLayersArrive(t *testing.T) {
	finished := 0
	for seed := range uint64(12) {
		p := plan.New()
		p.Seed = seed
		p.Topology.Said = plan.Said{"layerwise": true}
		p.Topology.SenderPages, p.Topology.ReceiverPages = 32, 32
		p.Jobs = []plan.Job{{From: 0, To: 1, Keys: []uint32{1, 2}, Batch: 2}}
		p.Jobs[0].Said = plan.Said{"layerwise": true, "slow": true}
		finishes := map[effects.Ticket]bool{}
		r := mustRun(t, Options{Plan: &p, Properties: []Property{{Name: "finishes", Watch: func() Watcher {
			return Watcher{Step: func(s Step) error {
				if c, ok := s.Event.(*effects.Command); ok {
					_, is := c.Body.(*layerwise.Finish)
					finishes[c.Ticket] = is
				}
				for i := range s.Effects.Len() {
					d, ok := s.Effects.At(i).(*effects.Deliver)
					if !ok || !finishes[d.Ticket] || !s.Sender {
						continue
					}
					if d.Code != effects.OK && d.Code != effects.Unsupported { // Some receivers take no layers.
						return fmt.Errorf("a request ends as %s", d.Code)
					}
					if d.Code == effects.OK {
						finished++
					}
				}
				return nil
			}}
		}}}})
		if r.Failure != nil {
			t.Fatalf("seed %d: %v", seed, r.Failure)
		}
	}
	if finished < 6 {
		t.Errorf("%d of 12 requests went", finished)
	}
}
