package expand

import (
	"slices"
	"time"

	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
)

// Some seeds of each profile except calm and edge test a full table or a slow driver, because ordinary seeds are too
// small to reach these situations. TestCoverage requires the coverage marks of the machines there.

// oddly is the number of these seeds per thousand.
const oddly = 50

// drawOverload draws whether a seed tests a situation of this kind, and selects the situation.
func drawOdd(p *plan.Plan, profile string) {
	at := func(n uint64) draw.Of { return draw.Hash(p.Seed, draw.Plan, 5, n) }
	if profile == "calm" || profile == "edge" || len(p.Jobs) == 0 || !at(0).Permille(oddly) {
		return
	}
	stories := []func(*plan.Plan, func(uint64) draw.Of){drawLateDriver}
	switch profile {
	case "starve", "upstream":
		stories = append(stories, drawPlainCrowd)
	case "pull":
		stories = append(stories, drawWordsWait)
	case "delayed", "full":
		stories = append(stories, drawFetchesFull)
	}
	stories[at(1).Below(uint64(len(stories)))](p, at)
}

// drawLateDriver makes connections take much longer to open than a handshake may take, so that attempts without an
// outcome accumulate.
func drawLateDriver(p *plan.Plan, at func(uint64) draw.Of) {
	raise(p, plan.FaultDelay, 900)
	p.Delays.Message = at(10).Time(100*time.Microsecond, 300*time.Microsecond)
	p.Delays.Device = min(p.Delays.Device, 3*time.Millisecond) // Requests can be answered in time.
	p.Timeouts.Alloc = at(11).Time(5*time.Millisecond, 15*time.Millisecond)
	p.Timeouts.Reply = p.Timeouts.Alloc + 10*time.Millisecond
	p.Timeouts.BackoffMin, p.Timeouts.BackoffMax = 2*time.Millisecond, 10*time.Millisecond
	p.Timeouts.Put = max(p.Timeouts.Put, time.Second)
}

// drawPlainCrowd makes more plain senders than there are fairness classes send allocation requests to one receiver at
// the same time and wait for its few pages.
func drawPlainCrowd(p *plan.Plan, at func(uint64) draw.Of) {
	p.Topology.Leased, p.Topology.ReceiverPages = true, uint32(at(10).Between(2, 4))
	ample := plan.New().Bounds
	p.Bounds.Waiters, p.Bounds.Grants, p.Bounds.Peers = ample.Waiters, ample.Grants, ample.Peers
	p.Timeouts.Alloc = max(p.Timeouts.Alloc, at(11).Time(time.Second, 2*time.Second))
	p.Timeouts.Reply = max(p.Timeouts.Reply, p.Timeouts.Alloc+100*time.Millisecond)
	to, start := p.Receiver(0), at(12).Time(0, 200*time.Millisecond)
	for i := range at(13).Between(20, 30) {
		if len(p.Jobs) < plan.JobsMax {
			p.Jobs = append(p.Jobs, plan.Job{Request: Unused(p), To: to, Plain: true, Batch: 1,
				Keys: []uint32{plan.KeysOwn + 1<<12 + uint32(i)}, At: start + at(uint64(20+i)).Time(0, 20*time.Millisecond)})
		}
	}
}

// drawDoneBacklog gives a receiver room for only one or two done messages, while the transport refuses to send done
// messages.
func drawWordsWait(p *plan.Plan, at func(uint64) draw.Of) {
	raise(p, plan.FaultRefused, at(10).Between(150, 400))
	p.Bounds.Grants, p.Bounds.Offers, p.Bounds.Peers = 1, 1, plan.New().Bounds.Peers
	p.Timeouts.BackoffMin, p.Timeouts.BackoffMax = 200*time.Millisecond, 800*time.Millisecond
}

// drawFetchesFull allows one fetch at a time. An abandoned fetch is still reading when the next fetch arrives.
func drawFetchesFull(p *plan.Plan, at func(uint64) draw.Of) {
	j, ok := offering(p, at(10))
	if !ok {
		return
	}
	p.Topology.Leased, p.Bounds.Fetches = true, 1
	raise(p, plan.FaultLateStore, 700)
	p.Delays.Device = min(p.Delays.Device, 8*time.Millisecond) // Otherwise no read ends in time.
	p.Delays.Scatter = min(p.Delays.Scatter, 2*time.Millisecond)
	p.Timeouts.Fetch = at(11).Time(50*time.Millisecond, 150*time.Millisecond)
	shared := slices.DeleteFunc(slices.Clone(j.Keys), func(k uint32) bool { return k >= plan.KeysOwn })
	from, to, first := j.From, j.To, j.At+at(12).Time(10*time.Millisecond, 50*time.Millisecond)
	for i := range 6 {
		if len(p.Jobs) < plan.JobsMax && len(shared) > 0 {
			p.Jobs = append(p.Jobs, plan.Job{Request: Unused(p), From: from, To: to, Batch: 1, Gather: true, Keys: shared,
				At: first + time.Duration(i)*at(13).Time(40*time.Millisecond, 200*time.Millisecond)})
		}
	}
}
