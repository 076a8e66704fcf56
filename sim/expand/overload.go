package expand

import (
	"slices"
	"time"

	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
)

// Some seeds of each profile except calm and edge test a full table or a slow driver, because ordinary seeds are too
// small to reach these situations. TestCoverage requires the coverage marks of the machines there.

// overloadPermille is the number of these seeds per thousand.
const overloadPermille = 50

// drawOverload draws whether a seed tests a situation of this kind, and selects the situation.
func drawOverload(p *plan.Plan, profile string) {
	at := func(n uint64) draw.Value { return draw.Hash(p.Seed, draw.Plan, 5, n) }
	if profile == "calm" || profile == "edge" || len(p.Jobs) == 0 || !at(0).ChancePermille(overloadPermille) {
		return
	}
	cases := []func(*plan.Plan, func(uint64) draw.Value){drawSlowDriver}
	switch profile {
	case "starve", "upstream":
		cases = append(cases, drawVanillaCrowd)
	case "pull":
		cases = append(cases, drawDoneBacklog)
	case "delayed", "full":
		cases = append(cases, drawFullFetchTable)
	}
	cases[at(1).Below(uint64(len(cases)))](p, at)
}

// drawSlowDriver makes connections take much longer to open than a handshake may take, so that attempts without an
// outcome accumulate.
func drawSlowDriver(p *plan.Plan, at func(uint64) draw.Value) {
	raiseRate(p, plan.FaultMessageDelayed, 900)
	p.Delays.Message = at(10).RoundedDuration(100*time.Microsecond, 300*time.Microsecond)
	p.Delays.Device = min(p.Delays.Device, 3*time.Millisecond) // Requests can be answered in time.
	p.Timeouts.Alloc = at(11).RoundedDuration(5*time.Millisecond, 15*time.Millisecond)
	p.Timeouts.Reply = p.Timeouts.Alloc + 10*time.Millisecond
	p.Timeouts.BackoffMin, p.Timeouts.BackoffMax = 2*time.Millisecond, 10*time.Millisecond
	p.Timeouts.Put = max(p.Timeouts.Put, time.Second)
}

// drawVanillaCrowd makes more plain senders than there are fairness classes send allocation requests to one receiver at
// the same time and wait for its few pages.
func drawVanillaCrowd(p *plan.Plan, at func(uint64) draw.Value) {
	p.Topology.Leased, p.Topology.ReceiverPages = true, uint32(at(10).Between(2, 4))
	ample := plan.New().Bounds
	p.Bounds.Waiters, p.Bounds.Grants, p.Bounds.Peers = ample.Waiters, ample.Grants, ample.Peers
	p.Timeouts.Alloc = max(p.Timeouts.Alloc, at(11).RoundedDuration(time.Second, 2*time.Second))
	p.Timeouts.Reply = max(p.Timeouts.Reply, p.Timeouts.Alloc+100*time.Millisecond)
	to, start := p.ReceiverAt(0), at(12).RoundedDuration(0, 200*time.Millisecond)
	for i := range at(13).Between(20, 30) {
		if len(p.Jobs) < plan.JobsMax {
			p.Jobs = append(p.Jobs, plan.Job{Request: UnusedRequest(p), To: to, Plain: true, Batch: 1,
				Keys: []uint32{plan.FirstUnsharedKey + 1<<12 + uint32(i)}, At: start + at(uint64(20+i)).RoundedDuration(0, 20*time.Millisecond)})
		}
	}
}

// drawDoneBacklog gives a receiver room for only one or two done messages, while the transport refuses to send done
// messages.
func drawDoneBacklog(p *plan.Plan, at func(uint64) draw.Value) {
	raiseRate(p, plan.FaultEffectRefused, at(10).Between(150, 400))
	p.Bounds.Grants, p.Bounds.Offers, p.Bounds.Peers = 1, 1, plan.New().Bounds.Peers
	p.Timeouts.BackoffMin, p.Timeouts.BackoffMax = 200*time.Millisecond, 800*time.Millisecond
}

// drawFullFetchTable allows one fetch at a time. An abandoned fetch is still reading when the next fetch arrives.
func drawFullFetchTable(p *plan.Plan, at func(uint64) draw.Value) {
	j, ok := pickOffer(p, at(10))
	if !ok {
		return
	}
	p.Topology.Leased, p.Bounds.Fetches = true, 1
	raiseRate(p, plan.FaultLateStore, 700)
	p.Delays.Device = min(p.Delays.Device, 8*time.Millisecond) // Otherwise no read ends in time.
	p.Delays.Scatter = min(p.Delays.Scatter, 2*time.Millisecond)
	p.Timeouts.Fetch = at(11).RoundedDuration(50*time.Millisecond, 150*time.Millisecond)
	shared := slices.DeleteFunc(slices.Clone(j.Keys), func(k uint32) bool { return k >= plan.FirstUnsharedKey })
	from, to, first := j.From, j.To, j.At+at(12).RoundedDuration(10*time.Millisecond, 50*time.Millisecond)
	for i := range 6 {
		if len(p.Jobs) < plan.JobsMax && len(shared) > 0 {
			p.Jobs = append(p.Jobs, plan.Job{Request: UnusedRequest(p), From: from, To: to, Batch: 1, Gather: true, Keys: shared,
				At: first + time.Duration(i)*at(13).RoundedDuration(40*time.Millisecond, 200*time.Millisecond)})
		}
	}
}
