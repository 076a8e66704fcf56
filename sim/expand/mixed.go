package expand

import (
	"time"

	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// The random choices for nodes that prefill and decode use separate ordinals, so that the remaining choices of a seed
// do not depend on these choices.

// drawMixedNodes draws two or three nodes that all send and receive. The pools are small, so that the reservations of
// an engine and the allocation requests of peers compete for pages.
func drawMixedNodes(p *plan.Plan, s *Scale) {
	at := func(n uint64) draw.Value { return draw.Hash(p.Seed, draw.Plan, 0, n) }
	n := at(200).Between(2, 3)
	p.Topology.Senders, p.Topology.Receivers, p.Topology.Both = n, n, n
	s.Ring = at(201).ChancePermille(500)
	p.Topology.ReceiverPages = uint32(at(202).Between(4, 12))
	p.Topology.SenderPages = p.Topology.ReceiverPages // There is one pool.
	p.Bounds.PeerSharePct, p.Bounds.EngineSharePct = uint32(at(203).Between(60, 100)), uint32(at(204).Between(30, 100))
	if at(207).ChancePermille(800) { // In the remaining seeds an engine may request more pages than the engine share allows.
		s.BatchMax = min(s.BatchMax, max(1, int(p.Topology.ReceiverPages*p.Bounds.EngineSharePct)/100))
	}
	if len(p.Topology.DriftPPM) > 0 {
		p.Topology.DriftPPM = nil
		for i := range n {
			p.Topology.DriftPPM = append(p.Topology.DriftPPM, at(uint64(210+i)).Between(-world.DriftMax, world.DriftMax))
		}
	}
	if !at(205).ChancePermille(330) {
		return
	}
	drawPullSenders(p, "both")
	if at(206).ChancePermille(600) {
		drawOfferKeepers(p, "both")
	}
}

// drawPageContest makes some seeds test the allocation queue in which engines and peers wait for pages: small requests
// overtake a large request for a small pool as often as the limit allows.
func drawPageContest(p *plan.Plan, s *Scale, rates *[plan.FaultCount]int) {
	at := func(n uint64) draw.Value { return draw.Hash(p.Seed, draw.Plan, 0, n) }
	if !at(220).ChancePermille(200) {
		return
	}
	s.Jobs, s.Window = 3*s.Jobs, at(221).RoundedDuration(500*time.Millisecond, 3*time.Second)
	p.Topology.ReceiverPages = uint32(at(222).Between(4, 7))
	p.Topology.SenderPages = p.Topology.ReceiverPages
	s.BatchMax = int(p.Topology.ReceiverPages)
	b := plan.New().Bounds // The tables have room for all waiting requests.
	b.Staging, b.ReservePPM = p.Bounds.Staging, p.Bounds.ReservePPM
	p.Bounds = b
	p.Bounds.PeerSharePct, p.Bounds.EngineSharePct = 100, uint32(at(223).Between(70, 100))
	p.Bounds.Overtakes = uint32(at(224).Between(1, 2))
	p.Delays.Message = at(225).RoundedDuration(time.Millisecond/10, time.Millisecond)
	p.Timeouts.Reserve += at(226).RoundedDuration(0, 4*time.Second)
	p.Timeouts.Alloc += 2 * time.Second
	p.Timeouts.Reply += 2 * time.Second
	p.Timeouts.Put += 4 * time.Second
	if at(227).ChancePermille(700) { // With more faults, a request would fail before starving.
		for _, f := range plan.Faults() {
			if !f.IsCalm() {
				rates[f] = 0
			}
		}
	}
}
