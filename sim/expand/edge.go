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

// drawEdgeCase draws the situation. Half of the seeds have no additional faults, because additional faults often end
// the work earlier.
func drawEdgeCase(p *plan.Plan, profile string) {
	if profile != "edge" {
		return
	}
	at := func(n uint64) draw.Value { return draw.Hash(p.Seed, draw.Plan, 10, n) }
	if at(0).ChancePermille(500) {
		p.Rates, p.Faults = map[plan.Fault]int{}, nil
	}
	cases := []func(*plan.Plan, func(uint64) draw.Value){
		drawLateDuplicates, drawClassHandover, drawClassHandover, drawHelloCrowd, drawDoubleDrain, drawDoubleDrain, drawReusedRow,
	}
	if p.Topology.Senders > doneRooms && at(2).ChancePermille(300) {
		drawDroppedNotices(p, at)
	} else {
		cases[at(1).Below(uint64(len(cases)))](p, at)
	}
	slices.SortStableFunc(p.Faults, func(a, b plan.ScheduledFault) int { return int(a.At - b.At) })
}

// drawLateDuplicates delays the first attempts at offers. A first attempt arrives after the second attempt was read and
// reported, and after the record of the report was evicted in favour of newer records.
func drawLateDuplicates(p *plan.Plan, at func(uint64) draw.Value) {
	p.Topology.Leased = at(10).ChancePermille(800)
	p.Topology.Mismatch = false
	p.Topology.SenderPages, p.Topology.ReceiverPages = max(p.Topology.SenderPages, 6), max(p.Topology.ReceiverPages, 12)
	p.Bounds.Grants, p.Bounds.Offers, p.Bounds.Peers = uint32(at(11).Between(1, 2)), 1, plan.New().Bounds.Peers
	p.Bounds.Waiters, p.Bounds.ReservePPM = plan.New().Bounds.Waiters, 20_000
	p.Delays.Message = at(12).RoundedDuration(50*time.Microsecond, time.Millisecond)
	p.Delays.Device = min(p.Delays.Device, time.Millisecond)
	t := &p.Timeouts
	t.Alloc = at(13).RoundedDuration(30*time.Millisecond, 120*time.Millisecond)
	t.Reply = t.Alloc + at(14).RoundedDuration(10*time.Millisecond, 60*time.Millisecond)
	t.Put, t.PullTTL = 3*time.Second, at(15).RoundedDuration(2*time.Second, 4*time.Second)
	t.Lease, t.LeaseGuard, t.Read = t.PullTTL, t.PullTTL/8, max(t.Read, time.Second)
	for i := range p.Jobs {
		j := &p.Jobs[i]
		d := at(uint64(100 + i))
		j.To, j.Plain, j.PlainTo, j.Early, j.Whole, j.Batch = p.ReceiverAt(0), false, false, false, false, 1
		j.At = d.RoundedDuration(0, 1500*time.Millisecond)
		j.Keys = []uint32{plan.FirstUnsharedKey + 8*j.Request, plan.FirstUnsharedKey + 8*j.Request + 1}[:d.Rehash().Between(1, 2)]
	}
	for from := range int32(p.Topology.Senders) {
		for nth := range uint32(12) { // The connections, and the first requests on each connection.
			for k := range uint64(3) {
				if at(uint64(from)<<12 | uint64(nth)<<4 | k | 1<<20).ChancePermille(250) {
					p.Strikes = append(p.Strikes, plan.Strike{Fault: plan.FaultMessageDelayed, Nth: 2 * (k + 1),
						About: plan.AboutConn(from, 0, int32(p.ReceiverAt(0)), effects.ChannelAlloc, nth+1)})
				}
			}
		}
	}
}

// drawClassHandover is drawLateDuplicates with fewer fairness classes than senders, so that classes change their
// senders meanwhile.
func drawClassHandover(p *plan.Plan, at func(uint64) draw.Value) {
	drawLateDuplicates(p, at)
	p.Bounds.Peers = uint32(max(1, p.Topology.Senders-1))
	p.Tuning.ProvenPeerBonus = at(20).RoundedDuration(time.Millisecond, 50*time.Millisecond)
	p.Timeouts.BackoffMin, p.Timeouts.BackoffMax = 5*time.Millisecond, 20*time.Millisecond
}

