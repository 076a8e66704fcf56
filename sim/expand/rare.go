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

// rarely is the number of these seeds per thousand. Most seeds remain ordinary.
const rarely = 240

// drawConjunction draws whether a seed tests a conjunction, and selects the conjunction.
func drawRare(p *plan.Plan, profile string) {
	at := func(n uint64) draw.Of { return draw.Hash(p.Seed, draw.Plan, 4, n) }
	if profile != "delayed" && profile != "full" || len(p.Jobs) == 0 {
		return
	}
	if !at(0).Permille(rarely) {
		return
	}
	stories := []func(*plan.Plan, func(uint64) draw.Of){
		drawDrainedKeeper, drawFrozenOverRestart, drawFetchesBeside, drawFetchesOver, drawOfferedLate,
		drawRefusedWhileRead,
	}
	if profile == "full" {
		stories = append(stories, drawFullUnderWay)
	}
	stories[at(1).Below(uint64(len(stories)))](p, at)
	slices.SortStableFunc(p.Faults, func(a, b plan.Scheduled) int { return int(a.At - b.At) })
}

// pickOffer picks a job with chunks that are offered to a receiver that keeps offers. The result is false if no job is
// suitable.
func offering(p *plan.Plan, d draw.Of) (*plan.Job, bool) {
	return offeredTo(p, d, func(j *plan.Job) bool { return slices.Contains(p.Topology.Delay, j.To) })
}

// pickOfferWhere picks a job that offers its chunks and for which matches returns true. The result is false if no job
// is suitable.
func offeredTo(p *plan.Plan, d draw.Of, does func(*plan.Job) bool) (*plan.Job, bool) {
	var of []*plan.Job
	for i := range p.Jobs {
		j := &p.Jobs[i]
		if !j.Plain && !j.PlainTo && !j.Gather && slices.Contains(p.Topology.Pull, j.From) && does(j) {
			of = append(of, j)
		}
	}
	if len(of) == 0 {
		return nil, false
	}
	return of[d.Below(uint64(len(of)))], true
}

// loseReply makes one of the first replies on an allocation connection between the nodes of a job disappear.
func loseAnswers(p *plan.Plan, j *plan.Job, d draw.Of) {
	p.Strikes = append(p.Strikes, plan.Strike{Fault: plan.FaultReplyLost,
		About: plan.AboutConn(int32(j.From), 0, int32(j.To), effects.ChannelAlloc, uint32(d.Between(1, 2))),
		Nth:   1 + d.Again().Below(5)})
}

// raise sets the rate of a fault to at least the given number per thousand.
func raise(p *plan.Plan, f plan.Fault, permille int) { p.Rates[f] = max(p.Rates[f], permille) }

// drawDrainedKeeper makes the reply to an offer be lost. The receiver drains before the offer is retried, with reads in
// flight.
func drawDrainedKeeper(p *plan.Plan, at func(uint64) draw.Of) {
	j, ok := offering(p, at(10))
	if !ok {
		return
	}
	loseAnswers(p, j, at(11))
	readSlowly(p, j, at(12))
	j.Early, j.Take, j.Batch = true, false, 1
	p.Timeouts.Alloc = min(p.Timeouts.Alloc, at(15).Time(50*time.Millisecond, 400*time.Millisecond))
	p.Timeouts.Reply = min(p.Timeouts.Reply, p.Timeouts.Alloc+at(16).Time(50*time.Millisecond, 200*time.Millisecond))
	p.Timeouts.Put = max(p.Timeouts.Put, 3*p.Timeouts.Reply)
	p.Faults = append(p.Faults, plan.Scheduled{Fault: plan.FaultDrain, Node: j.To,
		At:  j.At + at(13).Time(30*time.Millisecond, p.Timeouts.Reply+50*time.Millisecond),
		For: at(14).Time(time.Second, 2*time.Second)})
}

// readSlowly makes the first reads of the receiver of a job take long, mostly on a leased plane.
func readSlowly(p *plan.Plan, j *plan.Job, d draw.Of) {
	if p.Topology.Leased = d.Permille(800); !p.Topology.Leased {
		p.Delays.Device = max(p.Delays.Device, 20*time.Millisecond)
		return
	}
	for nth := range uint32(3) {
		p.Strikes = append(p.Strikes, plan.Strike{Fault: plan.FaultLateStore,
			About: plan.AboutTransfer(int32(j.To), 0, nth+1)})
	}
}

