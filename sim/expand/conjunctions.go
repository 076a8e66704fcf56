package expand

import (
	"slices"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
)

// Some seeds of profiles delayed and full test a conjunction of several rare faults, which are placed so that they
// occur together. The seed is otherwise unchanged, because all choices use separate labels.

// conjunctionPermille is the number of these seeds per thousand. Most seeds remain ordinary.
const conjunctionPermille = 240

// drawConjunction draws whether a seed tests a conjunction, and selects the conjunction.
func drawConjunction(p *plan.Plan, profile string) {
	at := func(n uint64) draw.Value { return draw.Hash(p.Seed, draw.Plan, 4, n) }
	if profile != "delayed" && profile != "full" || len(p.Jobs) == 0 {
		return
	}
	if !at(0).ChancePermille(conjunctionPermille) {
		return
	}
	cases := []func(*plan.Plan, func(uint64) draw.Value){
		drawDrainWithOffers, drawFreezeOverRestart, drawParallelFetches, drawExpiredFetch, drawLateOffer,
		drawRetryWhileRead,
	}
	if profile == "full" {
		cases = append(cases, drawLateFullReply)
	}
	cases[at(1).Below(uint64(len(cases)))](p, at)
	slices.SortStableFunc(p.Faults, func(a, b plan.ScheduledFault) int { return int(a.At - b.At) })
}

// pickOffer picks a job with chunks that are offered to a receiver that keeps offers. The result is false if no job is
// suitable.
func pickOffer(p *plan.Plan, d draw.Value) (*plan.Job, bool) {
	return pickOfferWhere(p, d, func(j *plan.Job) bool { return slices.Contains(p.Topology.Delay, j.To) })
}

// pickOfferWhere picks a job that offers its chunks and for which matches returns true. The result is false if no job
// is suitable.
func pickOfferWhere(p *plan.Plan, d draw.Value, matches func(*plan.Job) bool) (*plan.Job, bool) {
	var candidates []*plan.Job
	for i := range p.Jobs {
		j := &p.Jobs[i]
		if !j.Plain && !j.PlainTo && !j.Gather && slices.Contains(p.Topology.Pull, j.From) && matches(j) {
			candidates = append(candidates, j)
		}
	}
	if len(candidates) == 0 {
		return nil, false
	}
	return candidates[d.Below(uint64(len(candidates)))], true
}

// loseReply makes one of the first replies on an allocation connection between the nodes of a job disappear.
func loseReply(p *plan.Plan, j *plan.Job, d draw.Value) {
	p.Strikes = append(p.Strikes, plan.Strike{Fault: plan.FaultReplyLost,
		About: plan.AboutConn(int32(j.From), 0, int32(j.To), effects.ChannelAlloc, uint32(d.Between(1, 2))),
		Nth:   1 + d.Rehash().Below(5)})
}

// raiseRate sets the rate of a fault to at least the given number per thousand.
func raiseRate(p *plan.Plan, f plan.Fault, permille int) { p.Rates[f] = max(p.Rates[f], permille) }

// drawDrainWithOffers makes the reply to an offer be lost. The receiver drains before the offer is retried, with reads
// in flight.
func drawDrainWithOffers(p *plan.Plan, at func(uint64) draw.Value) {
	j, ok := pickOffer(p, at(10))
	if !ok {
		return
	}
	loseReply(p, j, at(11))
	slowReads(p, j, at(12))
	j.Early, j.Take, j.Batch = true, false, 1
	p.Timeouts.Alloc = min(p.Timeouts.Alloc, at(15).RoundedDuration(50*time.Millisecond, 400*time.Millisecond))
	p.Timeouts.Reply = min(p.Timeouts.Reply, p.Timeouts.Alloc+at(16).RoundedDuration(50*time.Millisecond, 200*time.Millisecond))
	p.Timeouts.Put = max(p.Timeouts.Put, 3*p.Timeouts.Reply)
	p.Faults = append(p.Faults, plan.ScheduledFault{Fault: plan.FaultDrain, Node: j.To,
		At:  j.At + at(13).RoundedDuration(30*time.Millisecond, p.Timeouts.Reply+50*time.Millisecond),
		For: at(14).RoundedDuration(time.Second, 2*time.Second)})
}

// slowReads makes the first reads of the receiver of a job take long, mostly on a leased plane.
func slowReads(p *plan.Plan, j *plan.Job, d draw.Value) {
	if p.Topology.Leased = d.ChancePermille(800); !p.Topology.Leased {
		p.Delays.Device = max(p.Delays.Device, 20*time.Millisecond)
		return
	}
	for nth := range uint32(3) {
		p.Strikes = append(p.Strikes, plan.Strike{Fault: plan.FaultLateStore,
			About: plan.AboutTransfer(int32(j.To), 0, nth+1)})
	}
}

