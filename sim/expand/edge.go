package expand

import (
	"slices"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
)

// Each seed of profile edge tests a situation that ordinary seeds hardly reach: an incarnation ends or a table is full
// while earlier work is in flight.

// drawEdge draws the situation. Half of the seeds have no additional faults, because additional faults often end the
// work earlier.
func drawEdge(p *plan.Plan, profile string) {
	if profile != "edge" {
		return
	}
	at := func(n uint64) draw.Of { return draw.Hash(p.Seed, draw.Plan, 10, n) }
	if at(0).Permille(500) {
		p.Rates, p.Faults = map[plan.Fault]int{}, nil
	}
	stories := []func(*plan.Plan, func(uint64) draw.Of){
		drawLateTwins, drawHandsOver, drawHandsOver, drawCrowd, drawDrainedTwice, drawDrainedTwice, drawRowReused,
	}
	stories[at(1).Below(uint64(len(stories)))](p, at)
	slices.SortStableFunc(p.Faults, func(a, b plan.Scheduled) int { return int(a.At - b.At) })
}

// drawLateTwins delays the first attempts at offers. A first attempt arrives after the second attempt was read and
// reported, and after the record of the report was evicted in favour of newer records.
func drawLateTwins(p *plan.Plan, at func(uint64) draw.Of) {
	p.Topology.Leased = at(10).Permille(800)
	p.Topology.DriftPPM, p.Topology.Mismatch = nil, false // The tolerated clock drift depends on the lease.
	p.Topology.SenderPages, p.Topology.ReceiverPages = max(p.Topology.SenderPages, 6), max(p.Topology.ReceiverPages, 12)
	p.Bounds.Grants, p.Bounds.Offers, p.Bounds.Peers = uint32(at(11).Between(1, 2)), 1, plan.New().Bounds.Peers
	p.Bounds.Waiters, p.Bounds.ReservePPM = plan.New().Bounds.Waiters, 20_000
	p.Delays.Message = at(12).Time(50*time.Microsecond, time.Millisecond)
	p.Delays.Device = min(p.Delays.Device, time.Millisecond)
	t := &p.Timeouts
	t.Alloc = at(13).Time(30*time.Millisecond, 120*time.Millisecond)
	t.Reply = t.Alloc + at(14).Time(10*time.Millisecond, 60*time.Millisecond)
	t.Put, t.PullTTL = 3*time.Second, at(15).Time(2*time.Second, 4*time.Second)
	t.Lease, t.LeaseGuard, t.Read = t.PullTTL, t.PullTTL/8, max(t.Read, time.Second)
	for i := range p.Jobs {
		j := &p.Jobs[i]
		d := at(uint64(100 + i))
		j.To, j.Plain, j.PlainTo, j.Early, j.Whole, j.Batch = p.Receiver(0), false, false, false, false, 1
		j.At = d.Time(0, 1500*time.Millisecond)
		j.Keys = []uint32{plan.KeysOwn + 8*j.Request, plan.KeysOwn + 8*j.Request + 1}[:d.Again().Between(1, 2)]
	}
	for from := range int32(p.Topology.Senders) {
		for nth := range uint32(12) { // The connections, and the first requests on each connection.
			for k := range uint64(3) {
				if at(uint64(from)<<12 | uint64(nth)<<4 | k | 1<<20).Permille(250) {
					p.Strikes = append(p.Strikes, plan.Strike{Fault: plan.FaultDelay, Nth: 2 * (k + 1),
						About: plan.AboutConn(from, 0, int32(p.Receiver(0)), effects.ChannelAlloc, nth+1)})
				}
			}
		}
	}
}

// drawHandsOver is drawLateTwins with fewer fairness classes than senders, so that classes change their senders
// meanwhile.
func drawHandsOver(p *plan.Plan, at func(uint64) draw.Of) {
	drawLateTwins(p, at)
	p.Bounds.Peers = uint32(max(1, p.Topology.Senders-1))
	p.Tuning.SpokeFor = at(20).Time(time.Millisecond, 50*time.Millisecond)
	p.Timeouts.BackoffMin, p.Timeouts.BackoffMax = 5*time.Millisecond, 20*time.Millisecond
}

// drawCrowd makes many unknown peers connect that only send a hello, so that they fill the peer table of a receiver.
func drawCrowd(p *plan.Plan, at func(uint64) draw.Of) {
	if at(10).Permille(500) {
		p.Topology.Pull = nil
	}
	p.Bounds.Peers = uint32(p.Topology.Senders + at(11).Between(0, 3))
	p.Tuning.SpokeFor = at(12).Time(500*time.Millisecond, 4*time.Second)
	for i := range p.Jobs {
		p.Jobs[i].At = at(uint64(100+i)).Time(0, 2*time.Second)
		p.Jobs[i].PlainTo = p.Jobs[i].PlainTo && len(p.Topology.Pull) > 0
	}
	for i := range uint64(at(13).Between(2, 8)) {
		p.Faults = append(p.Faults, plan.Scheduled{Fault: plan.FaultCrowd, Node: p.Receiver(int(i) % p.Topology.Receivers),
			At: at(20+i).Time(0, 2*time.Second), Pick: at(20 + i).Again().Below(100_000)})
	}
}

// drawDrainedTwice makes a node drain with a very short timeout while its sweeps take many steps. The engine asks for
// the drain again just when the first drain ends.
func drawDrainedTwice(p *plan.Plan, at func(uint64) draw.Of) {
	p.Bounds.Rows = 1
	for i := range uint64(at(10).Between(3, 8)) {
		n := plan.Node(at(20 + i).Below(uint64(p.NodeCount())))
		p.Faults = append(p.Faults, plan.Scheduled{Fault: plan.FaultDrain, Node: n,
			At: at(30+i).Time(200*time.Millisecond, 2*time.Second), For: at(40+i).Time(0, 2*time.Millisecond),
			Pick: plan.DrainedAgain})
	}
}

// drawRowReused makes an import take longer than its offer waits, while the table row of the sender is reused for
// another sender.
func drawRowReused(p *plan.Plan, at func(uint64) draw.Of) {
	p.Topology.Leased = at(10).Permille(500)
	p.Bounds.Peers = uint32(max(1, p.Topology.Senders-1))
	p.Tuning.SpokeFor = at(11).Time(time.Millisecond, 50*time.Millisecond)
	p.Delays.Message = at(12).Time(4*time.Millisecond, 10*time.Millisecond)
	p.Delays.Device = min(p.Delays.Device, time.Millisecond) // Requests can be answered in time.
	t := &p.Timeouts
	t.Alloc = at(13).Time(2*time.Millisecond, 12*time.Millisecond)
	t.Reply = t.Alloc + at(14).Time(60*time.Millisecond, 150*time.Millisecond)
	t.BackoffMin, t.BackoffMax = 2*time.Millisecond, 10*time.Millisecond
	for i := range p.Jobs {
		p.Jobs[i].To, p.Jobs[i].Plain, p.Jobs[i].PlainTo = p.Receiver(0), false, false
		p.Jobs[i].At = at(uint64(100+i)).Time(0, 500*time.Millisecond)
	}
}
