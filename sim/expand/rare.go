package expand

import (
	"slices"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
)

// Some seeds of the profiles that draw most are about one [Conjunction]: faults that each are rare are put where they
// meet. Such a seed is what it would have been but for that, and all draws have labels of their own.

// rarely is how many seeds of a thousand those are: few enough that ordinary stories stay ordinary.
const rarely = 240

// drawRare draws whether a seed is about a conjunction, and which.
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

// offering picks a job whose chunks are offered to a receiver that keeps offers, if there is one.
func offering(p *plan.Plan, d draw.Of) (*plan.Job, bool) {
	return offeredTo(p, d, func(j *plan.Job) bool { return slices.Contains(p.Topology.Delay, j.To) })
}

// offeredTo picks a job whose chunks are offered to a receiver that will do, if there is one.
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

// loseAnswers lets one of the first answers between two nodes be lost.
func loseAnswers(p *plan.Plan, j *plan.Job, d draw.Of) {
	p.Strikes = append(p.Strikes, plan.Strike{Fault: plan.FaultReplyLost,
		About: plan.AboutConn(int32(j.From), 0, int32(j.To), effects.ChannelAlloc, uint32(d.Between(1, 2))),
		Nth:   1 + d.Again().Below(5)})
}

// raise makes a fault that is drawn on the fly at least so frequent.
func raise(p *plan.Plan, f plan.Fault, permille int) { p.Rates[f] = max(p.Rates[f], permille) }

// drawDrainedKeeper: the answer to an offer is lost, and its receiver drains before it comes again, with reads under
// way.
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

// readSlowly lets the first reads of a job's receiver go on for long, on a leased plane mostly.
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

// drawFrozenOverRestart: a receiver is frozen while a sender that it reads from dies and starts anew.
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
	for i := range p.Jobs { // The new life offers at once, and names its grants as the former one did.
		if o := &p.Jobs[i]; o.From == j.From && !o.Gather && at(uint64(100+i)).Permille(400) {
			o.To, o.At = j.To, dies+at(uint64(200+i)).Time(0, 2*time.Second)
		}
	}
}

// drawFetchesBeside: several fetches of the same chunks, which fail and are aborted at different times.
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

// drawFetchesOver: a plain sender's chunks are readable as they are granted; one waits for that until its receiver,
// which is frozen meanwhile, finds that the time of former grants is over, and that of a fetch of the chunk, too.
func drawFetchesOver(p *plan.Plan, at func(uint64) draw.Of) {
	first, keeps := p.Jobs[at(15).Below(uint64(len(p.Jobs)))], p.Topology.Delay
	var writes []plan.Node // Who offers is not served as a plain sender.
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
	// Nobody else takes the few grants meanwhile.
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
	p.Topology.DriftPPM = nil // What they may be off by depends on the lease.
	p.Rates[plan.FaultAbandon] = 0
	j.Plain, j.PlainTo, j.Early, j.Batch, j.Keys = true, false, false, 1, []uint32{41, 42, 43, 44}
	asks := j.At + at(14).Time(5*time.Millisecond, 60*time.Millisecond)
	for i, key := range j.Keys[1:] { // Which of them waits depends on what others have.
		if len(p.Jobs) < plan.JobsMax {
			p.Jobs = append(p.Jobs, plan.Job{Request: Unused(p), From: first.From, To: first.To, Batch: 1, Gather: true,
				At: asks + time.Duration(i)*100*time.Microsecond, Keys: []uint32{key}})
		}
	}
	p.Faults = append(p.Faults, plan.Scheduled{Fault: plan.FaultPause, Node: first.To,
		At:  asks + at(16).Time(time.Millisecond, 30*time.Millisecond),
		For: p.Timeouts.Lease + at(17).Time(50*time.Millisecond, 500*time.Millisecond)})
}

// drawRefusedWhileRead: a receiver that reads offers as they come gives a read up that goes on at its device, its
// answer is lost, and the offer comes again.
func drawRefusedWhileRead(p *plan.Plan, at func(uint64) draw.Of) {
	j, ok := offeredTo(p, at(10), func(j *plan.Job) bool { return !slices.Contains(p.Topology.Delay, j.To) })
	if !ok {
		return
	}
	p.Topology.Leased = true
	raise(p, plan.FaultLateStore, 600)
	raise(p, plan.FaultReplyLost, 400)
	p.Delays.Device = min(p.Delays.Device, 10*time.Millisecond) // Else none ends in time, whatever becomes of it.
	p.Timeouts.Read = at(11).Time(40*time.Millisecond, 200*time.Millisecond)
	p.Timeouts.Alloc = at(12).Time(40*time.Millisecond, 200*time.Millisecond)
	p.Timeouts.Reply = p.Timeouts.Alloc + at(13).Time(20*time.Millisecond, 100*time.Millisecond)
	p.Timeouts.Put = max(p.Timeouts.Put, 6*p.Timeouts.Reply)
	j.Batch = min(j.Batch, 2)
}

// Unused is the number of a request that no job has.
func Unused(p *plan.Plan) (number uint32) {
	for i := range p.Jobs {
		number = max(number, p.Jobs[i].Request+1)
	}
	return number
}

// drawOfferedLate: the answer to an offer is lost, and its receiver frozen until after the lease, when the offer has
// come again.
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

// drawFullUnderWay: answers that a receiver is full come just as their sender loses patience, and stay in its mailbox
// until it has asked again on another connection, whose answer comes too late as well.
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
