package expand

import (
	"time"

	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
)

// The random choices for receivers that keep offers, and for the engines that fetch from these receivers, use separate
// labels, so that the remaining choices of a seed do not depend on these choices.

// drawOfferKeepers draws which receivers keep offers, and their limits.
func drawOfferKeepers(p *plan.Plan, profile string) {
	at := func(n uint64) draw.Value { return draw.Hash(p.Seed, draw.Plan, 3, n) }
	for i := range p.Topology.Receivers {
		if i == 0 && profile == "delayed" || at(uint64(i)).ChancePermille(500) {
			p.Topology.Delay = append(p.Topology.Delay, p.ReceiverAt(i))
		}
	}
	if profile == "delayed" { // Some senders push, so that a fetch finds its chunks in place.
		p.Topology.Pull = p.Topology.Pull[:0]
		for i := range p.Topology.Senders {
			if i == 0 || at(uint64(10+i)).ChancePermille(750) {
				p.Topology.Pull = append(p.Topology.Pull, plan.Node(i))
			}
		}
	}
	p.Timeouts.Fetch = at(20).RoundedDuration(100*time.Millisecond, 3*time.Second)
	p.Timeouts.Lead = at(21).RoundedDuration(time.Millisecond, p.Timeouts.PullTTL/2)
	p.Timeouts.Loan = at(29).RoundedDuration(p.Timeouts.PullTTL, 4*p.Timeouts.PullTTL)
	p.Delays.Scatter = at(30).RoundedDuration(time.Millisecond/50, 10*time.Millisecond)
	p.Bounds.Staging = uint32(at(22).Between(1, 8))
	if at(23).ChancePermille(150) { // Small tables, which are often full.
		p.Bounds.Offers, p.Bounds.Places, p.Bounds.Fetches = uint32(at(24).Between(1, 6)), uint32(at(25).Between(2, 24)),
			uint32(at(26).Between(1, 4))
	}
	// Slow enough for a lease to end, or a link to break, between two batches.
	if profile == "delayed" && at(27).ChancePermille(400) {
		p.Delays.Device = at(28).RoundedDuration(2*time.Millisecond, 40*time.Millisecond)
	}
}

// drawReads draws how engines read kept offers, and which jobs gather chunks that were sent for earlier jobs.
func drawReads(p *plan.Plan) {
	if len(p.Topology.Delay) == 0 {
		return
	}
	sentJobs := len(p.Jobs)
	for i := range sentJobs {
		at := func(n uint64) draw.Value { return draw.Hash(p.Seed, draw.Workload, uint64(i), n) }
		j := &p.Jobs[i]
		j.Take = at(20).ChancePermille(150)
		if at(21).ChancePermille(200) {
			j.Prefix = at(21).Rehash().Between(1, len(j.Keys))
		}
		if at(22).ChancePermille(150) && len(p.Jobs) < plan.JobsMax {
			addGatherJob(p, i, at)
		}
	}
}

// addGatherJob adds a job that reads the whole chunks of two requests for the same node. The chunks mostly come from
// two senders.
func addGatherJob(p *plan.Plan, i int, at func(uint64) draw.Value) {
	first := p.Jobs[i]
	second := p.Jobs[at(23).Below(uint64(i+1))]
	job := plan.Job{Request: uint32(len(p.Jobs)), From: first.From, To: first.To, Batch: 1, Gather: true,
		At: max(first.At, second.At) + at(24).RoundedDuration(0, p.Timeouts.PullTTL)}
	for _, j := range []plan.Job{first, second} {
		for _, k := range j.Keys {
			if j.To == first.To && k < plan.FirstUnsharedKey {
				job.Keys = append(job.Keys, k)
			}
		}
	}
	if len(job.Keys) > 0 {
		p.Jobs = append(p.Jobs, job)
	}
}
