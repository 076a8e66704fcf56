package expand

import (
	"time"

	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
)

// drawWithdrawnOffers draws whether a seed tests senders that withdraw offers. The offers wait at their receivers, for
// pages or for the links to the offered pages.
func drawWithdrawnOffers(p *plan.Plan, profile string) {
	at := func(n uint64) draw.Value { return draw.Hash(p.Seed, draw.Plan, 9, n) }
	if profile != "pull" || !at(0).ChancePermille(120) {
		return
	}
	raiseRate(p, plan.FaultCommandAborted, at(1).Between(300, 600))
	raiseRate(p, plan.FaultPagesKeptLong, 200)
	if at(2).ChancePermille(500) { // The link is established late.
		raiseRate(p, plan.FaultMessageDelayed, 200)
	}
	p.Topology.ReceiverPages = min(p.Topology.ReceiverPages, uint32(at(3).Between(4, 8)))
	p.Timeouts.Alloc = max(p.Timeouts.Alloc, at(4).RoundedDuration(300*time.Millisecond, 1200*time.Millisecond))
	p.Timeouts.Reply = max(p.Timeouts.Reply, p.Timeouts.Alloc+100*time.Millisecond)
	for i := range p.Jobs {
		p.Jobs[i].Batch = min(p.Jobs[i].Batch, int(p.Topology.ReceiverPages))
	}
}
