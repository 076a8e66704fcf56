package p2p

import (
	"slices"
	"time"

	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/expand"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// The random choices for nodes that share use separate labels, so that no other choice of a seed depends on them.

// drawWorld draws two or three nodes that share. The nodes are sent more chunks than the pools have room for.
func drawWorld(d *expand.Draft) {
	p, s := d.Plan, &d.Scale
	at := func(n uint64) draw.Value { return draw.Hash(p.Seed, draw.Plan, 9, n) }
	n := at(0).Between(2, 3)
	p.Topology.Senders, p.Topology.Receivers, p.Topology.Both = n, n, n
	p.Topology.Flags, p.Topology.Trust = p.Topology.Flags.With(flowWord), false
	if at(40).ChancePermille(400) {
		p.Topology.Flags = p.Topology.Flags.With(arenaWord)
		if at(41).ChancePermille(500) { // Copies are often late, fail, or continue after a failure.
			p.Delays.Device = at(42).RoundedDuration(time.Millisecond, 40*time.Millisecond)
			p.Rates[plan.FaultDMAFailed], p.Rates[plan.FaultCopyStalled] = at(43).Between(0, 150), at(44).Between(0, 150)
			if at(49).ChancePermille(500) { // Some pages of a copy fail, and the device is quick enough that most do not.
				p.Delays.Device = at(42).RoundedDuration(100*time.Microsecond, 5*time.Millisecond)
				p.Rates[plan.FaultDMAFailed], p.Rates[plan.FaultCopyStalled] = at(43).Between(50, 400), 0
			}
		}
	}
	if at(48).ChancePermille(450) {
		p.Topology.Flags = p.Topology.Flags.With(secondPoolWord)
	}
	p.Topology.Pull, p.Topology.Delay, p.Topology.Cache = nil, nil, nil
	for i := range n {
		if at(uint64(10 + i)).ChancePermille(800) {
			p.Topology.Cache = append(p.Topology.Cache, p.ReceiverAt(i))
		}
	}
	p.Topology.ReceiverPages = uint32(at(1).Between(5, 16))
	if p.Topology.Flags[arenaWord] && at(45).ChancePermille(600) { // A node that looks chunks up has room for the chunks.
		p.Topology.ReceiverPages, s.BatchMax = uint32(at(46).Between(14, 24)), min(s.BatchMax, at(47).Between(1, 3))
	}
	if hasShortMessages(p) { // A node has room for the chunks of a request that fills a message.
		p.Topology.ReceiverPages = uint32(at(61).Between(20, 40))
	}
	p.Topology.SenderPages = p.Topology.ReceiverPages // There is a single pool.
	p.Bounds.PeerSharePct, p.Bounds.EngineSharePct = uint32(at(2).Between(60, 100)), uint32(at(3).Between(40, 100))
	s.BatchMax = min(s.BatchMax, max(1, int(p.Topology.ReceiverPages*p.Bounds.EngineSharePct)/100))
	s.Jobs, s.Groups, s.Plain = at(4).Between(6, 40), at(5).Between(1, 3), 0
	s.Window = at(6).RoundedDuration(time.Second, 5*time.Second)
	if at(7).ChancePermille(300) { // Replies often take longer than the lease guard.
		p.Topology.Leased = true
		p.Timeouts.Lease = at(8).RoundedDuration(400*time.Millisecond, 900*time.Millisecond)
		p.Timeouts.LeaseGuard = p.Timeouts.Lease / 60
		p.Timeouts.Put = max(p.Timeouts.Put, 2*p.Timeouts.Lease)
		p.Delays.Message = max(p.Delays.Message, 3*time.Millisecond)
		if at(9).ChancePermille(700) { // Reads often end after the lease, and before the timeout of their command.
			p.Rates[plan.FaultLateStore] = 300
			p.Timeouts.Put = max(p.Timeouts.Put, 5*p.Timeouts.Lease)
			p.Topology.ReceiverPages, s.Jobs, s.BatchMax = 24, at(30).Between(4, 12), min(s.BatchMax, 3)
			p.Topology.SenderPages = p.Topology.ReceiverPages
		}
	}
	if len(p.Topology.DriftPPM) > 0 {
		p.Topology.DriftPPM = nil
		for i := range n {
			p.Topology.DriftPPM = append(p.Topology.DriftPPM, at(uint64(20+i)).Between(-world.DriftMax, world.DriftMax))
		}
	}
}

// drawJobs adds jobs that bring chunks from another node, as far as that node still has them.
func drawJobs(d *expand.Draft) {
	p := d.Plan
	sentJobs, keepDraw := len(p.Jobs), draw.Hash(p.Seed, draw.Plan, 9, 50)
	if keepDraw.ChancePermille(500) { // Kept chunks are often fetched late, or not at all.
		p.Rates[plan.FaultFetchDelayed] = keepDraw.Rehash().Between(100, 600)
	}
	for i := range sentJobs {
		at := func(n uint64) draw.Value { return draw.Hash(p.Seed, draw.Plan, 9, 1000+uint64(i)<<8|n) }
		j := &p.Jobs[i]
		if j.Plain || j.PlainTo || j.Gather || !at(0).ChancePermille(600) || len(p.Jobs) >= plan.JobsMax {
			continue
		}
		to := plan.Node(at(1).Below(uint64(p.Topology.Both)))
		if to == j.To {
			continue
		}
		r := plan.Job{
			Request: expand.UnusedRequest(p), From: j.To, To: to, Flags: plan.FlowFlags{flowWord: true}, Keys: slices.Clone(j.Keys),
			At: j.At + at(2).RoundedDuration(0, p.Timeouts.ClaimTTL),
		}
		// Start the job soon after the chunk arrived: later the chunk may have been evicted.
		if at(4).ChancePermille(500) || p.Topology.Flags[arenaWord] && at(8).ChancePermille(800) {
			r.At = j.At + at(5).RoundedDuration(5*time.Millisecond, 150*time.Millisecond)
		}
		if at(3).ChancePermille(300) { // No node has this chunk, so the prefix ends here.
			r.Keys = append(r.Keys, plan.FirstUnsharedKey+r.Request*8+7)
		}
		r.Batch = len(r.Keys)
		pushShare := 500
		if p.Topology.Flags[arenaWord] {
			pushShare = 150
		}
		if at(6).ChancePermille(pushShare) {
			r.Flags = r.Flags.With(pushWord)
			if hasShortMessages(p) && at(12).ChancePermille(500) {
				lengthenPush(p, &r)
			}
		}
		if keepDraw.ChancePermille(500) && at(7).ChancePermille(500) { // The remaining jobs to the same receiver are then kept as well.
			r.Flags = r.Flags.With(keepWord)
		}
		p.Jobs = append(p.Jobs, r)
		if at(9).ChancePermille(350) && len(p.Jobs) < plan.JobsMax { // The engine of the sender may share its own pages.
			readShared(p, j, &r, at(10))
		}
	}
}

// readShared makes two requests of a node read the chunks of job j from the sender of the job. The second request may
// arrive while the sender's engine wants back the pages that it shares.
func readShared(p *plan.Plan, j, r *plan.Job, d draw.Value) {
	first := *r
	first.Request, first.From, first.To, first.Keys = expand.UnusedRequest(p), j.From, r.To, slices.Clone(j.Keys)
	if first.From == first.To {
		first.To = j.To
	}
	first.Batch, first.At = len(first.Keys), j.At+d.RoundedDuration(0, 400*time.Millisecond)
	p.Jobs = append(p.Jobs, first)
	second := first
	second.Request, second.Keys = expand.UnusedRequest(p), slices.Clone(j.Keys)
	second.At += d.Rehash().RoundedDuration(0, 300*time.Millisecond)
	p.Jobs = append(p.Jobs, second)
}
