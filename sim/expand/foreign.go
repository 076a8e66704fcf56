package expand

import (
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
)

// drawForeignNodes draws the nodes that use another implementation's encoder.
func drawForeignNodes(p *plan.Plan, profile string) {
	if profile != "foreign" {
		return
	}
	for i := range p.NodeCount() {
		if draw.Hash(p.Seed, draw.Plan, 6, uint64(i)).ChancePermille(500) {
			p.Topology.Foreign = append(p.Topology.Foreign, plan.Node(i))
		}
	}
}
