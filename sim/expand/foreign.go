package expand

import (
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
)

// drawForeign draws the nodes that use an encoder other than kvferry's.
func drawForeign(p *plan.Plan, profile string) {
	if profile != "foreign" {
		return
	}
	for i := range p.NodeCount() {
		if draw.Hash(p.Seed, draw.Plan, 6, uint64(i)).Permille(500) {
			p.Topology.Foreign = append(p.Topology.Foreign, plan.Node(i))
		}
	}
}
