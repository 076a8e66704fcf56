package sim

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/layerwise"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
)

// A chunk is complete even if its layers take longer altogether than an incomplete chunk is kept, provided that each
// layer arrives within that time after the previous layer, because each layer renews the time. There are no faults in
// these worlds.
func TestSlowLayersArrive(t *testing.T) {
	finished := 0
	for seed := range uint64(12) {
		p := plan.New()
		p.Seed = seed
		p.Topology.Flags = plan.FlowFlags{"layerwise": true}
		p.Topology.SenderPages, p.Topology.ReceiverPages = 32, 32
		p.Jobs = []plan.Job{{From: 0, To: 1, Keys: []uint32{1, 2}, Batch: 2}}
		p.Jobs[0].Flags = plan.FlowFlags{"layerwise": true, "slow": true}
		finishes := map[effects.Ticket]bool{}
		r := mustRun(t, Options{Plan: &p, Oracles: []oracle.Oracle{oracle.New("finishes", "", func(l *oracle.Subscriptions[struct{}]) {
			oracle.On(l, func(_ *struct{}, _ *oracle.Call, e *effects.Command) {
				_, finishes[e.Ticket] = e.Body.(*layerwise.Finish)
			})
			oracle.On(l, func(_ *struct{}, c *oracle.Call, e *effects.Deliver) {
				if !finishes[e.Ticket] || !c.IsSender() {
					return
				}
				if e.Code != effects.OK && e.Code != effects.Unsupported { // Some receivers accept no layers.
					c.Fail("a request ends as %s", e.Code)
				}
				if e.Code == effects.OK {
					finished++
				}
			})
		})}})
		if r.Failure != nil {
			t.Fatalf("seed %d: %v", seed, r.Failure)
		}
	}
	if finished < 6 {
		t.Errorf("%d of 12 requests went", finished)
	}
}