// drawFrozenOverRestart freezes a receiver while a sender from which it reads crashes and restarts.
func drawFrozenOverRestart(p *plan.Plan, at func(uint64) draw.Of) {
	j, ok := offering(p, at(10))
	if !ok {
		return
	}
	readSlowly(p, j, at(11))
	j.Early = true
	dies := j.At + at(12).Time(20*time.Millisecond, 500*time.Millisecond)
	p.Faults = append(p.Faults,
		plan.Scheduled{Fault: plan.FaultFreeze, Node: j.To, At: dies - at(13).Time(0, 20*time.Millisecond),
			For: at(14).Time(time.Second, 4*time.Second)},
		plan.Scheduled{Fault: plan.FaultCrash, Node: j.From, At: dies})
	for i := range p.Jobs { // The new incarnation offers at once and numbers its grants as the former incarnation did.
		if o := &p.Jobs[i]; o.From == j.From && !o.Gather && at(uint64(100+i)).Permille(400) {
			o.To, o.At = j.To, dies+at(uint64(200+i)).Time(0, 2*time.Second)
		}
	}
}

// drawFetchesBeside adds several fetches of the same chunks that fail or are aborted at different times.
func drawFetchesBeside(p *plan.Plan, at func(uint64) draw.Of) {
	j, ok := offering(p, at(10))
	if !ok {
		return
	}
	raise(p, plan.FaultDMA, 150)
	raise(p, plan.FaultAbort, 200)
	raise(p, plan.FaultImport, 100)
	p.Delays.Device = max(p.Delays.Device, at(11).Time(2*time.Millisecond, 40*time.Millisecond))
	for i := range at(12).Between(2, 5) {
		if len(p.Jobs) == plan.JobsMax {
			break
		}
		g := plan.Job{Request: uint32(len(p.Jobs)), From: j.From, To: j.To, Batch: 1, Gather: true,
			At: j.At + at(uint64(20+i)).Time(10*time.Millisecond, 400*time.Millisecond)}
		for _, k := range j.Keys {
			if k < plan.KeysOwn {
				g.Keys = append(g.Keys, k)
			}
		}
		if len(g.Keys) > 0 {
			p.Jobs = append(p.Jobs, g)
		}
	}
	p.Faults = append(p.Faults, plan.Scheduled{Fault: plan.FaultCutLink, Node: plan.Node(plan.Nobody),
		At: j.At + at(13).Time(20*time.Millisecond, 600*time.Millisecond), Pick: at(14).Below(1000)})
}

// drawFetchesOver makes a plain sender wait for a grant. The chunks of a plain sender become readable when they are
// granted. The receiver is frozen meanwhile; when it continues, the earlier grants and a fetch of the chunk have both
// timed out.
func drawFetchesOver(p *plan.Plan, at func(uint64) draw.Of) {
	first, keeps := p.Jobs[at(15).Below(uint64(len(p.Jobs)))], p.Topology.Delay
	var writes []plan.Node // A pull sender is not served as a plain sender.
	for n := range plan.Node(p.Topology.Senders) {
		if !slices.Contains(p.Topology.Pull, n) {
			writes = append(writes, n)
		}
	}
	if len(keeps) == 0 || len(writes) == 0 {
		return
	}
	first.To, first.Gather = keeps[at(15).Again().Below(uint64(len(keeps)))], false
	first.From = writes[at(18).Below(uint64(len(writes)))]
	// No other job takes the few grants meanwhile.
	p.Jobs = slices.DeleteFunc(p.Jobs, func(o plan.Job) bool {
		beside := o.To == first.To && o.At > first.At-3*time.Second && o.At < first.At+2*time.Second
		return o.Request == first.Request || beside
	})
	p.Faults = slices.DeleteFunc(p.Faults, func(x plan.Scheduled) bool { return x.At < first.At+2*time.Second })
	p.Jobs = append(p.Jobs, first)
	j := &p.Jobs[len(p.Jobs)-1]
	p.Topology.Leased, p.Topology.Trust = true, true
	p.Bounds.Grants = uint32(at(11).Between(1, 3))
	p.Timeouts.Lease = at(12).Time(400*time.Millisecond, 900*time.Millisecond)
	p.Timeouts.LeaseGuard, p.Timeouts.Residual = p.Timeouts.Lease/8, 50*time.Millisecond
	p.Timeouts.PullTTL = min(p.Timeouts.PullTTL, p.Timeouts.Lease)
	p.Timeouts.Lead, p.Timeouts.Loan = min(p.Timeouts.Lead, p.Timeouts.PullTTL/2), max(p.Timeouts.Loan, p.Timeouts.PullTTL)
	p.Timeouts.Fetch = at(13).Time(100*time.Millisecond, p.Timeouts.Lease)
	p.Timeouts.Alloc = max(p.Timeouts.Alloc, p.Timeouts.Lease+800*time.Millisecond)
	p.Timeouts.Reply = max(p.Timeouts.Reply, p.Timeouts.Alloc+50*time.Millisecond)
	p.Topology.DriftPPM = nil // The tolerated clock drift depends on the lease.
	p.Rates[plan.FaultAbandon] = 0
	j.Plain, j.PlainTo, j.Early, j.Batch, j.Keys = true, false, false, 1, []uint32{41, 42, 43, 44}
	asks := j.At + at(14).Time(5*time.Millisecond, 60*time.Millisecond)
	for i, key := range j.Keys[1:] { // Which chunk waits depends on the grants of the remaining chunks.
		if len(p.Jobs) < plan.JobsMax {
			p.Jobs = append(p.Jobs, plan.Job{Request: Unused(p), From: first.From, To: first.To, Batch: 1, Gather: true,
				At: asks + time.Duration(i)*100*time.Microsecond, Keys: []uint32{key}})
		}
	}
	p.Faults = append(p.Faults, plan.Scheduled{Fault: plan.FaultPause, Node: first.To,
		At:  asks + at(16).Time(time.Millisecond, 30*time.Millisecond),
		For: p.Timeouts.Lease + at(17).Time(50*time.Millisecond, 500*time.Millisecond)})
}

