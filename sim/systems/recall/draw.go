package recall

import (
	"slices"

	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/expand"
	"github.com/kvferry/kvferry/sim/plan"
)

// The random choices for recalls use labels of their own, so that no other choice of a seed depends on them.

// drawJobs adds jobs that recall chunks which another request sent to the same receiver. A recall job asks for all or
// some of the chunks of that request, and in some jobs for a further chunk that no request sent.
func drawJobs(d *expand.Draft) {
	p := d.Plan
	p.Topology.Flags = p.Topology.Flags.With(flowWord)
	sentJobs := len(p.Jobs)
	for i := range sentJobs {
		at := func(n uint64) draw.Value { return draw.Hash(p.Seed, draw.Plan, 7, uint64(i)<<8|n) }
		j := &p.Jobs[i]
		if j.Plain || j.PlainTo || j.Gather || !at(0).ChancePermille(500) || len(p.Jobs) >= plan.JobsMax {
			continue
		}
		r := plan.Job{
			Request: expand.UnusedRequest(p), From: plan.Node(at(1).Below(uint64(p.Topology.Senders))), To: j.To,
			Flags: plan.FlowFlags{flowWord: true},
			Keys:  slices.Clone(j.Keys), At: j.At + at(2).RoundedDuration(0, p.Timeouts.ClaimTTL),
		}
		if at(3).ChancePermille(300) { // No node has this chunk, so the recalled prefix ends here.
			r.Keys = append(r.Keys, plan.FirstUnsharedKey+r.Request*8+7)
		}
		if keysMax := int(p.Topology.SenderPages); len(r.Keys) > keysMax {
			r.Keys = r.Keys[:keysMax]
		}
		r.Batch = len(r.Keys)
		p.Jobs = append(p.Jobs, r)
	}
	if at := draw.Hash(p.Seed, draw.Plan, 7, 1<<41); at.ChancePermille(400) { // Queries and done messages often get no reply in time.
		p.Rates[plan.FaultReplyLost] = max(p.Rates[plan.FaultReplyLost], at.Rehash().Between(100, 400))
		p.Timeouts.Reply = min(p.Timeouts.Reply, p.Timeouts.Put/12)
		p.Timeouts.Alloc = min(p.Timeouts.Alloc, p.Timeouts.Reply*3/4)
	}
}