// drawFreezeOverRestart freezes a receiver while a sender from which it reads crashes and restarts.
func drawFreezeOverRestart(p *plan.Plan, at func(uint64) draw.Value) {
	j, ok := pickOffer(p, at(10))
	if !ok {
		return
	}
	slowReads(p, j, at(11))
	j.Early = true
	crashAt := j.At + at(12).RoundedDuration(20*time.Millisecond, 500*time.Millisecond)
	p.Faults = append(p.Faults,
		plan.ScheduledFault{Fault: plan.FaultFreeze, Node: j.To, At: crashAt - at(13).RoundedDuration(0, 20*time.Millisecond),
			For: at(14).RoundedDuration(time.Second, 4*time.Second)},
		plan.ScheduledFault{Fault: plan.FaultCrash, Node: j.From, At: crashAt})
	for i := range p.Jobs { // The new incarnation offers at once and numbers its grants as the former incarnation did.
		if o := &p.Jobs[i]; o.From == j.From && !o.Gather && at(uint64(100+i)).ChancePermille(400) {
			o.To, o.At = j.To, crashAt+at(uint64(200+i)).RoundedDuration(0, 2*time.Second)
		}
	}
}

// drawParallelFetches adds several fetches of the same chunks that fail or are aborted at different times.
func drawParallelFetches(p *plan.Plan, at func(uint64) draw.Value) {
	j, ok := pickOffer(p, at(10))
	if !ok {
		return
	}
	raiseRate(p, plan.FaultDMAFailed, 150)
	raiseRate(p, plan.FaultCommandAborted, 200)
	raiseRate(p, plan.FaultImportFailed, 100)
	p.Delays.Device = max(p.Delays.Device, at(11).RoundedDuration(2*time.Millisecond, 40*time.Millisecond))
	for i := range at(12).Between(2, 5) {
		if len(p.Jobs) == plan.JobsMax {
			break
		}
		g := plan.Job{Request: uint32(len(p.Jobs)), From: j.From, To: j.To, Batch: 1, Gather: true,
			At: j.At + at(uint64(20+i)).RoundedDuration(10*time.Millisecond, 400*time.Millisecond)}
		for _, k := range j.Keys {
			if k < plan.FirstUnsharedKey {
				g.Keys = append(g.Keys, k)
			}
		}
		if len(g.Keys) > 0 {
			p.Jobs = append(p.Jobs, g)
		}
	}
	p.Faults = append(p.Faults, plan.ScheduledFault{Fault: plan.FaultCutLink, Node: plan.Node(plan.NoNode),
		At: j.At + at(13).RoundedDuration(20*time.Millisecond, 600*time.Millisecond), Pick: at(14).Below(1000)})
}

// drawExpiredFetch makes a plain sender wait for a grant. The chunks of a plain sender become readable when they are
// granted. The receiver is frozen meanwhile; when it continues, the earlier grants and a fetch of the chunk have both
// timed out.
func drawExpiredFetch(p *plan.Plan, at func(uint64) draw.Value) {
	job, keepers := p.Jobs[at(15).Below(uint64(len(p.Jobs)))], p.Topology.Delay
	var writers []plan.Node // A pull sender is not served as a plain sender.
	for n := range plan.Node(p.Topology.Senders) {
		if !slices.Contains(p.Topology.Pull, n) {
			writers = append(writers, n)
		}
	}
	if len(keepers) == 0 || len(writers) == 0 {
		return
	}
	job.To, job.Gather = keepers[at(15).Rehash().Below(uint64(len(keepers)))], false
	job.From = writers[at(18).Below(uint64(len(writers)))]
	// No other job takes the few grants meanwhile.
	p.Jobs = slices.DeleteFunc(p.Jobs, func(o plan.Job) bool {
		near := o.To == job.To && o.At > job.At-3*time.Second && o.At < job.At+2*time.Second
		return o.Request == job.Request || near
	})
	p.Faults = slices.DeleteFunc(p.Faults, func(x plan.ScheduledFault) bool { return x.At < job.At+2*time.Second })
	p.Jobs = append(p.Jobs, job)
	j := &p.Jobs[len(p.Jobs)-1]
	p.Topology.Leased, p.Topology.Trust = true, true
	p.Bounds.Grants = uint32(at(11).Between(1, 3))
	p.Timeouts.Lease = at(12).RoundedDuration(400*time.Millisecond, 900*time.Millisecond)
	p.Timeouts.LeaseGuard, p.Timeouts.Residual = p.Timeouts.Lease/8, 50*time.Millisecond
	p.Timeouts.PullTTL = min(p.Timeouts.PullTTL, p.Timeouts.Lease)
	p.Timeouts.Lead, p.Timeouts.Loan = min(p.Timeouts.Lead, p.Timeouts.PullTTL/2), max(p.Timeouts.Loan, p.Timeouts.PullTTL)
	p.Timeouts.Fetch = at(13).RoundedDuration(100*time.Millisecond, p.Timeouts.Lease)
	p.Timeouts.Alloc = max(p.Timeouts.Alloc, p.Timeouts.Lease+800*time.Millisecond)
	p.Timeouts.Reply = max(p.Timeouts.Reply, p.Timeouts.Alloc+50*time.Millisecond)
	p.Rates[plan.FaultRequestAbandoned] = 0
	j.Plain, j.PlainTo, j.Early, j.Batch, j.Keys = true, false, false, 1, []uint32{41, 42, 43, 44}
	j.Flags = nil
	fetchAt := j.At + at(14).RoundedDuration(5*time.Millisecond, 60*time.Millisecond)
	for i, key := range j.Keys[1:] { // Which chunk waits depends on the grants of the remaining chunks.
		if len(p.Jobs) < plan.JobsMax {
			p.Jobs = append(p.Jobs, plan.Job{Request: UnusedRequest(p), From: job.From, To: job.To, Batch: 1, Gather: true,
				At: fetchAt + time.Duration(i)*100*time.Microsecond, Keys: []uint32{key}})
		}
	}
	p.Faults = append(p.Faults, plan.ScheduledFault{Fault: plan.FaultPause, Node: job.To,
		At:  fetchAt + at(16).RoundedDuration(time.Millisecond, 30*time.Millisecond),
		For: p.Timeouts.Lease + at(17).RoundedDuration(50*time.Millisecond, 500*time.Millisecond)})
}