// drawHelloCrowd makes many unknown peers connect that only send a hello, so that they fill the peer table of a
// receiver.
func drawHelloCrowd(p *plan.Plan, at func(uint64) draw.Value) {
	if at(10).ChancePermille(500) {
		p.Topology.Pull = nil
	}
	p.Bounds.Peers = uint32(p.Topology.Senders + at(11).Between(0, 3))
	p.Tuning.ProvenPeerBonus = at(12).RoundedDuration(500*time.Millisecond, 4*time.Second)
	for i := range p.Jobs {
		p.Jobs[i].At = at(uint64(100+i)).RoundedDuration(0, 2*time.Second)
		p.Jobs[i].PlainTo = p.Jobs[i].PlainTo && len(p.Topology.Pull) > 0
	}
	for i := range uint64(at(13).Between(2, 8)) {
		p.Faults = append(p.Faults, plan.ScheduledFault{Fault: plan.FaultHelloCrowd, Node: p.ReceiverAt(int(i) % p.Topology.Receivers),
			At: at(20+i).RoundedDuration(0, 2*time.Second), Pick: at(20 + i).Rehash().Below(100_000)})
	}
}

// drawDoubleDrain makes a node drain with a very short timeout while its sweeps take many steps. The engine asks for
// the drain again just when the first drain ends.
func drawDoubleDrain(p *plan.Plan, at func(uint64) draw.Value) {
	p.Bounds.Rows = 1
	for i := range uint64(at(10).Between(3, 8)) {
		n := plan.Node(at(20 + i).Below(uint64(p.NodeCount())))
		p.Faults = append(p.Faults, plan.ScheduledFault{Fault: plan.FaultDrain, Node: n,
			At: at(30+i).RoundedDuration(200*time.Millisecond, 2*time.Second), For: at(40+i).RoundedDuration(0, 2*time.Millisecond),
			Pick: plan.PickDrainTwice})
	}
}

// drawReusedRow makes an import take longer than its offer waits, while the table row of the sender is reused for
// another sender.
func drawReusedRow(p *plan.Plan, at func(uint64) draw.Value) {
	p.Topology.Leased = at(10).ChancePermille(500)
	p.Bounds.Peers = uint32(max(1, p.Topology.Senders-1))
	p.Tuning.ProvenPeerBonus = at(11).RoundedDuration(time.Millisecond, 50*time.Millisecond)
	p.Delays.Message = at(12).RoundedDuration(4*time.Millisecond, 10*time.Millisecond)
	p.Delays.Device = min(p.Delays.Device, time.Millisecond) // Requests can be answered in time.
	t := &p.Timeouts
	t.Alloc = at(13).RoundedDuration(2*time.Millisecond, 12*time.Millisecond)
	t.Reply = t.Alloc + at(14).RoundedDuration(60*time.Millisecond, 150*time.Millisecond)
	t.BackoffMin, t.BackoffMax = 2*time.Millisecond, 10*time.Millisecond
	for i := range p.Jobs {
		p.Jobs[i].To, p.Jobs[i].Plain, p.Jobs[i].PlainTo = p.ReceiverAt(0), false, false
		p.Jobs[i].At = at(uint64(100+i)).RoundedDuration(0, 500*time.Millisecond)
	}
}

// doneRooms is the number of done messages for which the receiver of drawDroppedNotices has room.
const doneRooms = 2

// drawDroppedNotices fills a receiver's room for done messages with those to senders that do not listen for them, so that
// the messages to the other senders are dropped. Each sender offers once or twice.
func drawDroppedNotices(p *plan.Plan, at func(uint64) draw.Value) {
	p.Topology.Pull = p.Topology.Pull[:0]
	for i := range p.Topology.Senders {
		p.Topology.Pull = append(p.Topology.Pull, plan.Node(i))
	}
	p.Topology.Mismatch = false
	p.Bounds.Grants, p.Bounds.Offers, p.Bounds.Peers = 1, doneRooms-1, plan.New().Bounds.Peers
	p.Bounds.ReservePPM = 20_000
	p.Timeouts.BackoffMin, p.Timeouts.BackoffMax = 200*time.Millisecond, 800*time.Millisecond
	offers := make([]int, p.Topology.Senders)
	p.Jobs = slices.DeleteFunc(p.Jobs, func(j plan.Job) bool { offers[j.From]++; return offers[j.From] > 2 })
	for i := range p.Jobs {
		j := &p.Jobs[i]
		j.To, j.Plain, j.PlainTo = p.ReceiverAt(0), false, false
		j.At = at(uint64(100+i)).RoundedDuration(0, 400*time.Millisecond)
		if int(j.From) >= doneRooms { // Offered when the room is used up.
			j.At += 400 * time.Millisecond
		}
	}
	for to := range int32(doneRooms) {
		for nth := range uint32(8) {
			p.Strikes = append(p.Strikes, plan.Strike{Fault: plan.FaultEffectRefused,
				About: plan.AboutConn(int32(p.ReceiverAt(0)), 0, to, effects.ChannelDone, nth+1)})
		}
	}
}
