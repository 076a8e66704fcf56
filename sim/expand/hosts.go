package expand

import (
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
)

// drawHosts draws which nodes are on the same host in some seeds of the profiles in which requests wait for pages.
// Mostly one host plays many names against the single name of another one. All names of a host count against one origin,
// so the host has no more turns than the other (rule M9).
func drawHosts(p *plan.Plan, profile string) {
	at := func(n uint64) draw.Value { return draw.Hash(p.Seed, draw.Plan, 130, n) }
	permille := map[string]int{"starve": 600, "both": 300}[profile]
	if !at(0).ChancePermille(permille) {
		return
	}
	alone, mixed := plan.Node(at(1).Below(uint64(p.Topology.Senders))), at(2).ChancePermille(250)
	for i := range p.NodeCount() {
		origin := uint32(1)
		switch node := plan.Node(i); {
		case mixed:
			origin = 1 + uint32(at(10+uint64(i)).Below(uint64(p.NodeCount())))
		case p.IsReceiver(node) && i >= p.Topology.Senders, node == alone:
			origin = 2 + uint32(i)
		}
		p.Topology.Origins = append(p.Topology.Origins, origin)
	}
}
