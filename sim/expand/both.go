package expand

import (
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// What is drawn for nodes that prefill and decode at once: by ordinals of its own, so that nothing else of a seed
// depends on it.

// drawBoth draws two or three nodes that all do both, with few pages, so that what an engine reserves and what peers
// send compete for them.
func drawBoth(p *plan.Plan, s *Scale) {
	at := func(n uint64) draw.Of { return draw.Hash(p.Seed, draw.Plan, 0, n) }
	n := at(200).Between(2, 3)
	p.Topology.Senders, p.Topology.Receivers, p.Topology.Both = n, n, n
	s.Ring = at(201).Permille(500)
	p.Topology.ReceiverPages = uint32(at(202).Between(4, 12))
	p.Topology.SenderPages = p.Topology.ReceiverPages // There is one pool.
	p.Bounds.PeerSharePct, p.Bounds.EngineSharePct = uint32(at(203).Between(60, 100)), uint32(at(204).Between(30, 100))
	if at(207).Permille(800) { // Else an engine asks for more than it may ever have.
		s.BatchMax = min(s.BatchMax, max(1, int(p.Topology.ReceiverPages*p.Bounds.EngineSharePct)/100))
	}
	if len(p.Topology.DriftPPM) > 0 {
		p.Topology.DriftPPM = nil
		most := int(world.DriftMax(effects.Duration(p.Timeouts.Lease), effects.Duration(p.Timeouts.LeaseGuard)))
		for i := range n {
			p.Topology.DriftPPM = append(p.Topology.DriftPPM, at(uint64(210+i)).Between(-most, most))
		}
	}
	if !at(205).Permille(330) {
		return
	}
	drawPulls(p, "both")
	if at(206).Permille(600) {
		drawDelays(p, "both")
	}
}

// drawContest has some seeds be about the one line in which engines and peers wait for pages: who wants much of a small
// pool is passed by who wants little, as often as may be.
func drawContest(p *plan.Plan, s *Scale, rates *[plan.FaultKinds]int) {
	at := func(n uint64) draw.Of { return draw.Hash(p.Seed, draw.Plan, 0, n) }
	if !at(220).Permille(200) {
		return
	}
	s.Jobs, s.Window = 3*s.Jobs, at(221).Time(500*time.Millisecond, 3*time.Second)
	p.Topology.ReceiverPages = uint32(at(222).Between(4, 7))
	p.Topology.SenderPages = p.Topology.ReceiverPages
	s.BatchMax = int(p.Topology.ReceiverPages)
	b := plan.New().Bounds // Tables have room for all who wait.
	b.Staging, b.ReservePPM = p.Bounds.Staging, p.Bounds.ReservePPM
	p.Bounds = b
	p.Bounds.PeerSharePct, p.Bounds.EngineSharePct = 100, uint32(at(223).Between(70, 100))
	p.Bounds.Overtakes = uint32(at(224).Between(1, 2))
	p.Delays.Message = at(225).Time(time.Millisecond/10, time.Millisecond)
	p.Timeouts.Reserve += at(226).Time(0, 4*time.Second)
	p.Timeouts.Alloc += 2 * time.Second
	p.Timeouts.Reply += 2 * time.Second
	p.Timeouts.Put += 4 * time.Second
	if at(227).Permille(700) { // Who is disturbed gives up before he starves.
		for _, f := range plan.Faults() {
			if !f.Calm() {
				rates[f] = 0
			}
		}
	}
}