// drawRetryWhileRead makes a receiver that reads offers on arrival abandon a read that its device continues. The
// reply is lost, and the sender retries the offer.
func drawRetryWhileRead(p *plan.Plan, at func(uint64) draw.Value) {
	j, ok := pickOfferWhere(p, at(10), func(j *plan.Job) bool { return !slices.Contains(p.Topology.Delay, j.To) })
	if !ok {
		return
	}
	p.Topology.Leased = true
	raiseRate(p, plan.FaultLateStore, 600)
	raiseRate(p, plan.FaultReplyLost, 400)
	p.Delays.Device = min(p.Delays.Device, 10*time.Millisecond) // Otherwise no read ends in time.
	p.Timeouts.Read = at(11).RoundedDuration(40*time.Millisecond, 200*time.Millisecond)
	p.Timeouts.Alloc = at(12).RoundedDuration(40*time.Millisecond, 200*time.Millisecond)
	p.Timeouts.Reply = p.Timeouts.Alloc + at(13).RoundedDuration(20*time.Millisecond, 100*time.Millisecond)
	p.Timeouts.Put = max(p.Timeouts.Put, 6*p.Timeouts.Reply)
	j.Batch = min(j.Batch, 2)
}

// UnusedRequest returns a request number that no job of p uses.
func UnusedRequest(p *plan.Plan) (number uint32) {
	for i := range p.Jobs {
		number = max(number, p.Jobs[i].Request+1)
	}
	return number
}

// drawLateOffer makes the reply to an offer be lost, and freezes the receiver until after the lease, when the retried
// offer has arrived.
func drawLateOffer(p *plan.Plan, at func(uint64) draw.Value) {
	j, ok := pickOffer(p, at(10))
	if !ok {
		return
	}
	loseReply(p, j, at(11))
	if at(12).ChancePermille(500) {
		raiseRate(p, plan.FaultLateStore, 250)
	}
	p.Timeouts.Put = max(p.Timeouts.Put, 2*p.Timeouts.Reply)
	p.Faults = append(p.Faults, plan.ScheduledFault{Fault: plan.FaultFreeze, Node: j.To,
		At:  j.At + at(13).RoundedDuration(20*time.Millisecond, 200*time.Millisecond),
		For: at(14).RoundedDuration(p.Timeouts.PullTTL, p.Timeouts.PullTTL+p.Timeouts.Reply)})
}

// drawLateFullReply makes replies that report a full receiver arrive just when the sender times out. The replies stay
// in the mailbox of the sender until the sender has retried on another connection, and the reply there arrives too late
// as well.
func drawLateFullReply(p *plan.Plan, at func(uint64) draw.Value) {
	first := p.Jobs[at(12).Below(uint64(len(p.Jobs)))]
	p.Topology.ReceiverPages = min(p.Topology.ReceiverPages, uint32(at(11).Between(4, 8)))
	raiseRate(p, plan.FaultPagesKeptLong, 300)
	p.Delays.Message = max(p.Delays.Message, 2*time.Millisecond)
	p.Timeouts.Alloc = at(13).RoundedDuration(50*time.Millisecond, 200*time.Millisecond)
	p.Timeouts.Reply = p.Timeouts.Alloc + at(14).RoundedDuration(p.Delays.Message, 5*p.Delays.Message)
	p.Timeouts.Breaker = p.Timeouts.Reply + at(10).RoundedDuration(100*time.Millisecond, time.Second)
	p.Timeouts.Put = max(p.Timeouts.Put, 4*p.Timeouts.Reply)
	for i := range p.Jobs {
		if j := &p.Jobs[i]; j.From == first.From && !j.Gather && at(uint64(100+i)).ChancePermille(500) {
			j.To, j.Plain, j.PlainTo, j.Batch, j.At = first.To, false, false, 1, first.At+at(uint64(200+i)).RoundedDuration(0, time.Second)
		}
	}
}
