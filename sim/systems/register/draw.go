package register

import (
	"time"

	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/expand"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// drawWorld draws a world of two engines. The choices use separate labels, so that no other choice of a seed depends on
// them.
func drawWorld(d *expand.Draft) {
	p, s := d.Plan, &d.Scale
	at := func(n uint64) draw.Value { return draw.Hash(p.Seed, draw.Plan, 16, n) }
	n := at(0).Between(2, 6)
	p.Topology.Senders, p.Topology.Receivers, p.Topology.Both = n, n, n
	p.Topology.Flags, p.Topology.Trust, p.Topology.Mismatch = plan.FlowFlags{flowWord: true}, false, false
	p.Topology.Pull, p.Topology.Delay, p.Topology.Cache = nil, nil, nil
	p.Bounds.Peers = uint32(at(7).Between(6, 12))
	drawGrants(p)
	if at(30).ChancePermille(250) { // Rows of peers are often given to others.
		p.Bounds.Peers = uint32(at(31).Between(n-1, n))
	}
	s.Jobs, s.Groups, s.Plain = at(4).Between(3, 24), 1, 0
	s.Window = at(6).RoundedDuration(300*time.Millisecond, 4*time.Second)
	if len(p.Topology.DriftPPM) > 0 {
		p.Topology.DriftPPM = nil
		for i := range n {
			p.Topology.DriftPPM = append(p.Topology.DriftPPM, at(uint64(20+i)).Between(-world.DriftMax, world.DriftMax))
		}
	}
}

// restoreRoom gives a condensed plan what a request needs: a grant and a row for each rank of the producer, and the time
// in which its pages are moved, of which one has many.
func restoreRoom(p *plan.Plan) {
	drawGrants(p)
	p.Bounds.Peers = max(p.Bounds.Peers, uint32(p.Topology.Both))
	p.Timeouts.Put = max(p.Timeouts.Put, 60*p.Delays.Device)
}

// drawGrants draws the number of grants of a rank. Every request needs one for each rank of the producer.
func drawGrants(p *plan.Plan) {
	p.Bounds.Grants = uint32(draw.Hash(p.Seed, draw.Plan, 16, 8).Between(8, 40))
}

// drawJobs turns each job into a request to the two engines.
func drawJobs(d *expand.Draft) {
	p := d.Plan
	for i := range p.Jobs {
		j := &p.Jobs[i]
		j.Plain, j.PlainTo, j.Gather, j.Whole, j.Take, j.Prefix = false, false, false, false, false, 0
		j.Keys = j.Keys[:1]
	}
}