// drawRefusedWhileRead makes a receiver that reads offers on arrival abandon a read that its device continues. The
// reply is lost, and the sender retries the offer.
func drawRefusedWhileRead(p *plan.Plan, at func(uint64) draw.Of) {
	j, ok := offeredTo(p, at(10), func(j *plan.Job) bool { return !slices.Contains(p.Topology.Delay, j.To) })
	if !ok {
		return
	}
	p.Topology.Leased = true
	raise(p, plan.FaultLateStore, 600)
	raise(p, plan.FaultReplyLost, 400)
	p.Delays.Device = min(p.Delays.Device, 10*time.Millisecond) // Otherwise no read ends in time.
	p.Timeouts.Read = at(11).Time(40*time.Millisecond, 200*time.Millisecond)
	p.Timeouts.Alloc = at(12).Time(40*time.Millisecond, 200*time.Millisecond)
	p.Timeouts.Reply = p.Timeouts.Alloc + at(13).Time(20*time.Millisecond, 100*time.Millisecond)
	p.Timeouts.Put = max(p.Timeouts.Put, 6*p.Timeouts.Reply)
	j.Batch = min(j.Batch, 2)
}

// Unused returns a request number that no job of p uses.
func Unused(p *plan.Plan) (number uint32) {
	for i := range p.Jobs {
		number = max(number, p.Jobs[i].Request+1)
	}
	return number
}

// drawOfferedLate makes the reply to an offer be lost, and freezes the receiver until after the lease, when the retried
// offer has arrived.
func drawOfferedLate(p *plan.Plan, at func(uint64) draw.Of) {
	j, ok := offering(p, at(10))
	if !ok {
		return
	}
	loseAnswers(p, j, at(11))
	if at(12).Permille(500) {
		raise(p, plan.FaultLateStore, 250)
	}
	p.Timeouts.Put = max(p.Timeouts.Put, 2*p.Timeouts.Reply)
	p.Faults = append(p.Faults, plan.Scheduled{Fault: plan.FaultFreeze, Node: j.To,
		At:  j.At + at(13).Time(20*time.Millisecond, 200*time.Millisecond),
		For: at(14).Time(p.Timeouts.PullTTL, p.Timeouts.PullTTL+p.Timeouts.Reply)})
}

// drawFullUnderWay makes replies that report a full receiver arrive just when the sender times out. The replies stay in
// the mailbox of the sender until the sender has retried on another connection, and the reply there arrives too late as
// well.
func drawFullUnderWay(p *plan.Plan, at func(uint64) draw.Of) {
	first := p.Jobs[at(12).Below(uint64(len(p.Jobs)))]
	p.Topology.ReceiverPages = min(p.Topology.ReceiverPages, uint32(at(11).Between(4, 8)))
	raise(p, plan.FaultHoard, 300)
	p.Delays.Message = max(p.Delays.Message, 2*time.Millisecond)
	p.Timeouts.Alloc = at(13).Time(50*time.Millisecond, 200*time.Millisecond)
	p.Timeouts.Reply = p.Timeouts.Alloc + at(14).Time(p.Delays.Message, 5*p.Delays.Message)
	p.Timeouts.Breaker = p.Timeouts.Reply + at(10).Time(100*time.Millisecond, time.Second)
	p.Timeouts.Put = max(p.Timeouts.Put, 4*p.Timeouts.Reply)
	for i := range p.Jobs {
		if j := &p.Jobs[i]; j.From == first.From && !j.Gather && at(uint64(100+i)).Permille(500) {
			j.To, j.Plain, j.PlainTo, j.Batch, j.At = first.To, false, false, 1, first.At+at(uint64(200+i)).Time(0, time.Second)
		}
	}
}
