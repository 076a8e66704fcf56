package expand

import (
	"time"

	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
)

// drawCommunicators draws a leased plane as between NPUs. On this plane no node serves peers without leases.
func drawCommunicators(p *plan.Plan) {
	at := func(n uint64) draw.Value { return draw.Hash(p.Seed, draw.Plan, 5, n) }
	p.Topology.Leased, p.Topology.Communicators, p.Topology.Trust = true, true, false
	if at(0).ChancePermille(500) {
		drawPullSenders(p, "hccl")
	}
	if at(1).ChancePermille(500) { // A lease may end in the middle of a batch.
		p.Delays.Device = at(1).Rehash().RoundedDuration(2*time.Millisecond, 20*time.Millisecond)
	}
	if at(2).ChancePermille(500) { // Grants time out and are revoked.
		p.Timeouts.Put = at(2).Rehash().RoundedDuration(100*time.Millisecond, time.Second)
	}
}
