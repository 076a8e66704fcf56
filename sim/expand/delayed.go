package expand

import (
	"time"

	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
)

// The random choices for receivers that keep offers, and for the engines that fetch from these receivers, use separate
// labels, so that the remaining choices of a seed do not depend on these choices.

// drawDelays draws which receivers keep offers, and their limits.
func drawDelays(p *plan.Plan, profile string) {
	at := func(n uint64) draw.Of { return draw.Hash(p.Seed, draw.Plan, 3, n) }
	for i := range p.Topology.Receivers {
		if i == 0 && profile == "delayed" || at(uint64(i)).Permille(500) {
			p.Topology.Delay = append(p.Topology.Delay, p.Receiver(i))
		}
	}
	if profile == "delayed" { // Some senders push, so that a fetch finds its chunks in place.
		p.Topology.Pull = p.Topology.Pull[:0]
		for i := range p.Topology.Senders {
			if i == 0 || at(uint64(10+i)).Permille(750) {
				p.Topology.Pull = append(p.Topology.Pull, plan.Node(i))
			}
		}
	}
	p.Timeouts.Fetch = at(20).Time(100*time.Millisecond, 3*time.Second)
	p.Timeouts.Lead = at(21).Time(time.Millisecond, p.Timeouts.PullTTL/2)
	p.Timeouts.Loan = at(29).Time(p.Timeouts.PullTTL, 4*p.Timeouts.PullTTL)
	p.Delays.Scatter = at(30).Time(time.Millisecond/50, 10*time.Millisecond)
	p.Bounds.Staging = uint32(at(22).Between(1, 8))
	if at(23).Permille(150) { // Small tables, which are often full.
		p.Bounds.Offers, p.Bounds.Places, p.Bounds.Fetches = uint32(at(24).Between(1, 6)), uint32(at(25).Between(2, 24)),
			uint32(at(26).Between(1, 4))
	}
	// Slow enough for a lease to end, or a link to break, between two batches.
	if profile == "delayed" && at(27).Permille(400) {
		p.Delays.Device = at(28).Time(2*time.Millisecond, 40*time.Millisecond)
	}
}

// drawReads draws how engines read kept offers, and which jobs gather chunks that were sent for earlier jobs.
func drawReaders(p *plan.Plan) {
	if len(p.Topology.Delay) == 0 {
		return
	}
	sent := len(p.Jobs)
	for i := range sent {
		at := func(n uint64) draw.Of { return draw.Hash(p.Seed, draw.Workload, uint64(i), n) }
		j := &p.Jobs[i]
		j.Take = at(20).Permille(150)
		if at(21).Permille(200) {
			j.Prefix = at(21).Again().Between(1, len(j.Keys))
		}
		if at(22).Permille(150) && len(p.Jobs) < plan.JobsMax {
			gather(p, i, at)
		}
	}
}

// gather adds a job that reads the whole chunks of two requests for the same node. The chunks mostly come from two
// senders.
func gather(p *plan.Plan, i int, at func(uint64) draw.Of) {
	one := p.Jobs[i]
	other := p.Jobs[at(23).Below(uint64(i+1))]
	g := plan.Job{Request: uint32(len(p.Jobs)), From: one.From, To: one.To, Batch: 1, Gather: true,
		At: max(one.At, other.At) + at(24).Time(0, p.Timeouts.PullTTL)}
	for _, j := range []plan.Job{one, other} {
		for _, k := range j.Keys {
			if j.To == one.To && k < plan.KeysOwn {
				g.Keys = append(g.Keys, k)
			}
		}
	}
	if len(g.Keys) > 0 {
		p.Jobs = append(p.Jobs, g)
	}
}
