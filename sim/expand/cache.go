package expand

import (
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
)

// The random choices for receivers that are caches use separate labels, so that the remaining choices of a seed do not
// depend on these choices.

// drawCaches draws which receivers are caches, with small pools and many requests that share their first chunks. A
// request finds the chunks that earlier requests sent until their pages are needed.
func drawCaches(p *plan.Plan, s *Scale) {
	at := func(n uint64) draw.Value { return draw.Hash(p.Seed, draw.Plan, 6, n) }
	for i := range p.Topology.Receivers {
		if i == 0 || at(uint64(i)).ChancePermille(600) {
			p.Topology.Cache = append(p.Topology.Cache, p.ReceiverAt(i))
		}
	}
	p.Topology.Trust = false
	if at(20).ChancePermille(700) {
		p.Topology.ReceiverPages = uint32(at(21).Between(4, 8))
		p.Topology.SenderPages = uint32(at(22).Between(4, 16))
	}
	s.Jobs, s.Groups = at(23).Between(10, 80), at(24).Between(1, 3)
	if at(25).ChancePermille(400) {
		drawPullSenders(p, "full")
	}
	if len(p.Topology.Pull) > 0 && at(26).ChancePermille(400) {
		drawOfferKeepers(p, "full")
	}
}
