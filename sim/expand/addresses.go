package expand

import (
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
)

// drawAddresses draws the addresses that pull senders announce: the same address in all incarnations, or two addresses
// in turn. It also draws whether the senders accept renewals at all.
func drawAddresses(p *plan.Plan) {
	at := func(n uint64) draw.Value { return draw.Hash(p.Seed, draw.Plan, 11, n) }
	for _, n := range p.Topology.Pull {
		if at(uint64(n)).ChancePermille(300) {
			p.Topology.Moves = append(p.Topology.Moves, n)
		}
		if at(uint64(n) + 1<<8).ChancePermille(80) {
			p.Topology.Unrenewed = append(p.Topology.Unrenewed, n)
		}
	}
}
